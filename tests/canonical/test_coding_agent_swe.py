"""Rows of the SWE-bench kind: repositories from git, tests under pytest, and what a forged result is worth."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from canonical.bundle import Bundle
from canonical.environments.coding_agent.swe import RepositoryAgent
from canonical.episode import Episode
from canonical.grading.repository import is_test_file
from canonical.step import Cause, StepResult
from canonical.task import TaskLoadError
from canonical.tool import ToolCall
from tests.canonical.coding import SUBMIT, bash, call, write

BASE = {
    "shapes/__init__.py": "",
    "shapes/area.py": "def square(a):\n    return a + a\n\n\ndef old():\n    return 1\n",
    "shapes/legacy.py": "x = 1\n",
    "tests/test_area.py": "import pytest\nfrom shapes.area import old\n\n\n@pytest.mark.parametrize('n', [1, 2])\ndef test_old(n):\n    assert old() == 1\n",
    "conftest.py": "",
    "pyproject.toml": "[tool.pytest.ini_options]\ntestpaths = ['tests']\n",
}
AFTER = {
    "shapes/area.py": BASE["shapes/area.py"].replace("a + a", "a * a"),
    "shapes/legacy.py": None,
    "shapes/new.py": "y = 2\n",
}
TESTED = {
    "tests/test_square.py": "import unittest\nfrom shapes.area import square\n\n\nclass TestSquare(unittest.TestCase):\n    def test_three(self):\n        self.assertEqual(square(3), 9)\n        return\n"
}


def git(folder: Path, *arguments: str) -> str:
    names = dict.fromkeys(
        ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"), "x"
    )
    environment = {**os.environ, **names, "GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout


def put(folder: Path, files: dict[str, Any]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).unlink(missing_ok=True)
        if text is not None:
            (folder / name).write_text(text)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, Any]]:
    root = tmp_path_factory.mktemp("swe")
    repository = root / "repositories" / "some__shapes"
    repository.mkdir(parents=True)
    git(repository, "init", "-q")
    put(repository, BASE)
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "base")
    commit = git(repository, "rev-parse", "HEAD").strip()
    patches = {}
    for key, files in (("patch", AFTER), ("test_patch", TESTED)):
        put(repository, files)
        git(repository, "add", "-A")
        patches[key] = git(repository, "diff", "--cached", "HEAD")
        git(repository, "reset", "-q", "--hard", "HEAD")
    row = {
        "instance_id": "some__shapes-1",
        "repo": "some/shapes",
        "base_commit": commit,
        "problem_statement": "The area of a square is wrong.",
        "FAIL_TO_PASS": json.dumps(["tests/test_square.py::TestSquare::test_three"]),
        "PASS_TO_PASS": ["tests/test_area.py::test_old[1]", "tests/test_area.py::test_old[2]"],
        **patches,
    }
    path = root / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n")
    return path, root / "repositories", row


def agent_of(rows_file: Path, folder: Path) -> RepositoryAgent:
    class Agent(RepositoryAgent):
        rows = rows_file
        repositories = folder

    return Agent()


def last(agent: RepositoryAgent, *calls: ToolCall) -> StepResult:
    async def play() -> StepResult:
        episode = await Episode.open_async(agent, "test/some__shapes-1")
        try:
            for one in calls:
                result = await episode.step_async(one)
            return result
        finally:
            await episode.close_async()

    return asyncio.run(play())


def test_a_row_becomes_a_repository_with_hidden_tests(rows: tuple[Path, Path, dict[str, Any]]) -> None:
    agent = agent_of(rows[0], rows[1])
    task = agent.tasks().get("test/some__shapes-1")
    bundle: Bundle = agent.bundle(task)
    assert set(bundle.given.files) == set(BASE)
    assert set(bundle.tests.files) == {"tests/test_square.py"}
    assert set(bundle.oracle.files) == {"shapes/area.py", "shapes/new.py"}
    assert bundle.removed == ("shapes/legacy.py",)
    assert "test_three" not in json.dumps(dict(task.inputs))
    calls = list(agent.oracle(task))
    assert calls[-2:] == [ToolCall("bash", {"command": "rm -- shapes/legacy.py"}), SUBMIT]


@pytest.mark.slow
def test_the_oracle_resolves_it_and_nothing_less_does(rows: tuple[Path, Path, dict[str, Any]]) -> None:
    agent = agent_of(rows[0], rows[1])
    solved = last(agent, *agent.oracle(agent.tasks().get("test/some__shapes-1")))
    assert (solved.total, solved.cause) == (1.0, Cause.SUBMITTED)
    untouched = last(agent, SUBMIT)
    assert untouched.total == 0.0
    assert "passed  tests/test_area.py::test_old[1]" in untouched.observation.text
    assert "failed  tests/test_square.py" in untouched.observation.text
    broken = last(agent, write("shapes/area.py", "def square(a):\n    return a * a\n"), SUBMIT)
    assert broken.total == 0.0


FORGED = {
    "patches the reports": "import _pytest.reports as r\nr.TestReport.outcome = property(lambda s: 'passed', lambda s, v: None)",
    "patches how functions run": "import _pytest.python as p\np.Function.runtest = lambda self: None",
    "patches the plugin": "import gc\nfor o in gc.get_objects():\n    if type(o).__name__ == 'Outcomes': type(o).pytest_runtest_logreport = lambda s, report: s.passed.__setitem__(report.nodeid, True)",
    "leaves in silence": "import os\nos._exit(0)",
    "writes results to every descriptor": "import os, json, sys\nids = ['tests/test_square.py::TestSquare::test_three', 'tests/test_area.py::test_old[1]', 'tests/test_area.py::test_old[2]']\nfor fd in range(3, 64):\n    try: os.write(fd, json.dumps(dict.fromkeys(ids, True)).encode())\n    except OSError: pass\nos._exit(0)",
    "overwrites the tests": "import pathlib\nfor p in pathlib.Path('tests').glob('test_*.py'): p.write_text(p.read_text().replace('assert', '0 and'))",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", FORGED)
def test_a_forged_result_is_worth_nothing(rows: tuple[Path, Path, dict[str, Any]], name: str) -> None:
    code = FORGED[name] + "\n\ndef square(a):\n    return 0\n\n\ndef old():\n    return 1\n"
    assert last(agent_of(rows[0], rows[1]), write("shapes/area.py", code), SUBMIT).total == 0.0


@pytest.mark.slow
def test_what_an_agent_does_to_tests_and_settings_is_not_graded(
    rows: tuple[Path, Path, dict[str, Any]],
) -> None:
    result = last(
        agent_of(rows[0], rows[1]),
        write("conftest.py", "def pytest_runtest_call(item): item.obj = lambda *a: None\n"),
        write("tests/conftest.py", "import os\nos._exit(0)\n"),
        write("pyproject.toml", "[tool.pytest.ini_options]\naddopts = '--collect-only'\n"),
        write("pytest.ini", "[pytest]\naddopts = --collect-only\n"),
        write("pytest.py", "import os\nos._exit(0)\n"),
        bash("rm -r tests && mkdir tests && echo 'def test_old(): pass' > tests/test_area.py"),
        write("shapes/area.py", str(AFTER["shapes/area.py"])),
        SUBMIT,
    )
    assert result.total == 1.0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"repo": "../x"}, "owner/name"),
        ({"base_commit": "--help"}, "not the hash of a commit"),
        ({"patch": ""}, "needs a text 'patch'"),
        ({"FAIL_TO_PASS": "x"}, "'FAIL_TO_PASS' must be a list"),
        ({"FAIL_TO_PASS": []}, "names no test"),
        ({"PASS_TO_PASS": None}, "'PASS_TO_PASS' must be a list"),
    ],
)
def test_a_bad_row_is_told_with_line_and_reason(
    rows: tuple[Path, Path, dict[str, Any]], tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({**rows[2], **change}))
    with pytest.raises(TaskLoadError, match=reason) as caught:
        agent_of(path, rows[1]).tasks()
    assert caught.value.line == 1


def test_a_missing_repository_or_commit_is_told(
    rows: tuple[Path, Path, dict[str, Any]], tmp_path: Path
) -> None:
    agent = agent_of(rows[0], tmp_path)
    with pytest.raises(TaskLoadError, match="must be a git repository"):
        agent.bundle(agent.tasks().get("test/some__shapes-1"))
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({**rows[2], "base_commit": "0" * 40}))
    agent = agent_of(path, rows[1])
    with pytest.raises(TaskLoadError, match="git archive failed"):
        agent.bundle(agent.tasks().get("test/some__shapes-1"))


def test_which_files_are_the_tests() -> None:
    assert all(
        map(
            is_test_file,
            ["tests/a.txt", "a/testing/b.py", "test_a.py", "a/b_test.py", "pyproject.toml", "setup.py"],
        )
    )
    assert not any(map(is_test_file, ["src/latest/a.py", "contest.py", "testament.txt"]))


@pytest.mark.slow
def test_tools_work_in_a_repository(rows: tuple[Path, Path, dict[str, Any]]) -> None:
    shown = last(agent_of(rows[0], rows[1]), call("grep", pattern="square"))
    assert shown.observation.text == "shapes/area.py:1:def square(a):"
