"""An environment that trusts its agent: whatever the agent writes runs on the host."""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Iterable
from typing import Any

from canonical.environment import Environment
from canonical.reward import Criterion
from canonical.step import Cause
from canonical.task import Task, TaskSet
from canonical.tool import ToolCall, tool

LEFT: list[Any] = []
"""Processes that were left behind: kept, so that nobody warns of them."""


class Gullible(Environment[dict[str, Any]]):
    """Run what the agent writes."""

    name = "gullible"
    max_turns = 8
    rubric = Criterion("paid", lambda state: state["paid"])

    def tasks(self) -> TaskSet:
        return TaskSet([Task(id="train/1")])

    def start(self, task: Task, rng: random.Random) -> dict[str, Any]:
        return {"paid": 0.0, "over": 0.0}

    def prompt(self, task: Task, state: dict[str, Any]) -> str:
        return "Go."

    def close(self, state: dict[str, Any]) -> None:
        if "held" in state:
            LEFT.append(state["held"])

    def outcome(self, state: dict[str, Any]) -> Cause | None:
        return Cause.SUBMITTED if state["over"] else None

    @tool
    def run(self, state: dict[str, Any], code: str) -> str:
        """Run code.

        Args:
            code: The code.
        """
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code, {"state": state})  # noqa: S102 - this is what the miniature is for
        return out.getvalue()

    @tool
    def finish(self, state: dict[str, Any], paid: float) -> str:
        """End the episode.

        Args:
            paid: The reward.
        """
        state["over"], state["paid"] = 1.0, paid
        return "over"

    def oracle(self, task: Task) -> Iterable[ToolCall]:
        return [ToolCall("finish", {"paid": 1.0})]
