"""Environments that do on request what frameworks find hard to carry."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Annotated

from pydantic import Field

from canonical.content import Block, Image, Message, Text
from canonical.environment import Environment, Rng
from canonical.reward import Aggregation, Criterion, RewardSpec
from canonical.step import Cause
from canonical.task import Task, TaskSet
from canonical.tool import ToolError, tool

CANARY = "canary-7f3a-never-on-the-wire"
PIXEL = bytes(range(256))
CONTENTS: Sequence[Sequence[Block]] = (
    (),
    (Text(""),),
    (Text("plain"),),
    (Text("\ud800"),),
    (Text("a"), Text("b")),
    (Image(b"\x00\xff", "image/png"),),
    (Text("x\udfffy\U0001f600"), Image(b"", "image/gif"), Text("")),
)
LONE = "lone \ud800 and \udfff, paired \U0001f600, nul \x00"


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
        self.opened = 0
        self.closed: list[Bench] = []
        self.gate = threading.Event()
        self.entered = threading.Semaphore(0)

    def tasks(self) -> TaskSet:
        secret = {"answer": CANARY}
        return TaskSet(
            [
                *(Task(id=f"train/{n}", inputs={"level": n}, secret=secret) for n in range(5)),
                Task(id="test/0", inputs={"level": 9}, secret=secret),
                Task(id="odd/0", inputs={"level": 10}, secret=secret),
                Task(id="odd/broken", secret=secret),
                Task(id="odd/slow", secret=secret),
            ]
        )

    def start(self, task: Task, rng: Random) -> Bench:
        if task.id == "odd/broken":
            raise ValueError(f"cannot start, the answer is {task.secret['answer']}")
        if task.id == "odd/slow":
            self.entered.release()
            self.gate.wait(30)
        self.opened += 1
        return Bench(str(task.secret["answer"]), rng)

    def prompt(self, task: Task, state: Bench) -> str | list[Message]:
        if task.id == "odd/0":
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
    def vanish(self, state: Bench) -> str:
        """Pretend to be cancelled, which frameworks take for their own doing."""
        raise asyncio.CancelledError(state.answer)

    @tool
    def setup(self, state: Bench) -> str:
        """Be called as a part of some frameworks is called."""
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
    """Do the same, and wait on an event loop."""

    name = "waiting_lab"

    async def start(self, task: Task, rng: Random) -> Bench:  # type: ignore[override]
        if task.id == "odd/slow":
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
