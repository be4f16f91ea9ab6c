"""Environments that do what frameworks find hard, and the loop of SkyRL's generator without the model.

These tests need SkyRL Gym, so they run inside its stacks only.
"""

from __future__ import annotations

import asyncio
import copy
import threading
import time
from collections.abc import Awaitable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import Annotated, Any

import pytest
import skyrl_gym
from pydantic import Field

from adapters.skyrl.adapter import ADAPTER
from canonical.catalogue import load_environment
from canonical.content import Block, Image, Text
from canonical.environment import Environment, Rng
from canonical.reward import Aggregation, Criterion, RewardSpec
from canonical.step import Cause
from canonical.task import Task, TaskSet
from canonical.tool import ToolError, tool

CANARY = "canary-7f3a-in-no-message"
PIXEL = bytes(range(256))
LONE = "lone \ud800 and \udfff, paired \U0001f600, nul \x00"


def pytest_configure(config: pytest.Config) -> None:
    # The frameworks' own warnings are theirs to mend; ours stay errors.
    for module in ("skyrl_gym", "pandas", "omegaconf", "func_timeout"):
        config.addinivalue_line("filterwarnings", rf"ignore:::{module}\.")


@dataclass
class Bench:
    """Hold what happened in an episode of the lab."""

    answer: str
    draws: Rng
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
    def list(self, state: Bench, lines: int) -> Sequence[Block]:
        """Say several texts, or none."""
        return [Text(f"line {n}\n") for n in range(lines)]

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
    """Do the same, and wait on an event loop."""

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


@dataclass
class Trajectory:
    """Hold what SkyRL's generator keeps of an episode."""

    conversation: list[dict[str, Any]]
    rewards: list[float]
    done: bool
    metrics: dict[str, Any]


def generate(row: dict[str, Any], texts: Sequence[str], *, max_turns: int, workers: int = 32) -> Trajectory:
    """Do with one row what `SkyRLGymGenerator.agent_loop` does, with these texts in place of a model.

    In its order and its threads: `make` on the loop; `init`, `step` and `close` in the pool; only `observations`, `reward`,
    `done` and `postprocessed_action` are read. When the texts run out, the context is full, of which the environment hears
    nothing.
    """

    async def agent_loop() -> Trajectory:
        extras = copy.deepcopy({key: row[key] for key in row if key not in {"prompt", "env_class"}})
        extras["max_turns"] = max_turns
        env = skyrl_gym.make(row["env_class"], env_config={}, extras=extras)
        loop = asyncio.get_running_loop()
        chat, info = await loop.run_in_executor(pool, env.init, copy.deepcopy(row["prompt"]))
        assert not (info or {}).get("next_user_message")
        rewards, done = [], False
        for text in texts:
            output = await loop.run_in_executor(pool, env.step, text)
            chat = [*chat, {"role": "assistant", "content": text}, *output["observations"]]
            assert output.get("postprocessed_action") is None
            rewards.append(output["reward"])
            done = output["done"]
            if done:
                break
        metrics = env.get_metrics()
        await loop.run_in_executor(pool, env.close)
        return Trajectory(chat, rewards, done, metrics)

    with ThreadPoolExecutor(workers, thread_name_prefix="skyrl-gym-env-") as pool:
        return asyncio.run(agent_loop())


@pytest.fixture(params=[Lab, WaitingLab], ids=["plain", "waiting"])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    made: Lab = request.param()
    yield made
    made.gate.set()


@pytest.fixture
def compiled(lab: Lab) -> Any:
    return ADAPTER.compile(lab)


@pytest.fixture(scope="module")
def standing() -> Any:
    return ADAPTER.compile(Lab())


@pytest.fixture(scope="session")
def wordle() -> Environment[Any]:
    return load_environment("wordle")


@pytest.fixture
def registered(compiled: Any) -> Iterator[Any]:
    name = compiled.environment.name
    skyrl_gym.register(id=name, entry_point=compiled)
    yield compiled
    skyrl_gym.envs.deregister(name)


@pytest.fixture
def play_row() -> Any:
    return generate


@pytest.fixture
def canary() -> str:
    return CANARY


@pytest.fixture
def lone() -> str:
    return LONE
