"""The workflows are YAML that says what it seems to say: jobs that exist, sessions that exist, a job for each release."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.stacks import all_stacks, library_stacks

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))
SESSION = re.compile(r"\./nox -s ([\w-]+)")


def read(path: Path) -> dict[Any, Any]:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def sessions() -> set[str]:
    """Return the sessions that noxfile.py names by themselves; those of frameworks are made from folders."""
    names = set()
    for node in ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and "session" in ast.unparse(decorator.func):
                    given = {word.arg: word.value for word in decorator.keywords}
                    name = given.get("name")
                    names.add(name.value if isinstance(name, ast.Constant) else node.name)
    return names


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_triggers_rights_and_jobs_that_run(path: Path) -> None:
    workflow = read(path)
    # YAML 1.1 reads the key `on` as true.
    assert workflow[True]
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["runs-on"]
        assert all(("run" in step) != ("uses" in step) for step in job["steps"])
        needed = job.get("needs", [])
        assert set([needed] if isinstance(needed, str) else needed) <= set(workflow["jobs"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_sessions_that_a_workflow_names_exist(path: Path) -> None:
    named = set(SESSION.findall(path.read_text(encoding="utf-8")))
    assert named <= sessions()


def test_releases_are_played_weekly_and_on_change_each_in_a_job_of_its_own_and_shown_as_one_matrix() -> None:
    workflow = read(ROOT / ".github" / "workflows" / "versions.yml")
    jobs = workflow["jobs"]
    assert {"schedule", "pull_request"} <= set(workflow[True])
    assert "adapters/**" in workflow[True]["pull_request"]["paths"]
    assert jobs["cell"]["strategy"]["matrix"]["session"] == "${{ fromJson(needs.list.outputs.cells) }}"
    assert any("--list --json" in step.get("run", "") for step in jobs["list"]["steps"])
    assert any("--join" in step.get("run", "") for step in jobs["matrix"]["steps"])
    assert any("GITHUB_STEP_SUMMARY" in step.get("run", "") for step in jobs["matrix"]["steps"])
    assert any("versions-newest" in step.get("run", "") for step in jobs["canary"]["steps"])


def listed(tag: str = "") -> set[str]:
    arguments = ["-t", tag] if tag else []
    done = subprocess.run(
        [sys.executable, "-P", "-m", "nox", "--list", "--json", *arguments],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {one["session"] for one in json.loads(done.stdout) if not tag or tag in one["tags"]}


def test_nox_lists_what_the_workflows_ask_it_for() -> None:
    stacks = all_stacks(supported=True)
    assert listed("versions") == {f"versions-{one.release.label}" for one in stacks}
    tested = [*(one for one in stacks if not one.release.matrix_only), *library_stacks()]
    assert listed("stacks") == {f"stack-{one.release.label}" for one in tested}
    assert {one.partition("-")[0] for one in listed()} == {"lint", "typing", "tests"}
    said = "".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)
    assert set(re.findall(r"--list --json ?([^>]*?) ?>", said)) == {"", "-t versions", "-t stacks"}
