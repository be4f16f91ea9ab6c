"""An environment that fails where environments can: it does not start, cannot be scored, works too long, never ends."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random

from canonical.environment import Environment
from canonical.reward import Aggregation, Criterion, RewardSpec
from canonical.task import Task, TaskSet
from canonical.tool import tool

SECRET = "canary-7f3a-never-shown"


@dataclass
class Box:
    """Hold what was put in."""

    value: float = 0.0


class Broken(Environment[Box]):
    """Fail on request."""

    name = "broken"
    max_turns = 1000
    reward = RewardSpec(aggregation=Aggregation.LAST, low=0.0, high=10.0)
    rubric = Criterion("value", lambda box: box.value)

    def tasks(self) -> TaskSet:
        secret = {"answer": SECRET}
        return TaskSet([Task(id="train/0", secret=secret), Task(id="test/unstartable", secret=secret)])

    def start(self, task: Task, rng: Random) -> Box:
        if task.id == "test/unstartable":
            raise ValueError(f"the answer is {task.secret['answer']}")
        return Box()

    def prompt(self, task: Task, state: Box) -> str:
        return "Put a number into the box."

    @tool
    def put(self, state: Box, value: float) -> str:
        """Put a number into the box; above 10 it cannot be scored."""
        state.value = value
        return "done"

    @tool
    async def wait(self, state: Box, seconds: float) -> str:
        """Work for a while."""
        await asyncio.sleep(seconds)
        return "waited"
