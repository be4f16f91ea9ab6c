"""Touchstone: an environment that uses every part of the canonical types, so that an adapter cannot lose one unnoticed.

Conformance plays it beside the environment that was asked for. It has what a simple game lacks: a generator that is used
in the middle of an episode, defaults, enums, optionals, nested models, images, coroutine tools, a dense reward, free
errors, two splits, and tools that fail in every way a tool can.
"""

from __future__ import annotations

import asyncio
import json
import random
import struct
import sys
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from canonical.content import Block, Image, Message, Text
from canonical.environment import Environment, Rng
from canonical.reward import Aggregation, Criterion, RewardSpec, WeightedSum
from canonical.step import Cause
from canonical.task import Task, TaskSet
from canonical.tool import ToolCall, ToolError, tool

_TASKS = 24


class Size(BaseModel):
    """Give a size in millimetres."""

    width: int = Field(ge=1, le=100)
    height: int = Field(default=1, ge=1, le=100)


class Item(BaseModel):
    """Name an item and, where it matters, its size."""

    name: str
    count: int = 1
    size: Size | None = None


@dataclass(slots=True)
class Table:
    """Hold what lies on the table."""

    code: str
    rng: Rng
    rolled: int = 0
    gain: float = 0.0
    is_solved: bool = False
    is_over: bool = False


@cache
def _tasks() -> TaskSet:
    return TaskSet(
        Task(
            id=f"{'train' if index < _TASKS // 2 else 'test'}/{index:02d}",
            inputs={"label": f"table {index} \u2013 \u5353\u5b50"},
            secret={"code": f"canary-{zlib.crc32(str(index).encode()):08x}"},
        )
        for index in range(_TASKS)
    )


def _gain(table: Table) -> float:
    return table.gain


def _solved(table: Table) -> float:
    return float(table.is_solved)


class Touchstone(Environment[Table]):
    """Roll dice, echo words, and guess a code."""

    name = "touchstone"
    version = "1"
    max_turns = 10
    free_errors = 2
    reward = RewardSpec(Aggregation.SUM, low=0.0, high=20.0)
    rubric = WeightedSum((1.0, Criterion("luck", _gain)), (0.5, Criterion("solved", _solved)))

    def tasks(self) -> TaskSet:
        """Return 24 tasks in two splits, each with a code that nobody can guess."""
        return _tasks()

    def start(self, task: Task, rng: random.Random) -> Table:
        """Return a table on which one die has been rolled."""
        return Table(str(task.secret["code"]), rng, rolled=rng.randint(1, 6))

    def prompt(self, task: Task, state: Table) -> list[Message]:
        """Return two messages that show the task's label and the first roll."""
        return [
            Message("system", (Text("You sit at a table."),)),
            Message(
                "user", (Text(f"This is {task.inputs['label']}."), Text(f"The die shows {state.rolled}."))
            ),
        ]

    @tool
    def roll(
        self, state: Table, sides: Annotated[int, Field(ge=2, le=32)] = 6, times: Literal[1, 2, 3] = 1
    ) -> str:
        """Roll dice.

        Args:
            sides: How many sides each die has.
            times: How many dice are rolled.
        """
        rolled = [state.rng.randint(1, sides) for _ in range(times)]
        state.rolled = sum(rolled)
        # Sums of 64ths are exact, so that rewards can be compared without a tolerance.
        state.gain = state.rolled / 64
        return " ".join(map(str, rolled))

    @tool
    def echo(
        self,
        state: Table,
        text: str,
        times: int = 1,
        style: Literal["plain", "quoted"] = "plain",
        note: str | None = None,
    ) -> str:
        """Say a text again.

        Args:
            text: What to say.
            times: How often, from 0 to 3.
            style: Whether to put it in quotation marks.
            note: Something to add.
        """
        state.gain = 0.0
        if not 0 <= times <= 3:
            raise ToolError(f"An echo can be said 0 to 3 times, not {times}.")
        said = f"\u00ab{text}\u00bb" if style == "quoted" else text
        return "|".join([said] * times) + ("" if note is None else f" ({note})")

    @tool
    def order(
        self, state: Table, items: list[Item], sizes: dict[str, Size] | None = None, *, urgent: bool = False
    ) -> str:
        """Order items.

        Args:
            items: What to order.
            sizes: Sizes by name.
            urgent: Whether it must come today.
        """
        state.gain = len(items) / 64 if len(items) <= 64 else 1.0
        value = {
            "items": [item.model_dump() for item in items],
            "sizes": None if sizes is None else {name: size.model_dump() for name, size in sizes.items()},
            "urgent": urgent,
        }
        return json.dumps(value, ensure_ascii=False, sort_keys=True)

    @tool
    def draw(self, state: Table, shade: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5) -> list[Block]:
        """Draw a grey square.

        Args:
            shade: From black (0) to white (1).
        """
        state.gain = 0.0
        return [Text(f"A square of shade {shade}:"), Image(_grey_png(round(shade * 255)), "image/png")]

    @tool
    async def wait(self, state: Table, turns: Annotated[int, Field(ge=0, le=3)] = 1) -> str:
        """Let others go first.

        Args:
            turns: How many times.
        """
        state.gain = 0.0
        for _ in range(turns):
            await asyncio.sleep(0)
        return f"Waited {turns} times."

    @tool
    def fail(self, state: Table, how: Literal["politely", "loudly", "exit"]) -> str:
        """Fail.

        Args:
            how: In which way.
        """
        if how == "politely":
            raise ToolError("This did not work, as you wished. \u2639")
        if how == "exit":
            sys.exit(f"the code is {state.code}")
        raise ValueError(f"the code is {state.code}")

    @tool
    def answer(self, state: Table, code: str) -> str:
        """Say the code; the episode ends.

        Args:
            code: The code.
        """
        state.gain = 0.0
        state.is_over = True
        state.is_solved = code == state.code
        return "That is the code." if state.is_solved else "That is not the code."

    def outcome(self, state: Table) -> Cause | None:
        """Return solved or submitted once an answer was given."""
        if state.is_solved:
            return Cause.SOLVED
        return Cause.SUBMITTED if state.is_over else None

    def status(self, state: Table) -> str:
        """Return what the dice show."""
        return f"The dice show {state.rolled}."

    def oracle(self, task: Task) -> Iterable[ToolCall]:
        """Return two rolls, one with defaults only, and the answer."""
        return (
            ToolCall("roll", {}),
            ToolCall("roll", {"times": 2}),
            ToolCall("answer", {"code": task.secret["code"]}),
        )


@cache
def _grey_png(level: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 0)
    # Stored, not deflated: the bytes must not depend on the zlib that a Python was built with.
    pixels = zlib.compress(bytes([0, level, level, 0, level, level]), 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
