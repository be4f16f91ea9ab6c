"""Whoever runs a broken environment is shown the line that is wrong, and the command that looks for more."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from click.testing import CliRunner

from bench.client import start_worker
from bench.conformance import BrokenEnvironmentError, ConformanceResult, run_conformance
from canonical.catalogue import load_environment
from canonical.task import TasksNotInstalledError
from rosetta.__main__ import cli
from rosetta.authorship import pointing_to_author

SOURCE = """
import math
from canonical.environment import Environment
from canonical.reward import Criterion
from canonical.task import Task, TaskSet
from canonical.tool import tool

class Broken(Environment[dict[str, int]]):
    '''Break.'''
    name, max_turns = "broken", 3
    rubric = Criterion("nothing", lambda state: {rubric})
    def tasks(self):
        return TaskSet(Task(id=f"train/{{n}}") for n in range(8)) if {tasks} else None
    def start(self, task, rng):
        return {{"n": {start}}}
    def prompt(self, task, state):
        return "Go."
    def outcome(self, state):
        return {outcome}
    @tool
    def go(self, state) -> str:
        '''Go.'''
        return {tool}
"""
SOUND = {"rubric": "0.0", "tasks": "True", "start": "0", "outcome": "None", "tool": "'gone'"}


class Case(NamedTuple):
    part: str
    code: str
    line: int | None
    words: str


BROKEN = [
    Case("rubric", "math.nan", None, "component 'nothing' of the rubric gave nan"),
    Case("rubric", "1 / 0", 11, "ZeroDivisionError: division by zero"),
    Case("outcome", "'won'", None, "TypeError: outcome returns a Cause or None, not str"),
    Case("outcome", "state['m']", 19, "KeyError: 'm'"),
    Case("start", "1 / 0", 15, "ZeroDivisionError: division by zero"),
    Case("tasks", "1 / 0", 13, "the code of"),
]


def broken(folder: Path, part: str, code: str) -> Path:
    path = folder / "environment.py"
    path.write_text(SOURCE.format(**{**SOUND, part: code}), encoding="utf-8")
    return path


def conform(path: Path) -> ConformanceResult:
    async def run() -> ConformanceResult:
        async with start_worker(Path(sys.executable), "canonical.reference") as worker:
            return await run_conformance(
                worker, worker, source=str(path), episodes=1, seed=0, leak_patience_s=1.0
            )

    return asyncio.run(run())


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: f"{case.part} {case.code}")
def test_a_rollout_shows_the_line_and_names_the_command_that_looks_for_more(
    case: Case, tmp_path: Path
) -> None:
    path = broken(tmp_path, case.part, case.code)
    done = CliRunner().invoke(cli, ["rollout", str(path), "--policy", "random", "-q"], standalone_mode=False)
    said = " ".join(done.output.split()) + str(done.exception)
    assert isinstance(done.exception, click.ClickException)
    assert case.words in said
    assert f"`rosetta check {path}` finds the smallest case" in said
    if case.line is not None:
        assert f"{path}, line {case.line}, in " in said


def test_a_tool_that_raises_ends_no_rollout_and_is_shown_all_the_same(tmp_path: Path) -> None:
    path = broken(tmp_path, "tool", "state['m']")
    done = CliRunner().invoke(cli, ["rollout", str(path), "--policy", "random", "-q"])
    said = " ".join(done.output.split())
    assert done.exit_code == 0
    assert f"{path}, line 23, in go: return state['m'] KeyError: 'm'" in said
    assert f"`rosetta check {path}`" in said


def test_an_environment_without_an_oracle_is_said_to_be_playable_at_random(tmp_path: Path) -> None:
    path = broken(tmp_path, "tool", "'gone'")
    done = CliRunner().invoke(cli, ["rollout", str(path), "-q"], standalone_mode=False)
    assert isinstance(done.exception, click.ClickException)
    assert "no oracle" in str(done.exception)
    assert "--policy random" in str(done.exception)
    assert "rosetta check" not in str(done.exception)


@pytest.mark.parametrize(
    "case", [BROKEN[0], pytest.param(BROKEN[3], marks=pytest.mark.slow)], ids=("rubric", "outcome")
)
def test_conformance_says_that_the_environment_itself_is_broken_and_where(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = broken(tmp_path, case.part, case.code)
    with pytest.raises(
        BrokenEnvironmentError, match=r"fails without any framework: .*scenario .*, task train/\d"
    ) as found:
        conform(path)

    @pointing_to_author
    def verb(environment: str) -> None:
        raise found.value

    with pytest.raises(SystemExit) as left:
        verb(environment=str(path))
    said = " ".join(capsys.readouterr().err.split())
    assert left.value.code == 1
    assert f"`rosetta check {path}`" in said
    if case.line is not None:
        assert f"{path}, line {case.line}, in " in said


@pytest.mark.slow
def test_conformance_passes_a_framework_that_shows_what_a_tool_raised_and_says_what_that_was(
    tmp_path: Path,
) -> None:
    path = broken(tmp_path, "tool", "state['m']")
    result = conform(path)
    assert result.passed
    ((place, count),) = result.raised.items()
    assert place == f"KeyError at {path}, line 23, in go: 'm'"
    assert 0 < count <= result.episodes


def test_tasks_that_are_not_installed_are_no_fault_of_the_environment(tmp_path: Path) -> None:
    @pointing_to_author
    def verb(environment: str) -> None:
        load_environment(environment).tasks()

    path = broken(tmp_path, "tasks", "missing()")
    path.write_text(
        path.read_text(encoding="utf-8")
        + "\nfrom pathlib import Path\nfrom canonical.task import TasksNotInstalledError\n"
        + "def missing(): raise TasksNotInstalledError('some-tasks', Path('tasks.jsonl'))\n",
        encoding="utf-8",
    )
    with pytest.raises(TasksNotInstalledError, match=r"tasks.jsonl: is missing.*install.* some-tasks"):
        verb(environment=str(path))


def test_an_error_of_somebody_else_is_left_as_it_is(tmp_path: Path) -> None:
    @pointing_to_author
    def verb(environment: str) -> None:
        raise LookupError(environment)

    with pytest.raises(LookupError):
        verb(environment=str(broken(tmp_path, "tool", "'gone'")))
