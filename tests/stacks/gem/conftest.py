"""Environments that do what frameworks find hard, and the ways in which GEM's users hold them.

These tests need GEM, so they run inside its stacks only.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Annotated, Any

import gem
import pytest
from pydantic import Field

from adapters.gem.adapter import ADAPTERS
from adapters.gem.compiler import compile_environment
from canonical.catalogue import load_environment
from canonical.content import Block, Image, Text
from canonical.dialect import TextForm, write_calls
from canonical.environment import Environment, Rng
from canonical.reward import Aggregation, Criterion, RewardSpec
from canonical.step import Cause
from canonical.task import Task, TaskSet
from canonical.tool import ToolCall, ToolError, tool

CANARY = "canary-7f3a-never-in-a-text"
PIXEL = bytes(range(256))
LONE = "lone \ud800 and \udfff, paired \U0001f600, nul \x00"


def pytest_configure(config: pytest.Config) -> None:
    # The frameworks' own warnings are theirs to mend; ours stay errors.
    for module in ("gem", "reasoning_gym", "nltk", "math_verify", "sympy", "matplotlib"):
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
                Task(id="odd/broken", secret={"answer": CANARY}),
                Task(id="test/0", inputs={"level": 9}, secret={"answer": CANARY}),
            ]
        )

    def start(self, task: Task, rng: Random) -> Bench:
        if task.id == "odd/broken":
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


def as_text(name: str, **arguments: Any) -> str:
    """Return a call as a model writes it for GEM."""
    return write_calls([ToolCall(name, arguments)], TextForm.XML)


@pytest.fixture(params=[Lab, WaitingLab], ids=["plain", "waiting"])
def environment(request: pytest.FixtureRequest) -> Lab:
    made: Lab = request.param()
    return made


@pytest.fixture
def compiled(environment: Lab) -> Any:
    return compile_environment(environment)


@pytest.fixture
def env(compiled: Any) -> Any:
    return gem.make(compiled.env_id)


@pytest.fixture(scope="session")
def wordle() -> Any:
    return compile_environment(load_environment("wordle"))


@pytest.fixture(scope="session")
def standing_lab() -> Any:
    return compile_environment(Lab())


@pytest.fixture(params=sorted(ADAPTERS))
def adapter(request: pytest.FixtureRequest) -> Any:
    return ADAPTERS[request.param]


@pytest.fixture(scope="session")
def say() -> Any:
    return as_text


@pytest.fixture
def canary() -> str:
    return CANARY


@pytest.fixture
def lone() -> str:
    return LONE
