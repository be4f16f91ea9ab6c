"""Each everyday release of every framework conforms, and every framework can be measured. Stacks are built as needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.records import Ceiling, Conformance, Cost, End, Live, Ratio, read_run
from bench.stacks import Stack, all_stacks, build_stack, find_python
from canonical.catalogue import environment_names

STACKS = all_stacks()
DEFAULTS = [stack for stack in STACKS if stack.release.default]
AT_ONCE = {"gem", "openenv"}


def rosetta(*arguments: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "rosetta", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def ready(stack: Stack) -> None:
    if find_python(stack.release.python) is None:
        pytest.skip(f"{stack.label} needs Python {stack.release.python}, which is not installed here")
    build_stack(stack)


@pytest.mark.parametrize(
    ("stack", "environment", "episodes"),
    [
        *((stack, "wordle", 200) for stack in STACKS),
        # Where actions need a sandbox, an episode takes a hundred times as long: default releases, and the scenarios alone;
        # of these a server and one in process at once, the others when they are asked for.
        *(
            pytest.param(stack, name, 20, marks=() if stack.adapter in AT_ONCE else pytest.mark.slow)
            for stack in DEFAULTS
            for name in environment_names()
            if name != "wordle"
        ),
    ],
    ids=lambda value: getattr(value, "label", str(value)),
)
def test_every_release_shows_what_the_reference_shows(stack: Stack, environment: str, episodes: int) -> None:
    ready(stack)
    done = rosetta(
        "conformance",
        stack.adapter,
        "--release",
        stack.label,
        "--environment",
        environment,
        "--episodes",
        str(episodes),
        "--json",
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(done.stdout)
    assert [result["stack"] for result in results] == [one.label for one in stack.per_target()]
    kept = json.loads(stack.features_file.read_text(encoding="utf-8"))
    for result in results:
        assert result["divergences"] == []
        assert result["episodes"] >= episodes
        shown = {p["feature"]: {"level": p["level"], "note": p["note"]} for p in result["features"]}
        declared = {
            name: {"level": one["level"], "note": one["note"]} for name, one in kept[result["stack"]].items()
        }
        assert declared == shown, "renew it with 'rosetta conformance --all --keep-features'"


def test_wordle_is_certified_with_one_digest_of_what_every_framework_showed(tmp_path: Path) -> None:
    stacks = [stack for stack in DEFAULTS if find_python(stack.release.python) is not None]
    arguments = [argument for stack in stacks for argument in ("--framework", stack.adapter)]
    done = rosetta(
        "certify",
        "wordle",
        *arguments,
        "--release",
        "default",
        "--build",
        "--out",
        str(tmp_path),
        "--json",
        timeout=3600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    value = json.loads(done.stdout)
    digests = {proof["digest"] for proof in (value["reference"], *value["frameworks"])}
    assert digests == {value["golden"]["digest"]}
    assert {proof["title"] for proof in value["frameworks"]} == {stack.facts.title for stack in stacks}


@pytest.mark.parametrize("stack", DEFAULTS, ids=lambda stack: stack.label)
def test_every_framework_can_be_measured_and_reported(stack: Stack, tmp_path: Path) -> None:
    ready(stack)
    folder = tmp_path / "run"
    done = rosetta("bench", stack.adapter, "--plan", "smoke", "--out", str(folder), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    run = read_run(folder)
    assert not run.partial
    assert [record.status for record in run.of(Conformance)] == ["passed"]
    assert {record.status for record in run.of(End)} == {"ok"}
    searched = {"slo", "success_only"} if stack.facts.kind == "server" else set()
    assert {record.criterion for record in run.of(Ceiling)} == searched
    assert {record.name for record in run.of(Cost)} >= {"episode_step_overhead", "live_episode_bytes"}
    alive = run.of(Live)
    assert bool(alive) == (stack.facts.kind == "in_process")
    assert [record.first_wrong for record in alive if record.wrong] == []
    compared = {record.name for record in run.of(Ratio)}
    assert compared >= {f"compiled/baseline {phase}" for phase in ("connect", "reset", "step")}
    assert Path(result["report"]).read_text(encoding="utf-8").lower().startswith("<!doctype html>")
    assert len(result["summary"]) == 10
