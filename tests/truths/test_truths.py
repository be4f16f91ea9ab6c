"""Servers that fail in known ways, on the real path: the verdict on each is the one that is known to be true."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from bench.ceiling import cause
from bench.client import start_worker
from bench.crosscheck import compare_engines, cross_check
from bench.held import search_ceiling
from bench.probe import probe_width
from bench.protocol import Observed
from bench.records import Burst, CrossCheck, End, Probe, Verdict
from bench.session import connect_session, serve
from bench.stats import Quantile, littles_law, ratio
from tests.truths import run as command
from tests.truths.truths import (
    ENVIRONMENT,
    TRUTHS,
    Miniature,
    Truth,
    failed_by,
    judge,
    leaves_out_one,
    measure,
    same_twice,
    stall,
)


@pytest.mark.slow
@pytest.mark.parametrize("truth", TRUTHS, ids=lambda truth: f"{truth.kind}-{truth.stopped_by}")
def test_what_is_known_to_be_wrong_with_a_server_is_what_the_verdict_says(
    truth: Truth, tmp_path: Path
) -> None:
    run, found = judge(truth, tmp_path)
    assert found.stopped_by == (truth.stopped_by or "nothing")
    if truth.fails is None:
        assert found.failed == ()
        assert found.errors == {}
    else:
        assert truth.fails in found.failed
    assert found.as_expected, found
    assert not run.partial


@pytest.mark.slow
def test_a_stall_shows_by_response_time_and_hides_from_service_time(tmp_path: Path) -> None:
    """Coordinated omission: whoever waits for the answer before it sends on asks nothing while a server stands still."""
    seen = stall(tmp_path / "run")
    assert failed_by(seen.by_response) == ("step_p99",)
    assert cause(seen.by_response) == "step_p99"
    assert seen.by_service.passed
    (burst,) = seen.run.of(Burst)
    assert burst.passed
    end = seen.run.end("open-00008-00")
    assert isinstance(end, End)
    assert (end.opened, end.succeeded) == (8, 8)
    table = seen.run.samples("open-00008-00")
    intended, start = table["intended_ns"].to_numpy(), table["start_ns"].to_numpy()
    assert (intended <= start).all()
    # Every session's steps are meant at one pace from its arrival on, whatever became of those before.
    of_first = table.filter(
        (table["session"].to_numpy() == 0) & (np.array(table["phase"].to_pylist()) == "step")
    )
    assert set(np.diff(of_first["intended_ns"].to_numpy()).tolist()) <= {25_000_000}


@pytest.mark.slow
def test_without_a_stall_both_clocks_agree_and_littles_law_holds(tmp_path: Path) -> None:
    seen = stall(tmp_path / "run", "Honest")
    assert seen.by_response.passed
    assert seen.by_service.passed
    end = seen.run.end("open-00008-00")
    assert isinstance(end, End)
    assert end.mean_open is not None
    table = seen.run.samples("open-00008-00")
    done = table["start_ns"].to_numpy() + table["ns"].to_numpy()
    phase, session = np.array(table["phase"].to_pylist()), table["session"].to_numpy()
    inside = [
        done[(session == number) & (phase == "close")][0]
        - done[(session == number) & (phase == "connect")][0]
        for number in range(8)
    ]
    wall_s = float(done.max() - table["intended_ns"].to_numpy().min()) / 1e9
    assert littles_law(8 / wall_s, float(np.mean(inside)) / 1e9, end.mean_open).agrees


@pytest.mark.slow
def test_a_server_that_is_compared_with_itself_shows_no_difference(tmp_path: Path) -> None:
    """A difference that is there is shown again by a second run; what a busy machine shows once, at 99.9 %, is not."""
    shown = []
    for name in ("first", "second"):
        ratios = same_twice(tmp_path / name)
        assert [ratio.name.split()[-1] for ratio in ratios] == ["connect", "reset", "step"]
        shown.append({(ratio.name, ratio.ratio > 1) for ratio in ratios if leaves_out_one(ratio)})
        if not shown[-1]:
            break
    assert set.intersection(*shown) == set()


def test_a_comparison_of_the_same_shows_a_difference_as_rarely_as_its_interval_says() -> None:
    """400 seeded A/A runs of 30 pairs on a machine that drifts: 5 % of the intervals may leave out 1."""
    rng = np.random.default_rng(5)
    shown = 0
    for _ in range(400):
        drift = np.exp(np.cumsum(rng.normal(0, 0.2, 30)))
        first, second = (drift * np.exp(rng.normal(0, 0.1, 30)) for _ in range(2))
        found = ratio(first, second, seed=1, resamples=1_000)
        shown += found.difference_shown
    assert 8 <= shown <= 34


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "width"), [("Honest", 1), ("ThreeThreads", 3)])
def test_the_probe_names_the_width_of_the_executor(kind: str, width: int, tmp_path: Path) -> None:
    """A server that steps on its event loop carries out one blocking step at a time, one with three threads three."""
    run, _ = measure(kind, tmp_path / "run", probe_width, probe=16)
    (probe,) = run.of(Probe)
    assert probe.width == width
    assert probe.points[-1] == (probe.most, width)


@pytest.mark.slow
def test_both_engines_measure_the_same_step_at_one_point(tmp_path: Path) -> None:
    run, _ = measure(
        "Honest",
        tmp_path / "run",
        lambda recording: search_ceiling(recording, cross_check),
        cross_check=8,
        cap=8,
        start=8,
    )
    (found,) = run.of(CrossCheck)
    assert found.agrees
    assert (found.locust_n, found.client_n) == (16, 16)
    assert run.cell("cross-client").engine == "client"
    assert run.cell("cross-locust").engine == "locust"
    assert [verdict.cell for verdict in run.of(Verdict)] == ["held-00008-00"]


def test_engines_disagree_when_their_medians_and_their_intervals_lie_apart() -> None:
    def median(value: float, half: float) -> Quantile:
        return Quantile(0.5, value, value - half, value + half, 100, 0, 0.95)

    assert compare_engines(8, median(1e9, 1e6), median(1.04e9, 1e6)).agrees
    assert compare_engines(8, median(1e6, 2e5), median(1.3e6, 2e5)).agrees
    assert not compare_engines(8, median(1e6, 1e4), median(1.3e6, 1e4)).agrees


def test_the_published_page_is_of_these_truths_and_all_of_them_came_out() -> None:
    findings = command.read_findings()
    assert (command.PUBLISHED / "README.md").read_text(encoding="utf-8") == command.render(findings)
    assert [one.does for one in findings[: len(TRUTHS)]] == [truth.does for truth in TRUTHS]
    assert [one.kind for one in findings[len(TRUTHS) :]] == [command.STALLS, command.TWICE]
    assert all(one.as_expected for one in findings)


@pytest.mark.slow
def test_the_servers_own_count_sees_sessions_that_come_and_go_between_two_readings() -> None:
    stack = Miniature("Honest")

    async def visit() -> tuple[Observed, Observed]:
        async with start_worker(stack.python, stack.worker) as worker:
            serving = await serve(worker, ENVIRONMENT)
            await worker.observe()
            async with connect_session(worker, ENVIRONMENT, url=serving.url) as session:
                await session.open("train/000", 0)
                # Longer than a tick.
                await asyncio.sleep(0.2)
            await asyncio.sleep(0.2)
            return await worker.observe(), await worker.observe()

    first, second = asyncio.run(visit())
    assert (first.open_sessions, first.most_sessions) == (0, 1)
    assert (second.open_sessions, second.most_sessions) == (0, 0)
