"""Environments that do what frameworks find hard, servers that run while a test lasts, and a client that is only HTTP.

These tests need ORS, so they run inside its stacks only.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Annotated, Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from pydantic import Field

from adapters.ors.adapter import ADAPTER
from adapters.ors.framework import HAS_OPENREWARD
from canonical.adapter import Endpoint
from canonical.catalogue import load_environment
from canonical.content import Block, Image, Message, Text
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
        "openreward",
        "ors",
        "sse_starlette",
        "starlette",
        "fastapi",
        "uvicorn",
        "aiohttp",
        "google",
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
        self.opened = 0
        self.closed: list[Bench] = []
        self.gate = threading.Event()
        self.entered = threading.Semaphore(0)

    def tasks(self) -> TaskSet:
        return TaskSet(
            [
                *(Task(id=f"train/{n}", inputs={"level": n}, secret={"answer": CANARY}) for n in range(5)),
                Task(id="train/broken", secret={"answer": CANARY}),
                Task(id="train/slow", secret={"answer": CANARY}),
                Task(id="test/0", inputs={"level": 9}, secret={"answer": CANARY}),
                Task(id="odd/0", inputs={"level": 10}, secret={"answer": CANARY}),
            ]
        )

    def start(self, task: Task, rng: Random) -> Bench:
        if task.id == "train/broken":
            raise ValueError(f"cannot start, the answer is {task.secret['answer']}")
        if task.id == "train/slow":
            self.entered.release()
            self.gate.wait(30)
        self.opened += 1
        return Bench(str(task.secret["answer"]), rng)

    def prompt(self, task: Task, state: Bench) -> str | list[Message]:
        if task.split == "odd":
            return [
                Message("system", (Text(LONE),)),
                Message("user", ()),
                Message("user", (Image(PIXEL, "image/png"), Text("?"))),
            ]
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
    def vanish(self, state: Bench) -> str:
        """Pretend to be cancelled, which frameworks take for their own doing."""
        raise asyncio.CancelledError(state.answer)

    @tool
    def setup(self, state: Bench) -> str:
        """Be called as a part of ORS is called."""
        return "a tool called setup"

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

    async def start(self, task: Task, rng: Random) -> Bench:  # type: ignore[override]
        if task.id == "train/slow":
            self.entered.release()
            while not self.gate.is_set():  # noqa: ASYNC110 - the gate is of threads, too
                await asyncio.sleep(0.001)
        return super().start(task, rng)

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


class Raw:
    """Speak plain HTTP as one session, and keep every byte of the answers."""

    def __init__(self, server: Server) -> None:
        self.name = server.environment.name
        self.sid = str(uuid.uuid4())
        self.seen: list[bytes] = []
        self._http = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=40)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        headers = {"X-Session-ID": self.sid, "Content-Type": "application/json"}
        self._http.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self._http.getresponse()
        data = answer.read()
        self.seen.append(str(answer.headers).encode() + data)
        return answer.status, data.decode()

    def create(self, **spec: Any) -> tuple[int, str]:
        body = {"split": spec["split"], "index": spec["index"]} if "split" in spec else {"task_spec": spec}
        return self.ask("POST", "/create", {"env_name": self.name, **body})

    def call(self, name: str, **arguments: Any) -> Any:
        status, text = self.ask("POST", f"/{self.name}/call", {"name": name, "input": arguments})
        assert status == 200, text
        return self.read(text)

    def read(self, stream: str) -> Any:
        event, parts = "", []
        for line in stream.split("\r\n"):
            if line.startswith("event: "):
                event = line[7:]
            elif line.startswith("data: "):
                assert event != "error", line
                parts += [line[6:]] if event in {"chunk", "end"} else []
        return json.loads("".join(parts))

    def close(self) -> None:
        self._http.close()


class _Loop:
    """Run one event loop in a thread: the servers of a process share one, as they do in a worker."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)


_loop: list[_Loop] = []


class _Uvicorn(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextmanager
def serving(environment: Environment[Any], adapter: Any = ADAPTER, compiled: Any = None) -> Iterator[Server]:
    """Serve an environment on the loop of the servers, which shares nothing with the client but the process."""
    if not _loop:
        _loop.append(_Loop())
    context = adapter.serve(adapter.compile(environment) if compiled is None else compiled)
    server = Server(environment, _loop[0].run(context.__aenter__()))
    try:
        yield server
    finally:
        _loop[0].run(context.__aexit__(None, None, None))


@pytest.fixture(scope="session")
def serve_standing() -> Callable[..., Any]:
    return serving


@pytest.fixture(scope="session")
def serve_app() -> Callable[..., Any]:
    """Return what serves an application that this project did not make."""

    @contextmanager
    def serve(app: Any, name: str) -> Iterator[Server]:
        if not _loop:
            _loop.append(_Loop())
        listener = socket.create_server(("127.0.0.1", 0))
        server = _Uvicorn(uvicorn.Config(app, log_config=None, access_log=False))
        serving = asyncio.run_coroutine_threadsafe(server.serve(sockets=[listener]), _loop[0].loop)
        while not server.started:
            time.sleep(0.001)
        named: Any = SimpleNamespace(name=name)
        try:
            yield Server(named, Endpoint(f"http://127.0.0.1:{listener.getsockname()[1]}", lambda: 0))
        finally:
            server.should_exit = True
            serving.result(30)
            listener.close()

    return serve


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
def raw() -> Iterator[Callable[[Server], Raw]]:
    made: list[Raw] = []

    def make(server: Server) -> Raw:
        made.append(Raw(server))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def official() -> Callable[..., Any]:
    """Return the synchronous client of the installed distribution, made as its documentation makes it."""

    @contextmanager
    def connected(server: Server) -> Iterator[Any]:
        name = server.environment.name
        if HAS_OPENREWARD:
            from openreward import OpenReward

            client = OpenReward()
            env = client.environments.get(name, variant=name, base_url=server.url)
        else:
            from ors.client import ORS

            client = ORS(base_url=server.url)
            env = client.environment(name)
        try:
            yield env
        finally:
            client.close()

    return connected


@pytest.fixture
def canary() -> str:
    return CANARY


@pytest.fixture
def lone() -> str:
    return LONE
