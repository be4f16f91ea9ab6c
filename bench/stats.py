"""Statistics of latency and success that say how sure they are, or that there is too little to say.

Quantiles are order statistics of raw samples: never averaged, never interpolated, with failures kept in the
population as infinite latency. No function returns NaN; a question that the data cannot answer is answered by
`TooSmall`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from scipy import stats as distributions

from bench.samples import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa
    from numpy.typing import ArrayLike, NDArray

    from bench.samples import Phase

CONFIDENCE = 0.95
"""Two-sided confidence of every interval, unless a caller says otherwise."""

STEADY_CHANGE = 0.01
"""Relative change per 10 s up to which a run counts as steady."""
STEADY_SECONDS = 10
"""Full seconds that a verdict about a change per 10 s needs."""

SPREAD_LIMIT = 0.10
"""Standard deviation over mean, between trials, from which results count as unstable (pyperf's rule)."""
EXTREME_LIMIT = 0.50
"""Distance of the largest or smallest trial from the mean from which results count as unstable (pyperf's rule)."""
TIMER_MULTIPLE = 10.0
"""A latency below this many timer floors says more about the timer than about the system."""

AGREEMENT = 0.10
"""Relative difference up to which Little's law and the counted sessions agree."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TooSmall:
    """There are too few observations for what was asked."""

    n: int
    """How many there are."""
    needed: int
    """How many it takes."""
    what: str
    """What was asked, such as `p99`."""

    def __str__(self) -> str:
        return f"n too small: {self.what} needs {self.needed:,}, there are {self.n:,}"


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile with its distribution-free interval, in the unit of the samples.

    Every number is an observed value, or infinity where the rank falls among the failures.
    """

    q: float
    value: float
    low: float
    high: float
    n: int
    """Operations in the population, failures included."""
    failures: int
    confidence: float


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its interval."""

    value: float
    low: float
    high: float
    n: int
    """Independent units behind it: trials, pairs or attempts."""
    confidence: float


@dataclass(frozen=True, slots=True)
class Ratio:
    """The geometric-mean ratio of interleaved pairs, with its interval."""

    value: float
    low: float
    high: float
    pairs: int
    confidence: float

    @property
    def difference_shown(self) -> bool:
        """Whether the interval leaves out 1."""
        return not self.low <= 1.0 <= self.high

    def __str__(self) -> str:
        value, low, high = ratio_texts(self.value, self.low, self.high)
        text = f"{value} [{low}, {high}] over {self.pairs} pairs"
        return text if self.difference_shown else f"{text}: no difference shown"


def ratio_texts(value: float, low: float, high: float) -> tuple[str, str, str]:
    """Write a ratio and the two ends of its interval with three significant digits.

    Where the interval leaves out 1, a number beside 1 has as many digits as it takes not to be written as 1: it is what a
    difference is said by.
    """
    if low <= 1.0 <= high:
        return f"{value:.3g}", f"{low:.3g}", f"{high:.3g}"
    return _beside_one(value), _beside_one(low), _beside_one(high)


def _beside_one(number: float) -> str:
    # Seventeen digits tell any two numbers apart.
    texts = (f"{number:.{digits}g}" for digits in range(3, 18))
    return next((text for text in texts if float(text) != 1.0), "1")


class Population:
    """The latencies of one phase, failures included as infinite ones. Immutable.

    Args:
        ok_ns: Latencies of the operations that succeeded, in any order and any one unit.
        failures: How many operations failed.

    Raises:
        ValueError: A latency is negative or not finite, or the number of failures is negative.
    """

    __slots__ = ("_failures", "_sorted")

    def __init__(self, ok_ns: ArrayLike, failures: int = 0) -> None:
        values = np.sort(np.asarray(ok_ns).ravel())
        if values.size and not (np.isfinite(values).all() and values[0] >= 0):
            raise ValueError(
                "latencies must be finite and not negative; a failure is counted, not given a value"
            )
        if failures < 0:
            raise ValueError(f"the number of failures is negative: {failures}")
        values.flags.writeable = False
        self._sorted: NDArray[Any] = values
        self._failures = failures

    @property
    def ok(self) -> NDArray[Any]:
        """The finite latencies, ascending, read-only."""
        return self._sorted

    @property
    def failures(self) -> int:
        """How many operations failed."""
        return self._failures

    @property
    def n(self) -> int:
        """How many operations there are, failed ones included."""
        return int(self._sorted.size) + self._failures

    def at_rank(self, rank: int) -> float:
        """Return the order statistic of a rank from 1 to n; infinity among the failures.

        Raises:
            IndexError: There is no such rank.
        """
        if not 1 <= rank <= self.n:
            raise IndexError(f"rank {rank} of a population of {self.n}")
        return float(self._sorted[rank - 1]) if rank <= self._sorted.size else math.inf

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Population):
            return NotImplemented
        return self._failures == other._failures and np.array_equal(self._sorted, other._sorted)

    def __hash__(self) -> int:
        return hash((self._failures, self._sorted.tobytes()))

    def __repr__(self) -> str:
        return f"Population(n={self.n}, failures={self._failures})"


def population(
    samples: pa.Table, phase: Phase, *, response: bool = False, warmup: bool = False
) -> Population:
    """Select the latencies of one phase from a table of raw samples.

    Args:
        samples: As `bench.records.read_samples` returns it.
        phase: Which phase.
        response: Count from the intended start (what a user of an open system waits) instead of from sending.
        warmup: Select the warm-up operations instead of the measured ones.
    """
    columns = {name: samples.column(name).combine_chunks() for name in ("phase", "status")}
    wanted = _coded_equal(columns["phase"], phase) & (samples.column("warmup").to_numpy() == warmup)
    ns = samples.column("ns").to_numpy()
    if response:
        ns = ns + samples.column("start_ns").to_numpy() - samples.column("intended_ns").to_numpy()
    ok = _coded_equal(columns["status"], Status.OK)
    return Population(ns[wanted & ok], int(np.count_nonzero(wanted & ~ok)))


def _coded_equal(column: pa.Array, word: str) -> NDArray[np.bool_]:
    words = column.dictionary.to_pylist()
    if word not in words:
        return np.zeros(len(column), dtype=bool)
    same: NDArray[np.bool_] = column.indices.to_numpy() == words.index(word)
    return same


def pool(populations: Iterable[Population]) -> Population:
    """Merge the raw samples of several populations."""
    parts = tuple(populations)
    return Population(
        np.concatenate([part.ok for part in parts]) if parts else np.empty(0, dtype=np.int64),
        sum(part.failures for part in parts),
    )


@lru_cache(maxsize=256)
def minimum_n(q: float, confidence: float = CONFIDENCE) -> int:
    """Return the smallest n for which a quantile has a two-sided interval at all.

    The widest interval is [smallest, largest]; it covers the quantile with probability 1 - q^n - (1 - q)^n.
    For 95 %: 6 for the median, 59 for p95, 299 for p99, 2,995 for p99.9.

    Raises:
        ValueError: The quantile or the confidence does not lie between 0 and 1.
    """
    _check_open_unit(q, "quantile")
    _check_open_unit(confidence, "confidence")
    miss = 1 - confidence
    # The larger of q and 1 - q alone already needs this many; the other tail can only add to it.
    n = max(1, math.ceil(math.log(miss) / math.log(max(q, 1 - q))))
    while q**n + (1 - q) ** n > miss:
        n += 1
    return n


@lru_cache(maxsize=4096)
def interval_ranks(n: int, q: float, confidence: float = CONFIDENCE) -> tuple[int, int] | None:
    """Choose the 1-based ranks of the order statistics that enclose a quantile.

    The number of samples at or below the quantile is Binomial(n, q), whatever the distribution of the samples
    (David and Nagaraja, *Order Statistics*, section 7.1). The tails are equal where n allows it; where the sample
    cannot reach that far on one side, its outermost value is taken there and the other side gets what remains of
    the error, so that the coverage holds from `minimum_n` on.

    Returns:
        Ranks from 1 to n; nothing when n is below `minimum_n`.
    """
    if n < minimum_n(q, confidence):
        return None
    miss = 1 - confidence
    binomial = distributions.binom(n, q)
    # What is lost when the interval ends at the outermost value.
    below, above = (1 - q) ** n, q**n
    tail_low = tail_high = miss / 2
    if above > miss / 2:
        tail_low, tail_high = miss - above, above
    elif below > miss / 2:
        tail_low, tail_high = below, miss - below
    # The clamps matter only where a tail equals an outermost one, and rounding may go either way.
    return max(1, int(binomial.ppf(tail_low))), min(n, int(binomial.ppf(1 - tail_high)) + 1)


def quantile(population: Population, q: float, confidence: float = CONFIDENCE) -> Quantile | TooSmall:
    """Estimate one quantile with its order-statistic interval.

    The estimate is the order statistic of rank ceil(n q): the smallest observed value that at least the share q
    of the population does not exceed.
    """
    n = population.n
    ranks = interval_ranks(n, q, confidence)
    if ranks is None:
        return TooSmall(n, minimum_n(q, confidence), quantile_name(q))
    low, high = ranks
    return Quantile(
        q=q,
        value=population.at_rank(_rank(n, q)),
        low=population.at_rank(low),
        high=population.at_rank(high),
        n=n,
        failures=population.failures,
        confidence=confidence,
    )


def quantile_name(q: float) -> str:
    """Name a quantile the way operators do: `p50`, `p99`, `p99.9`."""
    return f"p{q * 100:.10g}"


def wilson(successes: int, attempts: int, confidence: float = CONFIDENCE) -> Interval:
    """Estimate a share of successes with the Wilson score interval (Wilson, JASA 1927).

    Raises:
        ValueError: There are no attempts, or more successes than attempts.
    """
    if not 0 <= successes <= attempts or attempts == 0:
        raise ValueError(f"{successes} successes of {attempts} attempts is not a share")
    z = float(distributions.norm.ppf(0.5 + confidence / 2))
    share = successes / attempts
    spread = 1 + z * z / attempts
    centre = share + z * z / (2 * attempts)
    half = z * math.sqrt(share * (1 - share) / attempts + z * z / (4 * attempts * attempts))
    # Rounding may leave the estimate just outside its own interval at 0 and at 1.
    low = min(max(0.0, (centre - half) / spread), share)
    high = max(min(1.0, (centre + half) / spread), share)
    return Interval(share, low, high, attempts, confidence)


@lru_cache(maxsize=64)
def wilson_minimum_n(share: float, confidence: float = CONFIDENCE) -> int:
    """Return the smallest number of attempts whose Wilson lower bound can reach a share: all must succeed.

    With every attempt a success the lower bound is n / (n + z^2). For 0.95 at 95 %: 73.
    """
    _check_open_unit(share, "share")
    z = float(distributions.norm.ppf(0.5 + confidence / 2))
    n = max(1, math.floor(share * z * z / (1 - share)))
    while wilson(n, n, confidence).low < share:
        n += 1
    return n


def ratio(
    subject: ArrayLike,
    baseline: ArrayLike,
    *,
    seed: int,
    confidence: float = CONFIDENCE,
    resamples: int = 10_000,
) -> Ratio | TooSmall:
    """Compare two subjects by interleaved pairs: geometric mean of subject / baseline, bootstrap over pairs.

    The percentile interval is widened for the number of pairs (Hesterberg, *What Teachers Should Know About the
    Bootstrap*, 2015, "expanded percentile"): with 8 pairs the plain one covers 89 % instead of 95 %. Below 6 pairs
    there is no answer: chance alone puts all of 5 pairs on one side once in 16 times.

    Args:
        subject: One positive finite number per pair.
        baseline: The other number of each pair, in the same order.
        seed: Of the resampling.
        confidence: Of the interval.
        resamples: Bootstrap resamples.

    Raises:
        ValueError: The two differ in length, or a number is not positive and finite (an infinite quantile cannot
            be a part of a ratio: report the failures instead).
    """
    above, below = (np.asarray(side, dtype=np.float64).ravel() for side in (subject, baseline))
    if above.size != below.size:
        raise ValueError(f"{above.size} and {below.size} numbers do not make pairs")
    for side in (above, below):
        if not (np.isfinite(side).all() and (side > 0).all()):
            raise ValueError("a ratio needs positive finite numbers on both sides of each pair")
    pairs = int(above.size)
    needed = minimum_n(0.5, confidence)
    if pairs < needed:
        return TooSmall(pairs, needed, "a ratio of pairs")
    logs = np.log(above) - np.log(below)
    rng = np.random.default_rng(seed)
    means = logs[rng.integers(0, pairs, (resamples, pairs))].mean(axis=1)
    low, high = np.quantile(means, _expanded_tails(pairs, confidence))
    return Ratio(math.exp(logs.mean()), math.exp(low), math.exp(high), pairs, confidence)


def cluster_bootstrap(
    trials: Sequence[T],
    statistic: Callable[[Sequence[T]], float],
    *,
    seed: int,
    confidence: float = CONFIDENCE,
    resamples: int = 4_000,
) -> Interval | TooSmall:
    """Estimate a statistic over trials, with an interval from resampling whole trials.

    Operations of one trial are not independent, so trials are the units. The interval is widened for their number
    as in `ratio`.

    Args:
        trials: One entry per independent trial.
        statistic: Computes the number from some trials, repeated ones included, in any order. May be infinite.
        seed: Of the resampling.
        confidence: Of the interval.
        resamples: Bootstrap resamples. The statistic is computed once per distinct resample.

    Raises:
        ValueError: The statistic returned NaN.
    """

    def values(choices: NDArray[np.int64]) -> NDArray[np.float64]:
        found = [statistic([trials[index] for index in choice]) for choice in choices]
        return np.array(found, dtype=np.float64)

    return _bootstrap(len(trials), values, seed, confidence, resamples)


def cluster_quantile(
    trials: Sequence[Population], q: float, *, seed: int, confidence: float = CONFIDENCE
) -> Interval | TooSmall:
    """Estimate a quantile of the pooled samples of several trials, with an interval from resampling trials."""
    pooled = pool(trials)
    if pooled.n < minimum_n(q, confidence):
        return TooSmall(pooled.n, minimum_n(q, confidence), quantile_name(q))
    return _bootstrap(
        len(trials), lambda choices: _pooled_quantiles(trials, choices, q), seed, confidence, 4_000
    )


def _bootstrap(
    count: int,
    values: Callable[[NDArray[np.int64]], NDArray[np.float64]],
    seed: int,
    confidence: float,
    resamples: int,
) -> Interval | TooSmall:
    # `values` computes the statistic of choices of trials, one per row, each a row of indices.
    needed = minimum_n(0.5, confidence)
    if count < needed:
        return TooSmall(count, needed, "an interval over trials")
    rng = np.random.default_rng(seed)
    drawn = np.sort(rng.integers(0, count, (resamples, count)), axis=1)
    distinct, times = np.unique(drawn, axis=0, return_counts=True)
    found = values(distinct)
    estimate = float(values(np.arange(count)[np.newaxis])[0])
    if np.isnan(found).any() or math.isnan(estimate):
        raise ValueError("the statistic is not a number for some of the trials")
    order = np.argsort(found)
    # Order statistics of the resamples instead of interpolation, which would make NaN of two infinities.
    reached = np.cumsum(times[order]) / resamples
    at = np.searchsorted(reached, _expanded_tails(count, confidence))
    low, high = found[order][np.minimum(at, found.size - 1)]
    return Interval(estimate, min(float(low), estimate), max(float(high), estimate), count, confidence)


def _pooled_quantiles(
    trials: Sequence[Population], choices: NDArray[np.int64], q: float
) -> NDArray[np.float64]:
    """Find the quantile of the pooled samples of each choice of trials, by bisection among all values that occur.

    A choice is never merged: how many of its samples a value is not exceeded by is the sum over its trials.
    """
    weights = (choices[:, :, np.newaxis] == np.arange(len(trials))).sum(axis=1)
    n = weights @ np.array([trial.n for trial in trials], dtype=np.int64)
    # As `_rank` computes it.
    ranks = np.clip(np.ceil(n * q * (1 - 1e-12)).astype(np.int64), 1, np.maximum(n, 1))
    values = np.unique(np.concatenate([trial.ok for trial in trials]))
    first, last = np.zeros(len(n), dtype=np.int64), np.full(len(n), values.size)
    while (first < last).any():
        middle = (first + last) // 2
        at = values[np.minimum(middle, values.size - 1)]
        reached = sum(
            weights[:, place] * np.searchsorted(trial.ok, at, side="right")
            for place, trial in enumerate(trials)
        )
        enough = reached >= ranks
        # Where the search is over already, the middle is its result and changes nothing.
        first, last = (
            np.where(enough | (first == last), first, middle + 1),
            np.where(enough & (first < last), middle, last),
        )
    # Beyond every value lie the operations that failed; a choice of empty trials alone has nothing else.
    return np.append(values.astype(np.float64), math.inf)[np.where(n > 0, first, values.size)]


@dataclass(frozen=True, slots=True)
class SteadyState:
    """Whether latency stayed level over a run."""

    steady: bool
    seconds: int
    """Full seconds with samples that were looked at."""
    change_per_10s: float | None
    """Relative change of the per-second median per 10 s (Theil-Sen slope); absent where a median is infinite."""

    def __str__(self) -> str:
        if self.change_per_10s is None:
            return "not steady: in some seconds most operations failed"
        word = "steady" if self.steady else "not steady"
        return f"{word}: median changes by {100 * self.change_per_10s:+.2f} % per 10 s over {self.seconds} s"


def steady_state(done_ns: ArrayLike, latency_ns: ArrayLike, ok: ArrayLike) -> SteadyState | TooSmall:
    """Judge whether latency stayed level: Theil-Sen slope of per-second medians within 1 % per 10 s.

    Args:
        done_ns: When each operation ended, on one clock.
        latency_ns: Its latency.
        ok: Whether it succeeded; a failure counts as infinite latency.

    Returns:
        The verdict; `TooSmall` below 10 full seconds with samples.

    Raises:
        ValueError: The three differ in length.
    """
    at = np.asarray(done_ns, dtype=np.int64).ravel()
    good = np.asarray(ok, dtype=bool).ravel()
    latency = np.where(good, np.asarray(latency_ns, dtype=np.float64).ravel(), np.inf)
    if not at.size == latency.size == good.size:
        raise ValueError("done_ns, latency_ns and ok must be of one length")
    seconds, medians = _per_second_medians(at, latency)
    if seconds.size < STEADY_SECONDS:
        return TooSmall(int(seconds.size), STEADY_SECONDS, "a verdict about steady state (in seconds)")
    if not np.isfinite(medians).all():
        return SteadyState(steady=False, seconds=int(seconds.size), change_per_10s=None)
    slope = float(distributions.theilslopes(medians, seconds).slope)
    # Below the timer's resolution a median may be 0; a nanosecond is the smallest level there is.
    change = 10 * slope / max(1.0, float(np.median(medians)))
    return SteadyState(steady=abs(change) <= STEADY_CHANGE, seconds=int(seconds.size), change_per_10s=change)


def _per_second_medians(
    at: NDArray[np.int64], latency: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Compute the lower median of each full second that has samples; the last, partial second is left out."""
    if not at.size:
        return np.empty(0, dtype=np.int64), np.empty(0)
    second = (at - at.min()) // 1_000_000_000
    full = second < second.max()
    second, latency = second[full], latency[full]
    order = np.lexsort((latency, second))
    seconds, first, count = np.unique(second[order], return_index=True, return_counts=True)
    return seconds, latency[order][first + (count - 1) // 2]


@dataclass(frozen=True, slots=True)
class Instability:
    """A reason to distrust a number, with the sentence to print beside it."""

    name: str
    value: float
    limit: float
    sentence: str


def instabilities(trials: ArrayLike, *, timer_floor: float | None = None) -> tuple[Instability, ...]:
    """Look for reasons to distrust one number that was measured in several trials.

    Args:
        trials: The number as each trial gave it, in one unit. Infinite ones are a reason by themselves.
        timer_floor: What the timer alone costs, in the same unit.

    Returns:
        One entry per reason. Fewer than two trials are a reason too: their spread is unknown.
    """
    values = np.asarray(trials, dtype=np.float64).ravel()
    if values.size < 2:
        return (
            Instability(
                "trials", float(values.size), 2.0, "Fewer than two trials: how far they spread is unknown."
            ),
        )
    infinite = int(np.count_nonzero(~np.isfinite(values)))
    if infinite:
        return (
            Instability(
                "failed",
                float(infinite),
                0.0,
                f"In {infinite} of {values.size} trials the number is infinite: too many operations failed.",
            ),
        )
    found = []
    mean = float(values.mean())
    if mean > 0:
        spread = float(values.std(ddof=1)) / mean
        if spread >= SPREAD_LIMIT:
            found.append(
                Instability(
                    "spread",
                    spread,
                    SPREAD_LIMIT,
                    f"The standard deviation between trials is {spread:.0%} of the mean.",
                )
            )
        extreme = float(np.abs(values - mean).max()) / mean
        if extreme >= EXTREME_LIMIT:
            found.append(
                Instability(
                    "extreme",
                    extreme,
                    EXTREME_LIMIT,
                    f"One trial lies {extreme:.0%} of the mean away from the mean.",
                )
            )
    if timer_floor is not None and float(np.median(values)) < TIMER_MULTIPLE * timer_floor:
        multiple = float(np.median(values)) / timer_floor
        found.append(
            Instability(
                "timer",
                multiple,
                TIMER_MULTIPLE,
                f"The value is only {multiple:.1f} times what the timer itself costs.",
            )
        )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class LittlesLaw:
    """Sessions that must have been in the system, beside those that were counted."""

    expected: float
    """Throughput x time in system."""
    counted: float
    agrees: bool

    def __str__(self) -> str:
        word = "agrees with" if self.agrees else "does not agree with"
        return f"throughput x time in system = {self.expected:,.0f}, which {word} {self.counted:,.0f} counted open sessions"


def littles_law(throughput_per_s: float, time_in_system_s: float, counted: float) -> LittlesLaw:
    """Cross-check the open sessions with Little's law (L = lambda W), within 10 %.

    Args:
        throughput_per_s: Operations completed per second, all sessions together.
        time_in_system_s: Mean time from one operation of a session to its next: latency plus think time.
        counted: Mean number of open sessions, as counted.

    Raises:
        ValueError: A number is negative or not finite.
    """
    for number in (throughput_per_s, time_in_system_s, counted):
        if not (math.isfinite(number) and number >= 0):
            raise ValueError(f"Little's law needs finite numbers that are not negative, not {number}")
    expected = throughput_per_s * time_in_system_s
    return LittlesLaw(expected, counted, abs(expected - counted) <= AGREEMENT * counted)


def _rank(n: int, q: float) -> int:
    # n * q may land a rounding error above a whole number: 0.95 * 100 must be rank 95.
    return min(n, max(1, math.ceil(n * q * (1 - 1e-12))))


def _expanded_tails(units: int, confidence: float) -> tuple[float, float]:
    miss = 1 - confidence
    tail = float(
        distributions.norm.cdf(math.sqrt(units / (units - 1)) * distributions.t.ppf(miss / 2, units - 1))
    )
    return tail, 1 - tail


def _check_open_unit(number: float, name: str) -> None:
    if not 0 < number < 1:
        raise ValueError(f"a {name} lies between 0 and 1, not at {number}")
