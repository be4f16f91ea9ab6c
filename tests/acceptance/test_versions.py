"""The matrix of versions as a gate: a broken release is caught, a whole one passes, and a change is found where it was made."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.client import start_both
from bench.stacks import Stack, build_stack, find_python, find_stack
from bench.versions import play as playing
from bench.versions.candidates import candidate_stack
from bench.versions.cells import Cell, Outcome
from bench.versions.frames import record_frames
from bench.versions.known import KnownFailure
from bench.versions.latencies import Latencies
from bench.versions.play import play_cell
from tests.miniatures.wheels import repack

pytestmark = pytest.mark.slow

EPISODES = "20"
ROUNDED = {
    "ors/client/session.py": (
        'reward=res["output"]["reward"],',
        'reward=res["output"]["reward"] and round(res["output"]["reward"], 1),',
    )
}
"""One mistake in what the client of a release returns: rewards with one digit."""


def rosetta(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "rosetta", *arguments],
        capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def stack() -> Stack:
    found = find_stack("ors", "ors-sdk-0.1.0")
    build_stack(found)
    return found


def test_a_release_with_one_mistake_is_caught_by_its_promise_and_its_first_step(
    stack: Stack, tmp_path: Path
) -> None:
    wheel = repack(stack, tmp_path, local="rounded", edits=ROUNDED)
    done = rosetta(
        "versions", "--candidate", str(wheel), "--episodes", EPISODES, "--out", str(tmp_path / "out")
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    head, *told = done.stdout.splitlines()
    assert head.startswith("ors-sdk-0.1.0+rounded  Python 3.11  fails  ")
    assert any("differs at step" in line for line in told)
    assert any(line.strip().startswith("reference:") for line in told)
    (cell,) = json.loads((tmp_path / "out" / "versions.json").read_text(encoding="utf-8"))["cells"]
    assert cell["findings"]


def test_the_same_release_without_the_mistake_passes(stack: Stack, tmp_path: Path) -> None:
    wheel = repack(stack, tmp_path, local="whole")
    done = rosetta(
        "versions", "--candidate", str(wheel), "--episodes", EPISODES, "--out", str(tmp_path / "out")
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("ors-sdk-0.1.0+whole  Python 3.11  passes  ")


def test_a_wheel_that_changes_at_its_place_is_played_again(stack: Stack, tmp_path: Path) -> None:
    outcomes = []
    for edits in (None, ROUNDED):
        wheel = repack(stack, tmp_path, local="changing", edits=edits)
        done = rosetta(
            "versions", "--candidate", str(wheel), "--episodes", EPISODES, "--out", str(tmp_path / "out")
        )
        outcomes.append(done.returncode)
    assert outcomes == [0, 1]


def test_known_failures_of_a_cell_are_strict_in_both_directions(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = candidate_stack(str(repack(stack, tmp_path, local="rounded", edits=ROUNDED)), tmp_path)
    whole = candidate_stack(str(repack(stack, tmp_path, local="whole")), tmp_path)

    def played(of: Stack, *promises: str) -> Cell:
        known = tuple(
            KnownFailure(test=f"{of.label}: {one}", kind="upstream", reason="it rounds") for one in promises
        )
        monkeypatch.setattr(playing, "known_failures", lambda _stack: known)
        return asyncio.run(play_cell(of, environment="wordle", episodes=int(EPISODES), seed=0))

    # Each entry stands for all promises that begin so.
    broken_ones = ("wordle", "touchstone", "feature step_reward")
    assert played(broken, *broken_ones).outcome is Outcome.KNOWN
    # One that fails otherwise than was known is a failure, and so is one that does not fail any more.
    otherwise = played(broken, "another promise")
    assert otherwise.outcome is Outcome.FAILS
    assert "another promise" in {one.promise for one in otherwise.findings}
    kept = played(whole, broken_ones[0])
    assert kept.outcome is Outcome.FAILS
    assert "take the entry out" in kept.findings[0].difference


@pytest.mark.parametrize(
    ("framework", "piece", "good", "bad", "true"),
    [
        # What is known of each: NeMo Gym has `/aggregate_metrics` since 0.3.0, GEM `spawn` since 0.1.0. The others are behaviours:
        # OpenEnv serves tasks since 0.4.1, which conformance tries, and rollouts of Verifiers leave for a remote sandbox since 0.3.1,
        # which a probe shows.
        (
            "nemo_gym",
            "symbol:nemo_gym.base_resources_server:AggregateMetricsRequest",
            "0.2.1",
            "0.4.0",
            "0.3.0",
        ),
        ("gem", "symbol:gem.core:Env.spawn", "0.0.3", "0.1.0", "0.1.0"),
        ("openenv", "feature:splits", "0.3.0", "0.10.0", "0.4.1"),
        ("verifiers", "trouble:rollouts_run_elsewhere_unless_told", "0.3.0", "0.4.0", "0.3.1"),
    ],
)
def test_bisection_names_the_release_that_the_notes_name(
    framework: str, piece: str, good: str, bad: str, true: str
) -> None:
    stack = find_stack(framework)
    if find_python(stack.release.python) is None:
        pytest.skip(f"{stack.label} needs Python {stack.release.python}, which is not installed here")
    done = rosetta(
        "bisect", framework, "--piece", piece, "--good", good, "--bad", bad, "--episodes", "1", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["first"]["version"] == true


def test_a_newer_release_is_played_and_what_differs_is_said() -> None:
    # As if 0.0.4 were the newest that is supported.
    done = rosetta("versions", "--newest", "--release", "gem-llm-0.0.4", "--episodes", EPISODES)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "is newer than 0.0.4, the newest supported one, and differs:" in done.stdout
    assert "symbol gem.core:Env.spawn appeared" in done.stdout
    assert "feature snapshot: emulated before, native now" in done.stdout


def test_two_recordings_of_one_release_are_the_same(stack: Stack) -> None:
    async def recorded() -> list[object]:
        async with start_both(stack) as (host, driver):
            return [await record_frames(host, driver) for _ in range(2)]

    first, second = asyncio.run(recorded())
    assert first
    assert first == second


def test_latencies_of_releases_are_ratios_to_the_default(tmp_path: Path) -> None:
    done = rosetta(
        "versions", "gem", "--latency", "--rounds", "6", "--episodes", EPISODES, "--out", str(tmp_path)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    old, new = Latencies.read(tmp_path / "latency.json").releases
    assert (old.stack, old.is_default, new.is_default) == ("gem-llm-0.0.4", False, True)
    assert [(one.phase, one.ratio is not None and one.ratio.pairs) for one in old.phases] == [
        ("connect", 6),
        ("step", 6),
    ]
    assert [one.ratio for one in new.phases] == [None, None]
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "Latency across releases" in text
    assert (tmp_path / "figures" / "latency-releases.svg").is_file()
