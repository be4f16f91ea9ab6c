"""A coding task made of texts, and an agent's calls on it in a real sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from canonical.bundle import Bundle
from canonical.environments.coding_agent.environment import CodingAgent, Desk
from canonical.episode import Episode
from canonical.grading.grade import HiddenTest
from canonical.sandbox.protocol import Backend, Limits, Snapshot
from canonical.step import StepResult
from canonical.task import Task, TaskSet
from canonical.tool import ToolCall

FIXED = "def add(a, b):\n    return a + b\n"
BROKEN = "def add(a, b):\n    return a - b\n"
TESTS = """\
from grading import same


def test_add(solution):
    assert same(solution.call("sums:add", 2, 3), 5)


def test_zero(solution):
    assert same(solution.call("sums:add", 2, 0), 2)
"""


class OneTask(CodingAgent):
    """The coding environment with a single task, which is given as texts."""

    def __init__(
        self,
        given: Mapping[str, str | bytes] | None = None,
        *,
        tests: str = TESTS,
        weights: Mapping[str, float] | None = None,
        solution: Sequence[str] = ("*.py",),
        backend: Backend | None = None,
        limits: Limits | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(backend)
        weights = weights or {"test_add": 3.0, "test_zero": 1.0}
        self._one = Bundle(
            prompt="Repair sums.py.",
            kind="fix",
            solution=tuple(solution),
            given=Snapshot({path: _data(text) for path, text in (given or {"sums.py": BROKEN}).items()}),
            tests=Snapshot({"tests/test_it.py": tests.encode()}),
            names=tuple(HiddenTest(name, "tests/test_it.py", weight) for name, weight in weights.items()),
            oracle=Snapshot({"sums.py": FIXED.encode()}),
            limits=limits or Limits(),
            **settings,
        )
        self._task = TaskSet([Task(id="test/one")])

    def tasks(self) -> TaskSet:
        return self._task

    def read_bundle(self, task: Task) -> Bundle:
        return self._one


def _data(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments)


def write(path: str, content: str) -> ToolCall:
    return call("write", path=path, content=content)


def bash(command: str, timeout: int = 30) -> ToolCall:
    return call("bash", command=command, timeout=timeout)


SUBMIT = call("submit_solution")


async def played(environment: OneTask, *calls: ToolCall) -> tuple[list[StepResult], Desk]:
    episode = await Episode.open_async(environment, "test/one")
    try:
        results = [await episode.step_async(one) for one in calls]
    finally:
        await episode.close_async()
    return results, episode.state


def results(environment: OneTask, *calls: ToolCall) -> list[StepResult]:
    return asyncio.run(played(environment, *calls))[0]


def texts(environment: OneTask, *calls: ToolCall) -> list[str]:
    return [result.observation.text for result in results(environment, *calls)]
