from __future__ import annotations

from canonical.environment import Environment
from canonical.reward import Criterion
from canonical.step import Cause
from canonical.task import Task, TaskSet
from canonical.tool import ToolCall, tool


class HigherLower(Environment[dict[str, int]]):
    """Find a number from 1 to 100 in seven guesses."""

    name, version, max_turns = "higher_lower", "1", 7
    rubric = Criterion("found", lambda state: float(state["last"] == state["number"]))
    all_tasks = TaskSet(Task(id=f"train/{n:03d}", secret={"number": n * 37 % 100 + 1}) for n in range(100))

    def tasks(self):
        return self.all_tasks

    def start(self, task, rng):
        return {"number": task.secret["number"], "last": 0}

    def prompt(self, task, state):
        return "I think of a number from 1 to 100. You have seven guesses."

    @tool
    def guess(self, state: dict[str, int], number: int) -> str:
        """Guess the number.

        Args:
            number: Your guess, from 1 to 100.
        """
        state["last"] = number
        return "Right!" if number == state["number"] else "Higher." if number < state["number"] else "Lower."

    def outcome(self, state):
        return Cause.SOLVED if state["last"] == state["number"] else None

    def oracle(self, task):
        return [ToolCall("guess", {"number": task.secret["number"]})]
