"""An environment with episodes of any length, whose every observation names its task: whoever reads another's notices."""

from __future__ import annotations

from dataclasses import dataclass

from canonical.environment import Environment
from canonical.reward import Criterion
from canonical.step import Cause
from canonical.task import Task, TaskSet
from canonical.tool import ToolCall, tool


@dataclass(slots=True)
class Sum:
    task: str
    calls: int = 0
    total: int = 0


class Counting(Environment[Sum]):
    """Add numbers up."""

    name, version, max_turns = "counting", "1", 1_000
    rubric = Criterion("counted", lambda state: float(state.calls >= 900))
    all_tasks = TaskSet(Task(id=f"train/{number:03d}") for number in range(64))

    def tasks(self):
        return self.all_tasks

    def start(self, task, rng):
        return Sum(task.id)

    def prompt(self, task, state):
        return f"Add numbers up, in {task.id}."

    @tool
    def add(self, state: Sum, number: int) -> str:
        """Add a number.

        Args:
            number: What is added.
        """
        state.calls += 1
        state.total += number
        return f"{state.task}: {state.total} after {state.calls}"

    def outcome(self, state):
        return Cause.SOLVED if state.calls >= 900 else None

    def oracle(self, task):
        return [ToolCall("add", {"number": 1})] * 900
