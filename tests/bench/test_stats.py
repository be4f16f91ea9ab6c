"""Statistics against known truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from bench.samples import Phase, SampleColumns, Status
from bench.stats import (
    Interval,
    Population,
    Quantile,
    Ratio,
    SteadyState,
    TooSmall,
    cluster_bootstrap,
    cluster_quantile,
    instabilities,
    interval_ranks,
    littles_law,
    minimum_n,
    pool,
    population,
    quantile,
    quantile_name,
    ratio,
    steady_state,
    wilson,
    wilson_minimum_n,
)

never_timed = settings(deadline=None)

SECOND = 1_000_000_000
latencies = st.lists(st.integers(0, 10**12), max_size=60)


class TestQuantiles:
    @pytest.mark.parametrize(("q", "n"), [(0.5, 6), (0.9, 29), (0.95, 59), (0.99, 299), (0.999, 2_995)])
    def test_the_smallest_sample_with_an_interval_is_known(self, q, n):
        assert minimum_n(q) == n
        assert isinstance(quantile(Population(np.arange(n)), q), Quantile)
        assert quantile(Population(np.arange(n - 1)), q) == TooSmall(n - 1, n, quantile_name(q))

    def test_too_small_says_what_is_missing(self):
        assert str(quantile(Population(np.arange(40)), 0.99)) == "n too small: p99 needs 299, there are 40"

    @never_timed
    @given(n=st.integers(1, 20_000), q=st.floats(0.01, 0.999), confidence=st.sampled_from([0.9, 0.95, 0.99]))
    def test_the_chosen_ranks_cover_by_the_binomial_law(self, n, q, confidence):
        ranks = interval_ranks(n, q, confidence)
        if ranks is None:
            assert 1 - q**n - (1 - q) ** n < confidence
            return
        low, high = ranks
        assert 1 <= low <= high <= n
        assert binom.cdf(high - 1, n, q) - binom.cdf(low - 1, n, q) >= confidence - 1e-9

    @pytest.mark.parametrize(("q", "n"), [(0.5, 25), (0.95, 80), (0.99, 300), (0.99, 1_000)])
    def test_the_interval_covers_the_true_quantile_of_a_lognormal(self, q, n):
        rng = np.random.default_rng(20_261_129)
        truth = math.exp(0.8 * float(np.quantile(rng.standard_normal(2_000_000), q)))
        trials = [quantile(Population(rng.lognormal(0.0, 0.8, n)), q) for _ in range(600)]
        covered = sum(isinstance(one, Quantile) and one.low <= truth <= one.high for one in trials) / 600
        # 600 trials of a 95 % interval leave a standard error of 0.9 points.
        assert covered >= 0.925

    @never_timed
    @given(ok=latencies, failures=st.integers(0, 40), q=st.sampled_from([0.5, 0.9, 0.95]))
    def test_failures_stay_in_the_population_as_infinite_latency(self, ok, failures, q):
        estimate = quantile(Population(ok, failures), q)
        if isinstance(estimate, TooSmall):
            assert estimate.n == len(ok) + failures < minimum_n(q)
            return
        everything = sorted(map(float, ok)) + [math.inf] * failures
        assert estimate.value == everything[math.ceil(round(len(everything) * q, 9)) - 1]
        assert estimate.low <= estimate.value <= estimate.high
        assert {estimate.low, estimate.high} <= set(everything)
        assert (estimate.n, estimate.failures) == (len(everything), failures)

    def test_two_percent_of_failures_make_the_p99_infinite(self):
        estimate = quantile(Population(np.full(980, 5), failures=20), 0.99)
        assert isinstance(estimate, Quantile)
        assert (estimate.low, estimate.value, estimate.high) == (math.inf, math.inf, math.inf)

    def test_nanoseconds_are_exact(self):
        day = 86_400 * SECOND
        estimate = quantile(Population(day + np.arange(1_000)), 0.5)
        assert isinstance(estimate, Quantile)
        assert estimate.value == day + 499

    @pytest.mark.parametrize("bad", [[math.nan], [math.inf], [-1]])
    def test_a_population_refuses_what_is_no_latency(self, bad):
        with pytest.raises(ValueError, match="finite and not negative"):
            Population(bad)

    def test_a_population_cannot_be_changed(self):
        source = np.array([3, 1, 2])
        taken = Population(source)
        source[:] = 0
        with pytest.raises(ValueError, match="read-only"):
            taken.ok[0] = 9
        assert taken == Population([1, 2, 3])

    @never_timed
    @given(parts=st.lists(st.tuples(latencies, st.integers(0, 5)), max_size=5))
    def test_pooling_keeps_every_operation(self, parts):
        pooled = pool(Population(ok, failures) for ok, failures in parts)
        assert list(pooled.ok) == sorted(value for ok, _ in parts for value in ok)
        assert pooled.failures == sum(failures for _, failures in parts)

    @pytest.mark.parametrize("q", [0.0, 1.0, -1.0, 2.0])
    def test_there_is_no_quantile_outside_the_unit_interval(self, q):
        with pytest.raises(ValueError, match="between 0 and 1"):
            quantile(Population([1]), q)


class TestSelection:
    def test_a_phase_is_selected_with_its_failures_and_without_its_warm_up(self):
        from bench.records import samples_table

        columns = SampleColumns()
        for seq, (phase, warmup, intended, start, ns, status) in enumerate(
            [
                (Phase.STEP, True, 0, 0, 99, Status.OK),
                (Phase.STEP, False, 10, 30, 5, Status.OK),
                (Phase.STEP, False, 50, 50, 7, Status.TIMEOUT),
                (Phase.STEP, False, 60, 60, 8, Status.WRONG),
                (Phase.RESET, False, 0, 0, 1, Status.OK),
            ]
        ):
            columns.append(0, seq, phase, warmup, intended, start, ns, status)
        table = samples_table(columns)
        assert population(table, Phase.STEP) == Population([5], failures=2)
        assert population(table, Phase.STEP, response=True) == Population([25], failures=2)
        assert population(table, Phase.STEP, warmup=True) == Population([99])
        assert population(table, Phase.SCORE).n == 0


class TestWilson:
    @pytest.mark.parametrize(
        ("successes", "attempts", "passes"),
        [
            (72, 72, False),
            (73, 73, True),
            (126, 128, False),
            (127, 128, True),
            (496, 512, False),
            (497, 512, True),
            (1_964, 2_048, False),
            (1_965, 2_048, True),
            (1_946, 2_048, False),
        ],
    )
    def test_the_lower_bound_decides_as_the_method_lists(self, successes, attempts, passes):
        assert (wilson(successes, attempts).low >= 0.95) is passes

    def test_the_published_interval_is_reproduced(self):
        share = wilson(1_946, 2_048)
        assert (round(share.low, 3), round(share.high, 3)) == (0.940, 0.959)

    def test_the_smallest_perfect_sample_is_found(self):
        assert wilson_minimum_n(0.95) == 73
        assert wilson_minimum_n(0.999_99) == 384_143

    @never_timed
    @given(attempts=st.integers(1, 10**6), data=st.data())
    def test_the_interval_holds_its_estimate_and_stays_a_share(self, attempts, data):
        share = wilson(data.draw(st.integers(0, attempts)), attempts)
        assert 0 <= share.low <= share.value <= share.high <= 1

    @pytest.mark.parametrize(("successes", "attempts"), [(0, 0), (2, 1), (-1, 5)])
    def test_a_share_of_nothing_is_refused(self, successes, attempts):
        with pytest.raises(ValueError, match="not a share"):
            wilson(successes, attempts)


class TestRatio:
    def pairs(self, rng, factor, pairs=8):
        shared = rng.lognormal(0, 0.3, pairs)  # what both halves of a pair suffer alike
        return factor * shared * rng.lognormal(0, 0.04, pairs), shared * rng.lognormal(0, 0.04, pairs)

    def test_the_same_subject_against_itself_shows_no_difference(self):
        """An A/A comparison must hold 1 in its interval about 95 times in 100."""
        rng = np.random.default_rng(7)
        results = [ratio(*self.pairs(rng, 1.0), seed=trial, resamples=2_000) for trial in range(400)]
        assert all(isinstance(one, Ratio) for one in results)
        quiet = sum(isinstance(one, Ratio) and not one.difference_shown for one in results) / 400
        assert quiet >= 0.925

    def test_a_true_difference_is_shown_with_its_size(self):
        found = ratio(*self.pairs(np.random.default_rng(11), 1.5), seed=1)
        assert isinstance(found, Ratio)
        assert found.difference_shown
        assert found.low <= 1.5 <= found.high
        assert "no difference" not in str(found)

    def test_no_difference_is_said_aloud(self):
        found = ratio([1.0, 1.1, 0.9, 1.0, 1.05, 0.95], [1.0] * 6, seed=1)
        assert str(found).endswith("over 6 pairs: no difference shown")

    def test_identical_pairs_give_exactly_one(self):
        found = ratio([3.0] * 6, [3.0] * 6, seed=1)
        assert found == Ratio(1.0, 1.0, 1.0, 6, 0.95)
        assert isinstance(found, Ratio)
        assert not found.difference_shown

    def test_the_seed_decides_the_resampling(self):
        subject, baseline = self.pairs(np.random.default_rng(3), 1.1)
        assert ratio(subject, baseline, seed=5) == ratio(subject, baseline, seed=5)
        assert ratio(subject, baseline, seed=5) != ratio(subject, baseline, seed=6)

    def test_five_pairs_are_too_few(self):
        assert ratio([2.0] * 5, [1.0] * 5, seed=1) == TooSmall(5, 6, "a ratio of pairs")

    @pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
    def test_a_ratio_of_what_has_no_logarithm_is_refused(self, bad):
        with pytest.raises(ValueError, match="positive finite"):
            ratio([1.0] * 5 + [bad], [1.0] * 6, seed=1)

    def test_halves_that_do_not_pair_up_are_refused(self):
        with pytest.raises(ValueError, match="do not make pairs"):
            ratio([1.0] * 6, [1.0] * 7, seed=1)


class TestClusters:
    def test_trials_are_the_units(self):
        """Trials that differ among themselves give a wide interval, however many operations each holds."""
        rng = np.random.default_rng(2)
        apart = [
            Population(level + rng.integers(0, 10, 5_000)) for level in (100, 200, 300, 400, 500, 600, 700)
        ]
        found = cluster_quantile(apart, 0.5, seed=1)
        inside = quantile(pool(apart), 0.5)
        assert isinstance(found, Interval)
        assert isinstance(inside, Quantile)
        assert found.n == 7
        assert found.high - found.low > 5 * (inside.high - inside.low)

    def test_the_interval_covers_the_truth_over_trials(self):
        rng = np.random.default_rng(5)

        def covers(seed):
            trials = list(rng.normal(10.0, 2.0, 8))
            found = cluster_bootstrap(trials, lambda some: sum(some) / len(some), seed=seed, resamples=800)
            return isinstance(found, Interval) and found.low <= 10.0 <= found.high

        assert sum(map(covers, range(200))) / 200 >= 0.90

    def test_a_failed_trial_reaches_the_upper_end_and_makes_no_nan(self):
        trials = [Population(np.full(400, 10))] * 5 + [Population([], failures=400)] * 3
        found = cluster_quantile(trials, 0.99, seed=1)
        assert isinstance(found, Interval)
        assert found.value == math.inf
        assert found.high == math.inf
        assert not math.isnan(found.low)

    def test_five_trials_are_too_few(self):
        assert isinstance(cluster_bootstrap([1.0] * 5, sum, seed=1), TooSmall)

    def test_a_statistic_that_is_no_number_is_refused(self):
        with pytest.raises(ValueError, match="not a number"):
            cluster_bootstrap([1.0] * 6, lambda _: math.nan, seed=1)

    @settings(deadline=None, max_examples=8)
    @given(
        st.lists(
            st.tuples(st.lists(st.integers(0, 50), max_size=12), st.integers(0, 3)), min_size=6, max_size=9
        ),
        st.sampled_from([0.5, 0.9]),
    )
    def test_the_quantile_of_each_resample_is_that_of_its_samples_put_together(self, drawn, q):
        trials = [Population(ok, failures) for ok, failures in drawn]

        def merged(some):
            n = sum(trial.n for trial in some)
            return pool(some).at_rank(max(1, math.ceil(n * q * (1 - 1e-12)))) if n else math.inf

        found = cluster_quantile(trials, q, seed=4)
        if sum(trial.n for trial in trials) < minimum_n(q):
            assert isinstance(found, TooSmall)
        else:
            assert found == cluster_bootstrap(trials, merged, seed=4)

    def test_pooled_operations_must_suffice_for_the_quantile_too(self):
        assert cluster_quantile([Population([1])] * 8, 0.99, seed=1) == TooSmall(8, 299, "p99")


class TestSteadyState:
    def run(self, change_per_10s, seconds=30, rate=50):
        done = np.arange(seconds * rate) * SECOND // rate
        noise = np.random.default_rng(1).normal(1.0, 0.02, done.size)
        return done, 1e6 * (1 + change_per_10s * done / (10 * SECOND)) * noise

    @pytest.mark.parametrize(
        ("change", "steady"), [(0.0, True), (0.003, True), (0.05, False), (-0.05, False)]
    )
    def test_a_slope_beyond_one_percent_per_ten_seconds_is_not_steady(self, change, steady):
        done, latency = self.run(change)
        verdict = steady_state(done, latency, np.ones(done.size))
        assert isinstance(verdict, SteadyState)
        assert verdict.steady is steady
        assert verdict.seconds == 29  # the last second is partial
        assert str(verdict).startswith("steady" if steady else "not steady")

    def test_one_wild_second_does_not_decide(self):
        done, latency = self.run(0.0)
        latency[100:150] *= 50
        verdict = steady_state(done, latency, np.ones(done.size))
        assert isinstance(verdict, SteadyState)
        assert verdict.steady

    def test_order_of_arrival_does_not_matter(self):
        done, latency = self.run(0.05)
        shuffled = np.random.default_rng(3).permutation(done.size)
        ok = np.ones(done.size)
        assert steady_state(done, latency, ok) == steady_state(done[shuffled], latency[shuffled], ok)

    def test_a_second_of_failures_is_not_steady(self):
        done, latency = self.run(0.0)
        ok = np.ones(done.size, dtype=bool)
        ok[200:250] = False
        assert steady_state(done, latency, ok) == SteadyState(steady=False, seconds=29, change_per_10s=None)

    def test_nine_seconds_are_too_short(self):
        done, latency = self.run(0.0, seconds=10)
        assert steady_state(done, latency, np.ones(done.size)) == TooSmall(
            9, 10, "a verdict about steady state (in seconds)"
        )
        assert isinstance(steady_state([], [], []), TooSmall)

    def test_latencies_below_the_timer_are_steady(self):
        done, _ = self.run(0.0)
        verdict = steady_state(done, np.zeros(done.size), np.ones(done.size))
        assert verdict == SteadyState(steady=True, seconds=29, change_per_10s=0.0)


class TestInstabilities:
    def names(self, trials, **options):
        return [found.name for found in instabilities(trials, **options)]

    def test_level_trials_raise_nothing(self):
        assert self.names([1.0, 1.01, 0.99, 1.0], timer_floor=0.01) == []

    def test_spread_and_extremes_are_named(self):
        assert self.names([1.0, 1.0, 1.3, 0.8]) == ["spread"]
        assert self.names([1.0, 1.0, 1.0, 4.0]) == ["spread", "extreme"]

    def test_a_single_trial_has_an_unknown_spread(self):
        assert self.names([1.0]) == ["trials"]

    def test_an_infinite_trial_is_a_reason_by_itself(self):
        assert self.names([1.0, math.inf, 1.0]) == ["failed"]

    def test_a_value_near_the_timer_is_named(self):
        assert self.names([100.0, 101.0], timer_floor=50.0) == ["timer"]

    def test_each_reason_is_a_sentence(self):
        for found in instabilities([1.0, 9.0], timer_floor=5.0):
            assert found.sentence.endswith(".")


class TestLittlesLaw:
    def test_held_sessions_agree(self):
        law = littles_law(throughput_per_s=990.0, time_in_system_s=1.01, counted=1_000)
        assert law.agrees
        assert str(law).startswith("throughput x time in system = 1,000, which agrees")

    def test_a_burst_that_never_was_concurrent_is_exposed(self):
        """518 requests per second of 4.67 s are 2,419 open sessions, not the 16,384 of the burst."""
        law = littles_law(throughput_per_s=518.0, time_in_system_s=4.67, counted=16_384)
        assert not law.agrees
        assert round(law.expected) == 2_419

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
    def test_numbers_that_mean_nothing_are_refused(self, bad):
        with pytest.raises(ValueError, match="Little's law"):
            littles_law(bad, 1.0, 1.0)
