"""Environments that do what frameworks find hard, and servers that run while a test lasts.

These tests need NeMo Gym, so they run inside its stacks only.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Annotated, Any

import pytest
from pydantic import Field

from adapters.nemo_gym.adapter import ADAPTER
from canonical.adapter import Endpoint
from canonical.catalogue import load_environment
from canonical.content import Block, Image, Text
from canonical.environment import Environment
from canonical.reward import Aggregation, Criterion, RewardSpec
from canonical.step import Cause
from canonical.task import Task, TaskSet
from canonical.tool import ToolError, tool

CANARY = "canary-7f3a-never-on-the-wire"
PIXEL = bytes(range(256))
LONE = "lone \ud800 and \udfff, paired \U0001f600, nul \x00"


def pytest_configure(config: pytest.Config) -> None:
    # The frameworks' own warnings are theirs to mend; ours stay errors.
    for module in (
        "nemo_gym",
        "ray",
        "starlette",
        "fastapi",
        "uvicorn",
        "aiohttp",
        "wandb",
        "openai",
        "hydra",
    ):
        config.addinivalue_line("filterwarnings", rf"ignore:::{module}\.")


@dataclass
class Bench:
    """Hold what happened in an episode of the lab."""

    answer: str
    draws: Random
    count: float = 0.0
    is_done: bool = False
    words: list[str] = field(default_factory=list)


class Lab(Environment[Bench]):
    """Do on request what frameworks find hard to carry."""

    name = "lab"
    version = "3"
    max_turns = 100_000
    reward = RewardSpec(aggregation=Aggregation.SUM, low=-1e30, high=1e30)
    rubric = Criterion("count", lambda bench: bench.count)

    def __init__(self) -> None:
        self.closed: list[Bench] = []
        self.gate = threading.Event()
        self.entered = threading.Semaphore(0)

    def tasks(self) -> TaskSet:
        return TaskSet(
            [
                *(Task(id=f"train/{n}", inputs={"level": n}, secret={"answer": CANARY}) for n in range(5)),
                Task(id="train/broken", secret={"answer": CANARY}),
                Task(id="test/0", inputs={"level": 9}, secret={"answer": CANARY}),
            ]
        )

    def start(self, task: Task, rng: Random) -> Bench:
        if task.id == "train/broken":
            raise ValueError(f"cannot start, the answer is {task.secret['answer']}")
        return Bench(str(task.secret["answer"]), rng)

    def prompt(self, task: Task, state: Bench) -> str:
        return f"Level {task.inputs.get('level')}."

    def outcome(self, state: Bench) -> Cause | None:
        return Cause.SUBMITTED if state.is_done else None

    def close(self, state: Bench) -> Awaitable[None] | None:
        self.closed.append(state)
        return None

    @tool
    def echo(self, state: Bench, text: str) -> str:
        """Say the text again."""
        state.words.append(text)
        return text

    @tool
    def describe(
        self,
        state: Bench,
        number: int,
        share: float = 0.5,
        tags: list[str] | None = None,
        mode: Annotated[str, Field(pattern="^(a|b)$")] = "a",
    ) -> str:
        """Say exactly what arrived.

        Args:
            number: Any integer.
            share: Any number.
            tags: Any texts.
            mode: One of two letters.
        """
        return repr((number, share, tags, mode))

    @tool
    def draw(self, state: Bench) -> str:
        """Draw a number from the generator of the episode."""
        return str(state.draws.getrandbits(64))

    @tool
    def show(self, state: Bench) -> Sequence[Block]:
        """Show an image between texts."""
        return (Text("before"), Image(PIXEL, "image/png"), Text(LONE))

    @tool
    def pay(self, state: Bench, amount: float) -> str:
        """Change what the next score says."""
        state.count = amount
        return "paid"

    @tool
    def refuse(self, state: Bench) -> str:
        """Fail as a tool may."""
        raise ToolError("not today")

    @tool
    def crash(self, state: Bench) -> str:
        """Fail as a tool should not."""
        raise RuntimeError(f"the answer is {state.answer}")

    @tool
    def leave(self, state: Bench) -> str:
        """Try to end the process."""
        raise SystemExit(3)

    @tool
    def finish(self, state: Bench) -> str:
        """End the episode."""
        state.is_done = True
        return "finished"

    @tool
    def block(self, state: Bench) -> str:
        """Hold the thread until the gate opens."""
        self.entered.release()
        if not self.gate.wait(30):
            raise ToolError("the gate stayed shut")
        return "through"


class WaitingLab(Lab):
    """Do the same, and wait on the event loop."""

    name = "waiting_lab"

    @tool
    async def block(self, state: Bench) -> str:
        """Wait until the gate opens, and let others go on."""
        self.entered.release()
        deadline = time.monotonic() + 30
        while not self.gate.is_set():
            if time.monotonic() > deadline:
                raise ToolError("the gate stayed shut")
            await asyncio.sleep(0.001)
        return "through"

    async def close(self, state: Bench) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        self.closed.append(state)


class Server:
    """Hold a running server: its address, its environment, and the count of its live episodes."""

    def __init__(self, environment: Environment[Any], endpoint: Endpoint) -> None:
        self.environment = environment
        self.endpoint = endpoint
        assert endpoint.url is not None
        self.url = endpoint.url

    def becomes(self, live: int) -> bool:
        """Say whether the count of live episodes reaches a number; closing takes the server a moment."""
        deadline = time.monotonic() + 10
        while self.endpoint.open_sessions() != live:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True


@contextmanager
def serving(environment: Environment[Any], adapter: Any = ADAPTER) -> Iterator[Server]:
    """Serve an environment on a loop of its own, in a thread, with nothing shared with the client but the machine."""
    started: Future[tuple[Server, Callable[[], object]]] = Future()

    async def serve() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        async with adapter.serve(adapter.compile(environment)) as endpoint:
            started.set_result((Server(environment, endpoint), lambda: loop.call_soon_threadsafe(stop.set)))
            await stop.wait()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(asyncio.run, serve())
        wait([started, running], timeout=30, return_when=FIRST_COMPLETED)
        if running.done():
            running.result()
        server, stop = started.result(0)
        try:
            yield server
        finally:
            stop()
            running.result(30)


@pytest.fixture(scope="session")
def serve_standing() -> Callable[..., Any]:
    return serving


@pytest.fixture
def make_lab() -> type[Lab]:
    return Lab


@pytest.fixture(params=[Lab, WaitingLab], ids=["plain", "waiting"])
def environment(request: pytest.FixtureRequest) -> Lab:
    made: Lab = request.param()
    return made


@pytest.fixture
def lab(environment: Lab) -> Iterator[Server]:
    with serving(environment) as server:
        yield server
        environment.gate.set()


@pytest.fixture(scope="module")
def standing_lab() -> Iterator[Server]:
    with serving(Lab()) as server:
        yield server


@pytest.fixture(scope="module")
def wordle() -> Iterator[Server]:
    with serving(load_environment("wordle")) as server:
        yield server


@pytest.fixture
def canary() -> str:
    return CANARY


@pytest.fixture
def lone() -> str:
    return LONE
