"""The planner's arithmetic: exact on costs that are known, and monotone in everything that is asked for."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.calibration import stages_of, workload_of
from bench.planner import (
    CHECK_TURNS,
    CeilingCheck,
    CostModel,
    EpisodeModel,
    Impossible,
    Node,
    NotEnough,
    Observation,
    fit,
    middles,
    plan_capacity,
)
from bench.records import Prediction, RunWriter, UnknownCell
from tests.reports.conftest import header

COST = CostModel(
    source="synthetic",
    second_s=0.1,
    session_s=0.001,
    step_s=0.000125,
    memory_base=100 * 2**20,
    memory_session=64 * 2**10,
    fds_base=10,
    fds_session=1,
    threads_base=1,
    threads_session=1,
    largest=1000,
    cells=4,
)
EPISODE = EpisodeModel(turns=8, think_s=19, tool_s=1)
NODE = Node(cores=4, memory_bytes=16 * 2**30, nofile=100_000, pids=None)
parts = st.floats(1e-6, 1e-1)


def observed(sessions, turns, *, second=0.1, session=0.001, step=0.000125, wall=5.0):
    return Observation(
        cell=f"held-{sessions}-{turns}",
        sessions=sessions,
        turns=turns,
        wall_s=wall,
        cpu_s=second * wall + sessions * (session + turns * step),
        memory_before=100 * 2**20,
        memory_peak=100 * 2**20 + sessions * 64 * 2**10,
        fds_before=10,
        fds_peak=10 + sessions,
        threads_before=1,
        threads_peak=1 + sessions,
    )


def lines(plan):
    return {line.name: line.value for line in plan.lines}


def test_a_plan_is_the_arithmetic_that_it_prints():
    plan = plan_capacity(20_000, EPISODE, COST, NODE, utilisation=0.6)
    # An episode costs 1 + 8 x 0.125 = 2 ms in 160 s, so half a core carries 0.5 / 12.5e-6 sessions.
    assert (plan.per_replica, plan.bound_by) == (40_000, "cpu")
    assert (plan.replicas, plan.nodes) == (1, 1)
    values = lines(plan)
    assert values["CPU of an episode"] == pytest.approx(2.0)
    assert values["CPU of a replica"] == pytest.approx(0.1 + 20_000 * 0.002 / 160)
    assert values["memory of a replica"] == 100 + 20_000 / 16
    assert values["descriptors of a replica"] == 20_010
    assert values["tools that work at once on a replica"] == 1_000
    assert values["steps per second, all replicas"] == 1_000
    assert values["opening all sessions takes at least"] == pytest.approx(20)
    # 1.5 x 1 s + 0.1 s may pass, and 19 s are thought: 20.6 s, of which an idle server takes a tenth, for 0.125 ms each.
    assert values["sessions at which steps of a replica become too slow"] == 148_320
    assert plan.settings == {
        "max_sessions": 25_000,
        "nofile": 25_210,
        "tools_in_flight": 1_250,
        "idle_timeout_s": 100,
    }
    assert plan.proxy["max_connections_per_replica"] == 25_000
    assert plan.proxy["nofile"] == 40_200


@pytest.mark.parametrize(
    ("changed", "bound_by", "per_replica"),
    [
        ({"nofile": 1_210}, "descriptors", 1_000),
        ({"memory_bytes": 4 * (100 * 2**20 + 1_000 * 64 * 2**10), "cores": 4}, "memory", None),
        ({"pids": 4 * 501}, "threads", 500),
    ],
)
def test_what_is_scarce_bounds_a_replica(changed, bound_by, per_replica):
    node = NODE.model_copy(update=changed)
    plan = plan_capacity(10_000, EPISODE, COST, node, memory_share=1.0)
    assert plan.bound_by == bound_by
    assert plan.per_replica == (per_replica or 1_000)
    assert plan.replicas == math.ceil(10_000 / plan.per_replica)
    assert plan.nodes == math.ceil(plan.replicas / 4)


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_more_sessions_never_need_less(one, other):
    fewer, more = (plan_capacity(number, EPISODE, COST, NODE) for number in sorted((one, other)))
    assert fewer.replicas <= more.replicas
    assert fewer.nodes <= more.nodes
    assert fewer.proxy["nofile"] <= more.proxy["nofile"]


@given(st.integers(1, 10**5), st.floats(0.1, 60), st.floats(0.1, 60))
def test_a_policy_that_thinks_longer_never_needs_more_replicas(sessions, one, other):
    short, long = sorted((one, other))
    plans = [
        plan_capacity(sessions, EPISODE.model_copy(update={"think_s": think}), COST, NODE)
        for think in (short, long)
    ]
    assert plans[1].replicas <= plans[0].replicas


@given(st.integers(1, 10**6), st.floats(0.2, 1.0), st.integers(1, 64))
def test_no_replica_is_given_more_than_it_holds_and_no_node_more_than_its_cores(sessions, utilisation, cores):
    plan = plan_capacity(
        sessions, EPISODE, COST, NODE.model_copy(update={"cores": cores}), utilisation=utilisation
    )
    assert plan.replicas * plan.per_replica >= sessions
    assert (plan.replicas - 1) * plan.per_replica < sessions
    assert plan.replicas_per_node <= cores
    assert lines(plan)["CPU of a replica"] <= utilisation + 1e-9


@given(parts, parts, parts)
def test_a_fit_of_exact_cells_gives_the_parts_that_they_were_made_of(second, session, step):
    cells = [
        observed(sessions, turns, second=second, session=session, step=step)
        for sessions in (50, 200)
        for turns in (2, 5)
    ]
    cost = fit(cells, source="synthetic", second_s=second)
    for seen in (*cells, observed(400, 4, second=second, session=session, step=step, wall=9.0)):
        predicted = cost.cpu_s(sessions=seen.sessions, turns=seen.turns, wall_s=seen.wall_s)
        assert predicted == pytest.approx(seen.cpu_s, rel=1e-4)
    assert cost.memory_bytes(400) == pytest.approx(100 * 2**20 + 400 * 64 * 2**10)
    assert (cost.fds(400), cost.threads(400)) == (pytest.approx(410), pytest.approx(401))


@given(pool=st.integers(0, 2**24), each=st.integers(2**10, 2**17))
def test_what_is_reserved_once_and_what_each_session_takes_are_told_apart(pool, each):
    def cell(sessions, turns):
        peak = 100 * 2**20 + pool + sessions * each
        return observed(sessions, turns).model_copy(update={"memory_peak": peak})

    cost = fit([cell(sessions, turns) for sessions in (50, 200) for turns in (2, 5)], source="synthetic")
    assert cost.memory_bytes(1_000) == pytest.approx(100 * 2**20 + pool + 1_000 * each, rel=1e-3)


@pytest.mark.parametrize("seed", range(8))
def test_a_machine_that_gets_slower_meanwhile_is_no_error_of_the_model(seed):
    rng = random.Random(seed)
    loads, cells = (200, 400, 800, 1600), []
    stages = stages_of(loads, 3, rng)
    for number, stage in enumerate(stages):
        slower = 1 + 0.3 * number / len(stages)
        truth = observed(stage.sessions, stage.turns)
        cells.append(
            truth.model_copy(
                update={"cpu_s": 0.1 * truth.wall_s + slower * (truth.cpu_s - 0.1 * truth.wall_s)}
            )
        )
    cost = fit(middles([one for one in cells if one.turns != CHECK_TURNS]), source="synthetic", second_s=0.1)
    for seen in middles([one for one in cells if one.turns == CHECK_TURNS]):
        predicted = cost.cpu_s(sessions=seen.sessions, turns=seen.turns, wall_s=seen.wall_s)
        assert predicted == pytest.approx(seen.cpu_s, rel=0.15)


def test_one_disturbed_trial_of_three_changes_nothing():
    calm = [observed(sessions, turns) for sessions in (50, 200) for turns in (2, 5)]
    cells = [one for cell in calm for one in (cell, cell.model_copy(update={"cpu_s": 3 * cell.cpu_s}), cell)]
    assert fit(middles(cells), source="synthetic") == fit(calm, source="synthetic")


def test_every_cell_of_a_calibration_asks_for_as_many_steps_per_second():
    for stage in stages_of((50, 200, 1600), 2, random.Random(1)):
        workload = workload_of(stage)
        cycle_s = (workload.tool_ns + workload.think_ns) / 1e9
        assert stage.sessions / cycle_s <= 300.001
        assert stage.sessions < 60 or stage.sessions / cycle_s == pytest.approx(300)
        assert workload.spread_ns == workload.tool_ns + workload.think_ns


def test_a_calibration_mixes_what_it_fits_and_what_it_tries():
    stages = stages_of((50, 100, 200, 400), 2, random.Random(0))
    first, second = stages[:10], stages[10:]
    assert sorted(first) == sorted(second) == sorted(set(stages))
    tried = [number for number, stage in enumerate(first) if stage.turns == CHECK_TURNS]
    assert min(tried) < 6
    assert max(tried) > 3


def test_a_pool_of_threads_is_not_taken_for_threads_of_sessions():
    cells = [
        observed(sessions, turns).model_copy(update={"threads_peak": 7})
        for sessions in (50, 200)
        for turns in (2, 5)
    ]
    cost = fit(cells, source="synthetic")
    assert (cost.threads_base, cost.threads_session) == (pytest.approx(7), 0)
    assert cost.fds_session == pytest.approx(1)


@pytest.mark.parametrize(
    "shapes", [[(50, 2), (50, 5), (50, 4)], [(50, 2), (100, 2), (200, 2)], [(50, 2), (200, 5)]]
)
def test_cells_that_cannot_tell_the_parts_apart_are_refused(shapes):
    with pytest.raises(NotEnough, match="two numbers of turns and two numbers of sessions"):
        fit([observed(*shape) for shape in shapes], source="synthetic")


@pytest.mark.parametrize(
    ("predicted", "upper", "error"),
    [
        (90, 120, -0.1),
        (100, 120, 0.0),
        (120, 120, 0.0),
        (150, 120, 0.25),
        (90, None, -0.1),
        (150, None, None),
        (None, 120, None),
    ],
)
def test_a_predicted_ceiling_is_wrong_by_how_far_it_lies_outside_the_bracket(predicted, upper, error):
    check = CeilingCheck(
        predicted=predicted, lower=100, upper=upper, tool_s=1, think_s=0, stopped_by="step_p99"
    )
    assert check.error == (None if error is None else pytest.approx(error))


def test_a_prediction_of_a_cell_that_never_began_is_refused(tmp_path):
    prediction = Prediction(
        cell="held-1", sessions=1, quantity="memory", unit="bytes", predicted=1, measured=1
    )
    with (
        RunWriter(tmp_path / "run", header()) as writer,
        pytest.raises(UnknownCell, match="held-1 did not begin"),
    ):
        writer.write(prediction)


def test_what_cannot_be_planned_is_said():
    with pytest.raises(Impossible, match="give --think or --tool"):
        plan_capacity(1, EpisodeModel(turns=8, think_s=0, tool_s=0), COST, NODE)
    with pytest.raises(Impossible, match="by memory"):
        plan_capacity(1, EPISODE, COST, NODE.model_copy(update={"memory_bytes": 2**20}))


def test_a_plan_far_beyond_what_was_measured_says_so():
    assert plan_capacity(1_000, EPISODE, COST, NODE).warnings == ()
    (warning,) = plan_capacity(10_000, EPISODE, COST, NODE).warnings
    assert "extrapolated" in warning
