from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from bench.records import Run, samples_table
from bench.samples import Phase, SampleColumns, Status
from bench.stats import TooSmall, cluster_quantile, population, quantile
from reports.measurements import SEED, Measurements, flow

SECOND = 1_000_000_000


def test_interleaved_cells_are_not_mixed_with_cells_measured_alone(whole_run: Run) -> None:
    """Taking turns with another server is another condition; its latencies belong to the comparison alone."""
    measurements = Measurements(whole_run)
    assert [cell.id for point in measurements.single for cell in point.cells] == ["latency-1"]
    assert [cell.id for point in measurements.paired for cell in point.cells] == [
        "pairs-compiled",
        "pairs-baseline",
    ]


def test_repetitions_of_one_point_are_pooled(make_run: Callable[..., Run]) -> None:
    """Two trials at one number of sessions are one population, and both count."""
    run = make_run(ladder=(64, 64, 128))
    (ladder,) = Measurements(run).ladders
    assert [(point.sessions, len(point.cells)) for point in ladder.points] == [(64, 2), (128, 1)]
    assert ladder.points[0].population(Phase.STEP).n == 2 * 64 * 5


def test_the_interval_resamples_trials_as_soon_as_there_are_enough(make_run: Callable[..., Run]) -> None:
    """Operations of one trial are not independent: with 6 trials the trials are the units."""
    run = make_run(ladder=(32,) * 6 + (64,) * 5)
    (ladder,) = Measurements(run).ladders
    six, five = ladder.points
    over_trials, pooled = six.estimate(Phase.STEP, 0.5), five.estimate(Phase.STEP, 0.5)
    assert not isinstance(over_trials, TooSmall)
    assert not isinstance(pooled, TooSmall)
    expected = cluster_quantile(six.trials(Phase.STEP), 0.5, seed=SEED)
    assert not isinstance(expected, TooSmall)
    assert (over_trials.value, over_trials.low, over_trials.high, over_trials.trials) == (
        expected.value,
        expected.low,
        expected.high,
        6,
    )
    ordered = quantile(five.population(Phase.STEP), 0.5)
    assert not isinstance(ordered, TooSmall)
    assert (pooled.value, pooled.low, pooled.high, pooled.trials) == (
        ordered.value,
        ordered.low,
        ordered.high,
        0,
    )


def test_an_interrupted_cell_counts_at_one_session_and_not_at_many(make_run: Callable[..., Run]) -> None:
    """What one session did before Ctrl-C is whole; what many did is a part of them that nobody chose."""
    run = make_run(status="interrupted")
    measurements = Measurements(run)
    assert measurements.single
    assert not measurements.ladders


def held(
    sessions: int, *, turns: int = 5, step_ns: int = SECOND, gap_ns: int = 0, broken: int = 0
) -> SampleColumns:
    """Sessions that start spread over one step, each step exactly as long as said."""
    columns = SampleColumns()
    for session in range(sessions):
        at = session * step_ns // sessions
        for turn in range(turns):
            status = Status.ERROR if session < broken and turn == 1 else Status.OK
            columns.append(
                session,
                turn,
                Phase.STEP,
                False,
                at,
                at,
                step_ns,
                status,
                None if status is Status.OK else "lost",
            )
            if status is not Status.OK:
                break
            at += step_ns + gap_ns
    return columns


@pytest.mark.parametrize("sessions", [1, 3, 64])
@pytest.mark.parametrize("turns", [3, 5, 20])
def test_the_steady_rate_is_the_known_one(sessions: int, turns: int) -> None:
    """Sessions that always play make one step per step time each, wherever the window cuts them."""
    found = flow(samples_table(held(sessions, turns=turns)))
    assert found is not None
    assert found.steps_per_s == pytest.approx(sessions, rel=1e-6)
    assert found.mean_step_ns == pytest.approx(SECOND)


def test_pauses_that_nobody_asked_for_show_as_missing_sessions() -> None:
    """A generator that idles between steps holds fewer sessions in the system than it opened."""
    found = flow(samples_table(held(50, turns=10, gap_ns=SECOND)))
    assert found is not None
    assert found.steps_per_s * found.mean_step_ns / SECOND == pytest.approx(25, rel=0.05)


def test_sessions_that_failed_are_left_out_of_the_flow_and_counted() -> None:
    """A session that broke off early must not shrink the window of all the others."""
    found = flow(samples_table(held(50, broken=7)))
    assert found is not None
    assert found.left_out == 7
    assert found.steps_per_s == pytest.approx(43, rel=0.02)


def test_there_is_no_rate_where_sessions_never_play_together() -> None:
    """A burst whose first session is done before the last begins has no steady part."""
    columns = SampleColumns()
    for session in range(10):
        columns.append(session, 0, Phase.STEP, False, session * 2 * SECOND, session * 2 * SECOND, SECOND)
    assert flow(samples_table(columns)) is None


def test_no_steps_give_no_flow() -> None:
    """A cell in which nobody came to a step says nothing about throughput."""
    columns = SampleColumns()
    columns.append(0, 0, Phase.CONNECT, False, 0, 0, 5, Status.ERROR, "refused")
    assert flow(samples_table(columns)) is None


def test_points_answer_with_the_samples_of_the_records(whole_run: Run) -> None:
    """No population is made of anything but the file of samples."""
    measurements = Measurements(whole_run)
    (point,) = measurements.single
    for phase in point.phases:
        expected = population(whole_run.samples("latency-1"), phase)
        assert np.array_equal(point.population(phase).ok, expected.ok)
        assert point.population(phase).failures == expected.failures
