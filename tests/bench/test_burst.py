"""How many sessions of a burst were open together, by Little's law."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.burst import _concurrency
from bench.plan import BURST_SIZES, PLANS
from bench.records import samples_table
from bench.samples import Phase, SampleColumns, Status
from rosetta.frameworks import _with_method

MS = 1_000_000
SECOND = 1_000 * MS


def burst(sessions: list[tuple[int, int]], *, lost: int = 0) -> SampleColumns:
    """Sessions that are open from one time to another, and some that were never let in, all asked for at 0."""
    columns = SampleColumns()
    for number, (opened, left) in enumerate(sessions):
        columns.append(number, 0, Phase.CONNECT, False, 0, 0, opened)
        columns.append(number, 1, Phase.CLOSE, False, left - 1, left - 1, 1)
    for number in range(len(sessions), len(sessions) + lost):
        columns.append(number, 0, Phase.CONNECT, False, 0, 0, 1, Status.ERROR, "refused")
    return columns


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.integers(1, 10 * SECOND), st.integers(1, 5 * SECOND)), min_size=1, max_size=20),
    st.integers(0, 5),
)
def test_the_mean_is_the_integral_of_who_was_open_over_the_duration(
    stays: list[tuple[int, int]], lost: int
) -> None:
    sessions = [(opened, opened + stay) for opened, stay in stays]
    wall_s, mean = _concurrency(samples_table(burst(sessions, lost=lost)))
    end = max(left for _, left in sessions)
    edges = sorted({0, end, *(edge for session in sessions for edge in session)})
    area = sum(
        (later - earlier) * sum(opened <= earlier < left for opened, left in sessions)
        for earlier, later in itertools.pairwise(edges)
    )
    assert wall_s == end / SECOND
    assert abs(mean - area / end) < 1e-6 * max(1.0, mean)


def test_sessions_that_queue_at_the_client_are_a_large_burst_and_few_at_a_time() -> None:
    """1,000 sessions, of which each is let in when the one before it has left: never more than one is open."""
    wall_s, mean = _concurrency(
        samples_table(burst([(number * 10 * MS + MS, (number + 1) * 10 * MS) for number in range(1_000)]))
    )
    assert wall_s == 10.0
    assert 0.89 < mean < 0.91


def test_nothing_that_was_measured_is_no_concurrency() -> None:
    assert _concurrency(samples_table(SampleColumns())) == (0.0, 0.0)


def test_the_published_method_has_a_tool_of_one_second_unless_another_is_asked_for_and_its_own_grid() -> None:
    plan = PLANS["quick"]
    published = _with_method(plan, "openenv-scaling", None)
    assert published.held.tool_ns == SECOND
    assert published.burst == tuple(size for size in BURST_SIZES if size <= plan.cap)
    assert published.burst_trials == 3
    assert _with_method(plan, "openenv-scaling", 0.5).held == plan.held
    assert _with_method(plan.model_copy(update={"cap": 20}), "openenv-scaling", None).burst == (20,)
    assert _with_method(plan, "held", None) == plan
