"""The written criterion, and the search on systems whose ceiling is known."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.ceiling import (
    BROUGHT,
    CAUSES,
    FIRST_ERRORS,
    Bracket,
    Search,
    Slo,
    Trial,
    cause,
    evaluate,
    evaluate_success_only,
    judge_generator,
    retrace,
)
from bench.records import METHOD, Criterion, Verdict
from bench.stats import Population

never_timed = settings(deadline=None)

MS = 1_000_000
SECOND = 1_000 * MS


def own(cpu_s=1.0, lag=MS, cores=1, wait_ns=SECOND):
    return judge_generator(cpu_s=cpu_s, wall_s=10.0, cores=cores, loop_lag_p99_ns=lag, wait_ns=wait_ns)


def trial(sessions=512, **changes):
    """Build a trial that passes, but for the changes."""
    numbers = {
        "cell": "c1",
        "sessions": sessions,
        "succeeded": sessions,
        "peak_open": sessions,
        "wait_ns": SECOND,
        "connect": Population(np.full(sessions, 200 * MS)),
        "reset": Population(np.full(sessions, 5 * MS)),
        "step": Population(np.full(5 * sessions, SECOND + 5 * MS)),
        "generator": own(),
    }
    return Trial(**numbers | changes)


def failed(verdict):
    return [criterion.name for criterion in verdict.criteria if not criterion.passed]


class TestCriterion:
    def test_a_good_trial_passes_and_shows_every_part(self):
        verdict = evaluate(trial())
        assert verdict.passed
        assert [criterion.name for criterion in verdict.criteria] == [
            "client_cpu",
            "client_loop_lag",
            "success",
            "held",
            "connect_p99",
            "reset_p99",
            "step_p99",
        ]
        assert cause(verdict) is None

    def test_a_criterion_that_comes_or_goes_makes_another_method(self):
        """Numbers that were judged otherwise carry another number, and reports of older ones can say what is missing."""
        asked = [criterion.name for criterion in evaluate(trial(server_open=512, left=0)).criteria]
        criteria = "client_cpu client_loop_lag success held connect_p99 reset_p99 step_p99 freed"
        assert (METHOD, asked) == (2, criteria.split())
        assert {name for names in BROUGHT.values() for name in names} <= set(asked)
        assert max(BROUGHT) <= METHOD

    @pytest.mark.parametrize(
        ("changes", "name", "stopped_by"),
        [
            ({"succeeded": 496}, "success", "success"),
            ({"peak_open": 506}, "held", "held"),
            ({"peak_open": None}, "held", "held"),
            ({"connect": Population(np.full(512, 2 * SECOND + 1))}, "connect_p99", "connect"),
            ({"reset": Population(np.full(512, SECOND + 1))}, "reset_p99", "reset"),
            ({"step": Population(np.full(999, 1_600 * MS + 1))}, "step_p99", "step_p99"),
            ({"step": Population([])}, "step_max", "step_p99"),
            ({"generator": own(cpu_s=8.0)}, "client_cpu", "client"),
            ({"generator": own(lag=50 * MS)}, "client_loop_lag", "client"),
            ({"generator": own(lag=None)}, "client_loop_lag", "client"),
            ({"server_open": 506}, "held", "held"),
            ({"left": 1}, "freed", "leak"),
            ({"succeeded": 500, "left": 13}, "freed", "leak"),
            ({"aborted": "server_died", "abort_reason": "exit status -9"}, "server_died", "server_died"),
            ({"aborted": "limit"}, "limit", "limit"),
        ],
    )
    def test_each_part_fails_by_itself(self, changes, name, stopped_by):
        verdict = evaluate(trial(**changes))
        assert not verdict.passed
        assert failed(verdict) == [name]
        assert cause(verdict) == stopped_by

    @pytest.mark.parametrize(
        "changes",
        [
            {"succeeded": 497},
            {"peak_open": 507},
            {"connect": Population(np.full(512, 2 * SECOND))},
            {"reset": Population(np.full(512, SECOND))},
            {"step": Population(np.full(999, 1_600 * MS))},
            {"generator": own(cpu_s=7.99)},
            {"generator": own(cpu_s=15.9, cores=2)},
            {"generator": own(lag=50 * MS - 1)},
            {"generator": None},
            {"server_open": 507, "left": 0},
            {"succeeded": 500, "left": 12},
            {"is_held": False, "peak_open": 3, "server_open": 3},
        ],
    )
    def test_each_limit_itself_is_met(self, changes):
        assert evaluate(trial(**changes)).passed

    def test_the_upper_bound_of_the_p99_decides_not_the_estimate(self):
        """10 slow steps of 1,000 leave the p99 fast, but not its upper bound."""
        step = Population([SECOND] * 990 + [9 * SECOND] * 10)
        assert step.at_rank(990) == SECOND
        assert failed(evaluate(trial(step=step))) == ["step_p99"]

    def test_failed_steps_are_infinite_steps(self):
        verdict = evaluate(trial(step=Population(np.full(980, SECOND), failures=20)))
        (criterion,) = (one for one in verdict.criteria if one.name == "step_p99")
        assert not criterion.passed
        assert criterion.value is None
        assert criterion.note.startswith("infinite, as 20 failed")

    def test_a_saturated_generator_comes_before_what_it_spoils(self):
        slow = Population(np.full(999, 9 * SECOND))
        verdict = evaluate(trial(generator=own(cpu_s=9.9), step=slow, succeeded=100))
        assert set(failed(verdict)) == {"client_cpu", "success", "step_p99"}
        assert cause(verdict) == "client"

    def test_a_wait_of_nothing_leaves_the_generator_a_lag_it_can_meet(self):
        slo = Slo()
        assert slo.lag_limit_ns(SECOND) == 50 * MS
        assert slo.lag_limit_ns(0) == 5 * MS
        assert slo.step_limit_ns(0) == 100 * MS

    def test_the_generator_record_says_saturated_exactly_when_a_part_fails(self):
        for cpu_s, lag in ((1.0, MS), (8.0, MS), (1.0, 50 * MS), (9.0, 90 * MS)):
            generator = own(cpu_s=cpu_s, lag=lag)
            assert generator.saturated is bool(failed(evaluate(trial(generator=generator))))

    def test_values_limits_and_units_stand_in_the_verdict(self):
        values = {one.name: (one.value, one.limit, one.unit) for one in evaluate(trial()).criteria}
        assert values["step_p99"] == (1_005 * MS, 1_600 * MS, "ns")
        assert values["held"] == (512, 0.99 * 512, "sessions")
        assert values["client_cpu"] == (0.1, 0.8, "share")

    def test_only_the_most_frequent_errors_are_kept(self):
        errors = {f"error {number}": number for number in range(1, 40)}
        first = evaluate(trial(errors=errors)).first_errors
        assert list(first) == [f"error {number}" for number in range(39, 39 - FIRST_ERRORS, -1)]

    def test_more_successes_than_sessions_are_refused(self):
        with pytest.raises(ValueError, match="cannot have succeeded"):
            trial(succeeded=513)

    def test_no_sample_proves_a_success_of_one(self):
        with pytest.raises(ValueError, match="no sample proves"):
            Slo(success=1.0)


class TestSmallTrials:
    def test_eight_sessions_are_judged_by_all_and_largest_and_say_so(self):
        verdict = evaluate(trial(8))
        notes = {one.name: one.note for one in verdict.criteria}
        assert verdict.passed
        assert {"success_all", "connect_max", "reset_max", "step_max"} <= set(notes)
        assert "73 are needed" in notes["success_all"]
        assert notes["step_max"] == (
            "largest of 40: too few for a bound of the p99 (299 are needed), which it covers with 33% confidence"
        )

    def test_one_lost_session_of_eight_fails(self):
        assert failed(evaluate(trial(8, succeeded=7))) == ["success_all"]

    def test_one_slow_step_of_forty_fails(self):
        step = Population([SECOND] * 39 + [2 * SECOND])
        assert failed(evaluate(trial(8, step=step))) == ["step_max"]

    @never_timed
    @given(n=st.integers(1, 600), slow=st.integers(0, 8), lost=st.integers(0, 8))
    def test_a_larger_sample_is_never_judged_harder(self, n, slow, lost):
        """The rules for few and for many join without a step: passing small means passing large."""
        slow, lost = min(slow, n), min(lost, n)

        def verdict(sessions):
            step = Population([SECOND] * (sessions - slow) + [9 * SECOND] * slow)
            return evaluate(trial(sessions, succeeded=sessions - lost, step=step))

        assert verdict(n + 1).passed or not verdict(n).passed


class TestSuccessOnly:
    def test_the_burst_figure_knows_no_latency(self):
        slow = Population(np.full(999, 55 * SECOND))
        bursts = [
            trial(1_000, succeeded=succeeded, step=slow, peak_open=3) for succeeded in (1_000, 1_000, 850)
        ]
        verdict = evaluate_success_only(bursts)
        assert verdict.passed
        assert [criterion.name for criterion in verdict.criteria] == ["mean_success"]
        assert verdict.criteria[0].value == pytest.approx(0.95)

    def test_it_shares_no_name_with_the_ceiling(self):
        names = {criterion.name for criterion in evaluate(trial()).criteria}
        assert not names & {criterion.name for criterion in evaluate_success_only([trial()]).criteria}

    def test_below_the_mean_it_fails_by_success(self):
        assert cause(evaluate_success_only([trial(100, succeeded=94)])) == "success"

    def test_repetitions_of_different_sizes_are_refused(self):
        with pytest.raises(ValueError, match="one size"):
            evaluate_success_only([trial(8), trial(16)])


def answer(ask, causes):
    """Give the verdict of a trial that failed by the criteria named."""
    criteria = [Criterion(name=name, passed=False, limit=1, unit="share") for name in causes]
    return Verdict(
        cell="c",
        sessions=ask.sessions,
        passed=not causes,
        criteria=tuple(criteria),
        first_errors={"refused": 1},
    )


def drive(search, system, limit=10_000):
    """Run a search on a synthetic system: sessions -> criteria that fail. Return the trials asked for."""
    asked = []
    while (ask := search.ask) is not None:
        asked.append(ask)
        assert len(asked) < limit, "the search does not end"
        search.tell(answer(ask, system(ask.sessions)))
    return asked


def holds(ceiling, name="step_p99"):
    return lambda sessions: [] if sessions <= ceiling else [name]


def noisy_search(seed):
    """Search a system that passes by chance near 400 sessions; return the search and the verdicts it was told."""
    noise = random.Random(seed)
    search, verdicts = Search(start=8, cap=4_096), []
    while search.ask is not None:
        passes = noise.random() < 1 / (1 + math.exp((search.ask.sessions - 400) / 40))
        verdicts.append(answer(search.ask, [] if passes else ["step_p99"]))
        search.tell(verdicts[-1])
    return search, verdicts


class TestSearch:
    @never_timed
    @given(
        ceiling=st.integers(1, 60_000),
        start=st.integers(1, 64),
        tolerance=st.sampled_from([0.0, 0.02, 0.1, 0.5]),
    )
    def test_a_known_ceiling_is_bracketed_within_the_tolerance(self, ceiling, start, tolerance):
        search = Search(start=start, cap=65_536, tolerance=tolerance)
        drive(search, holds(ceiling))
        found = search.bracket()
        assert found.lower <= ceiling < found.upper
        assert found.upper - found.lower <= max(1, tolerance * found.lower)
        assert (found.stopped_by, found.censored, found.confirmed, found.finished) == (
            "step_p99",
            False,
            True,
            True,
        )

    def test_the_order_is_doubling_bisection_confirmation(self):
        search = Search(start=8, cap=4_096, trials=3, confirmations=5)
        asked = drive(search, holds(100))
        assert [ask.sessions for ask in asked if ask.stage == "double"] == [8, 16, 32, 64, 128, 128]
        assert [ask.sessions for ask in asked if ask.stage == "bisect"] == [96] * 3 + [112] * 2 + [104] * 2
        assert asked[-5:] == [(96, "confirm", True)] * 5
        assert not any(ask.fresh_server for ask in asked[:-5])
        assert str(search.bracket()) == "96 (104 fails by step_p99)"
        assert search.bracket().trials == len(asked)

    def test_one_disturbed_trial_decides_nothing(self):
        disturbed = iter([False] * 3 + [True] + [False] * 1_000)
        search = Search(start=8, cap=4_096)
        drive(search, lambda sessions: ["step_p99"] if next(disturbed) else holds(100)(sessions))
        assert search.bracket().lower == 96

    def test_a_row_is_begun_again_after_a_failing_trial(self):
        search = Search(start=8, cap=8, confirmations=3)
        verdicts = iter([[], [], ["success"], [], [], []])
        asked = drive(search, lambda _: next(verdicts))
        assert [ask.stage for ask in asked] == ["double"] + ["confirm"] * 5
        assert search.bracket().confirmed
        assert search.bracket().confirmation == (4, 5)

    def test_a_result_that_is_not_confirmed_becomes_the_upper_end(self):
        confirming = []

        def system(sessions):
            if search.ask.stage == "confirm" and sessions > 50:
                confirming.append(sessions)
                return ["connect_p99"]
            return holds(100)(sessions)

        search = Search(start=8, cap=4_096)
        drive(search, system)
        found = search.bracket()
        assert confirming[:2] == [96, 96]
        assert found.lower <= 50 < found.upper
        assert (found.stopped_by, found.confirmed) == ("connect", True)

    def test_a_start_that_fails_is_searched_below(self):
        search = Search(start=64, cap=4_096)
        drive(search, holds(3))
        assert (search.bracket().lower, search.bracket().upper) == (3, 4)

    def test_a_system_that_holds_nothing_has_no_ceiling(self):
        search = Search(start=8, cap=4_096)
        drive(search, holds(0, "connect_max"))
        found = search.bracket()
        assert (found.lower, found.upper, found.stopped_by, found.confirmed) == (0, 1, "connect", False)
        assert str(found) == "none: already 1 fails by connect"

    @pytest.mark.parametrize("cap", [8, 100, 4_096])
    def test_a_cap_ends_the_search_and_is_not_a_ceiling(self, cap):
        search = Search(start=8, cap=cap)
        drive(search, holds(10**9))
        found = search.bracket()
        assert (found.lower, found.upper, found.stopped_by, found.censored) == (cap, None, "limit", True)
        assert found.confirmed
        assert str(found) == f"limited by a cap, at least {cap:,}"

    def test_a_configured_cap_of_the_server_is_not_a_ceiling_either(self):
        search = Search(start=8, cap=4_096)
        drive(search, holds(100, "limit"))
        found = search.bracket()
        assert (found.lower, found.upper, found.stopped_by, found.censored) == (96, None, "limit", True)

    def test_a_saturated_generator_gives_at_least_and_no_upper_end(self):
        search = Search(start=8, cap=65_536)
        drive(search, lambda sessions: ["client_cpu", "step_p99"] if sessions > 1_000 else [])
        found = search.bracket()
        assert found.upper is None
        assert (found.stopped_by, found.censored) == ("client", True)
        assert 900 <= found.lower <= 1_000
        assert str(found) == f"client-limited, at least {found.lower:,}"

    def test_a_system_that_fails_before_its_generator_is_not_client_limited(self):
        search = Search(start=8, cap=65_536)
        drive(
            search,
            lambda sessions: ["client_loop_lag"] if sessions > 200 else holds(150, "success")(sessions),
        )
        found = search.bracket()
        assert found.lower <= 150 < found.upper <= 200
        assert (found.stopped_by, found.censored) == ("success", False)

    def test_a_failure_without_saturation_is_not_excused_by_one_with_it(self):
        verdicts = iter([["client_cpu"], ["success"]])
        search = Search(start=8, cap=4_096)
        while search.ask is not None and search.bracket().points == ():
            search.tell(answer(search.ask, next(verdicts)))
        assert search.bracket().points[0].stopped_by == "success"

    @never_timed
    @given(stop=st.integers(0, 60), ceiling=st.integers(1, 5_000), name=st.sampled_from(sorted(CAUSES)))
    def test_interrupted_anywhere_it_says_a_true_bracket(self, stop, ceiling, name):
        search = Search(start=8, cap=4_096)
        system = holds(ceiling, name)
        while search.ask is not None and stop:
            search.tell(answer(search.ask, system(search.ask.sessions)))
            stop -= 1
        found = search.bracket()
        assert isinstance(found, Bracket)
        assert found.lower <= ceiling
        assert found.upper is None or found.upper > max(ceiling, found.lower)
        assert found.finished is (search.ask is None)
        assert str(found)
        if not found.finished:
            assert "interrupted" in str(found)

    def test_before_the_first_trial_nothing_is_known(self):
        found = Search().bracket()
        assert (found.lower, found.upper, found.stopped_by, found.censored) == (0, None, "interrupted", True)

    @never_timed
    @given(seed=st.integers(0, 10**6))
    def test_a_noisy_system_ends_in_a_consistent_bracket(self, seed):
        """Near its ceiling the system passes by chance; the search still ends, and lower passed its confirmation."""
        search, _ = noisy_search(seed)
        found = search.bracket()
        assert found.finished
        assert found.confirmed is (found.lower > 0)
        assert found.upper is None or found.lower < found.upper
        accepted = [point for point in found.points if point.stage == "confirm" and point.passed]
        assert [point.sessions for point in accepted] == ([found.lower] if found.lower else [])

    @never_timed
    @given(seed=st.integers(0, 10**6), kept=st.floats(0, 1))
    def test_the_verdicts_alone_tell_what_a_search_knew(self, seed, kept):
        """A report reads off the record how often a result passed again, and guesses nothing where it is of no search."""
        search, verdicts = noisy_search(seed)
        plan = {"start": 8, "cap": 4_096, "tolerance": 0.1, "trials": 3, "confirmations": 5, "name": "full"}
        found = retrace(plan, verdicts)
        assert found == search.bracket()
        assert found.lower == 0 or 5 <= found.confirmation.passed <= found.confirmation.trials <= 10
        part = retrace(plan, verdicts[: int(kept * (len(verdicts) - 1))])
        assert (part.finished, part.confirmation) == (False, None)
        assert retrace(plan, verdicts[1:]) is None
        assert retrace({"name": "full"}, verdicts) is None

    def test_without_confirmations_the_result_says_that_it_is_not_confirmed(self):
        search = Search(start=8, cap=4_096, trials=1, confirmations=0)
        drive(search, holds(100))
        assert not search.bracket().confirmed
        assert str(search.bracket()).endswith("not confirmed")

    def test_a_verdict_of_another_size_is_refused(self):
        search = Search(start=8)
        with pytest.raises(ValueError, match="asked for 8 sessions, was told about 512"):
            search.tell(evaluate(trial()))

    def test_a_failure_without_a_reason_is_refused(self):
        search = Search(start=8)
        with pytest.raises(ValueError, match="failed by no criterion"):
            search.tell(answer(search.ask, ["mood"]))
        assert search.bracket().trials == 0

    def test_a_finished_search_takes_no_more_verdicts(self):
        search = Search(start=8, cap=8, confirmations=0)
        last = search.ask
        search.tell(answer(last, []))
        with pytest.raises(ValueError, match="the search is over"):
            search.tell(answer(last, []))

    @pytest.mark.parametrize(
        "options",
        [{"start": 0}, {"start": 9, "cap": 8}, {"tolerance": -0.1}, {"trials": 0}, {"confirmations": -1}],
    )
    def test_impossible_options_are_refused(self, options):
        with pytest.raises(ValueError, match="no search"):
            Search(**options)

    def test_a_whole_search_over_real_verdicts(self):
        """A queueing system of known capacity, judged by the criterion itself."""
        capacity = 300  # steps of 1 s served at once; the others wait for a second turn

        def run(ask):
            late = max(0, ask.sessions - capacity)
            step = Population([SECOND] * 5 * (ask.sessions - late) + [2 * SECOND] * 5 * late)
            return trial(ask.sessions, cell=f"c{ask.sessions}", step=step)

        search = Search(start=8, cap=4_096)
        while (ask := search.ask) is not None:
            search.tell(evaluate(run(ask)))
        found = search.bracket()
        assert 0.9 * capacity <= found.lower <= 1.02 * capacity
        assert found.stopped_by == "step_p99"
