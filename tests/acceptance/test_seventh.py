"""A seventh framework takes one folder: in a copy of the project, nothing but that folder is added, and everything works.

A second one beside it, of two small files, puts the framework under the suite of what every adapter promises.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from canonical.adapter import Feature

ROOT = Path(__file__).resolve().parents[2]
SEVENTH = ROOT / "tests" / "seventh"


def run(copy: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the copy, whose modules come before those of the installed project."""
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    return subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, text=True, timeout=900, check=False
    )


def python(copy: Path, *arguments: str) -> str:
    done = run(copy, sys.executable, "-P", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def git(copy: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false")
    done = run(copy, "git", *identity, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a copy of the project, as a repository of its own, to which the folders were added."""
    target = tmp_path_factory.mktemp("seventh") / "project"
    for name in git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    git(target, "init", "--quiet")
    git(target, "add", "--all")
    git(target, "commit", "--quiet", "--message", "everything but the seventh framework")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SEVENTH / "gymnasium", target / "adapters" / "gymnasium", ignore=ignored)
    shutil.copytree(SEVENTH / "stacks", target / "tests" / "stacks" / "gymnasium", ignore=ignored)
    python(target, "-m", "rosetta", "stack", "build", "gymnasium", "--quiet")
    yield target
    # Whatever was done until here, by these tests or by what they started, nothing else was touched.
    changed = git(target, "status", "--porcelain", "--untracked-files=all").splitlines()
    assert changed
    ours = ("?? adapters/gymnasium/", "?? tests/stacks/gymnasium/")
    assert [line for line in changed if not line.startswith(ours)] == []


def test_the_doctor_knows_it(copy: Path) -> None:
    rows = json.loads(python(copy, "-m", "rosetta", "doctor", "--json"))["stacks"]
    (row,) = (row for row in rows if row["framework"] == "Gymnasium")
    assert (row["stack"], row["state"]) == ("gymnasium-1.4.0", "ready")


def test_nox_has_its_sessions_and_holds_it_to_what_every_adapter_promises(copy: Path) -> None:
    listed = python(copy, "-m", "nox", "--list")
    for name in ("bench-gymnasium", "conformance-gymnasium", "stack-gymnasium-1.4.0"):
        assert f"\n- {name} " in listed
    told = python(copy, "-m", "nox", "--session", "stack-gymnasium-1.4.0")
    assert re.search(r"\d\d passed", told)


def test_it_conforms_and_every_declared_feature_is_proven(copy: Path) -> None:
    (result,) = json.loads(
        python(copy, "-m", "rosetta", "conformance", "gymnasium", "--episodes", "60", "--json")
    )
    assert result["divergences"] == []
    assert result["episodes"] >= 60
    assert result["not_compared"] == [Feature.IMAGES, Feature.REWARD_COMPONENTS]
    assert {proof["feature"] for proof in result["features"]} == set(Feature)
    assert {proof["feature"] for proof in result["features"] if not proof["works"]} == {
        Feature.IMAGES, Feature.REWARD_COMPONENTS, Feature.REMOTE, Feature.SNAPSHOT,
    }  # fmt: skip


def test_it_is_measured_and_reported(copy: Path, tmp_path: Path) -> None:
    arguments = ("bench", "gymnasium", "--plan", "smoke", "--out", str(tmp_path / "run"), "--json")
    result = json.loads(python(copy, "-m", "rosetta", *arguments))
    assert "wordle 1 under gymnasium" in "\n".join(result["summary"])
    assert Path(result["report"]).is_file()


def test_the_rules_of_the_project_hold_for_it(copy: Path) -> None:
    python(copy, "-m", "pytest", "tests/architecture", "-q", "-n", "0", "-p", "no:cacheprovider")
    python(copy, "-m", "ruff", "check", "adapters/gymnasium")
    python(copy, "-m", "ruff", "format", "--check", "adapters/gymnasium")
    done = run(copy, str(Path(sys.executable).with_name("lint-imports")))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "adapters do not know each other KEPT" in done.stdout


def test_its_generated_table_is_not_stale(copy: Path) -> None:
    assert python(copy, "-m", "reports.generated") == ""
