"""Signatures: one tool for each thing that a parameter can be, to see what a framework makes of it. Nobody plays it."""

# ruff: noqa: ARG002 - what a tool takes is all that counts here
from __future__ import annotations

import random
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from canonical.content import Message, Text
from canonical.environment import Environment
from canonical.reward import Criterion
from canonical.task import Task, TaskSet
from canonical.tool import tool


class Size(BaseModel):
    """Give a size in millimetres."""

    width: int = Field(ge=1, description="From left to right.")
    height: int = 1


class Item(BaseModel):
    """Name an item and, where it matters, its size."""

    name: str
    size: Size | None = None


class Signatures(Environment[None]):
    """Offer one tool for each kind of parameter."""

    name = "signatures"
    version = "1"
    max_turns = 1
    rubric = Criterion("nothing", lambda _state: 0.0)

    def tasks(self) -> TaskSet:
        """Return the only task."""
        return TaskSet([Task(id="train/0", inputs={}, secret={})])

    def start(self, task: Task, rng: random.Random) -> None:
        """Return nothing."""

    def prompt(self, task: Task, state: None) -> list[Message]:
        """Return a message."""
        return [Message("user", (Text("Call a tool."),))]

    @tool
    def described(self, state: None, value: str) -> str:
        """Take a text; quotes " and ticks ` and \u00e9 stay.

        Args:
            value: A text | with a pipe, <tags> and {braces}.
        """
        return value

    @tool
    def enumerated(self, state: None, value: Literal["red", "green", 3]) -> str:
        """Take one of three."""
        return str(value)

    @tool
    def defaulted(self, state: None, value: int = 3, *, flag: bool = False) -> str:
        """Take what has a default."""
        return f"{value} {flag}"

    @tool
    def optional(self, state: None, value: str | None = None) -> str:
        """Take a text or nothing."""
        return str(value)

    @tool
    def united(self, state: None, value: int | list[str]) -> str:
        """Take a number or texts."""
        return str(value)

    @tool
    def bounded(self, state: None, value: Annotated[float, Field(ge=0.0, lt=1.0)]) -> str:
        """Take a part of one."""
        return str(value)

    @tool
    def listed(self, state: None, value: Annotated[list[int], Field(min_length=1, max_length=3)]) -> str:
        """Take one to three numbers."""
        return str(value)

    @tool
    def mapped(self, state: None, value: dict[str, float]) -> str:
        """Take numbers by name."""
        return str(value)

    @tool
    def nested(self, state: None, value: Item) -> str:
        """Take an object in an object."""
        return str(value)

    @tool
    def empty(self, state: None) -> str:
        """Take nothing."""
        return ""
