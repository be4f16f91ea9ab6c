"""The concurrency ceiling: a written criterion for one trial, and the search for the largest N that meets it.

Nothing here starts, waits or measures. `evaluate` judges the numbers of one trial; `Search` asks for trials and is
told verdicts, so it can be driven by anything, interrupted at any point, and still say its bracket.

Where a trial is too small for a statistical bound, the criterion is replaced by a stricter one that needs no
statistics, under another name, and says so in its note:

* `success` (Wilson lower bound of the share of sessions) needs 73 sessions before even a perfect trial can pass. Below
  that it becomes `success_all`: every session must succeed. At 73 both rules ask for the same.
* `step_p99`, `connect_p99` and `reset_p99` (upper bound of the p99) need 299 operations. Below that they become
  `step_max`, `connect_max` and `reset_max`: the largest observed value must meet the limit. From 299 to 367 operations
  the upper bound *is* the largest value, so both rules ask for the same there too; below, the largest value bounds
  the p99 with less than 95 % confidence, and the note says with how much.

So a small trial can fail where a larger one would pass, never the other way round, and no bound is claimed that the
data do not carry.
"""

from __future__ import annotations

import math
from collections import Counter, abc
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from bench.records import Criterion, Generator, StoppedBy, Verdict
from bench.stats import Population, TooSmall, quantile, wilson, wilson_minimum_n

P99 = 0.99
FIRST_ERRORS = 10
"""Distinct error texts that a verdict keeps, the most frequent first."""

Abort = Literal["limit", "memory", "fds", "server_died"]
"""Why a trial could not be carried out: a configured cap, no memory, no descriptors, or a server that died."""

CAUSES: Final[dict[str, StoppedBy]] = {
    "server_died": "server_died",
    "fds": "fds",
    "memory": "memory",
    "limit": "limit",
    "client_cpu": "client",
    "client_loop_lag": "client",
    "success": "success",
    "success_all": "success",
    "mean_success": "success",
    "held": "held",
    "connect_p99": "connect",
    "connect_max": "connect",
    "reset_p99": "reset",
    "reset_max": "reset",
    "step_p99": "step_p99",
    "step_max": "step_p99",
    "freed": "leak",
}
"""Criterion to what a ceiling is stopped by. When several fail, the first of this order is the cause: an aborted trial
explains the rest; a saturated generator makes the other numbers its own; lost sessions come before slow ones, and both
before sessions that stay behind."""

SUCCESS_ONLY: Final = "mean_success"
"""The criterion of the success-only burst."""

BROUGHT: Final[dict[int, tuple[str, ...]]] = {2: ("freed",)}
"""Method, as in `bench.records.METHOD`, to the criteria that it was the first to ask of every trial."""

NOT_THE_SYSTEM: Final[frozenset[StoppedBy]] = frozenset({"client", "limit", "interrupted"})
"""Causes that say nothing about how much the system itself could hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """The numbers of the written criterion."""

    success: float = 0.95
    """(a) The Wilson lower bound of the share of sessions that succeed."""
    step_factor: float = 1.5
    step_budget_ns: int = 100_000_000
    """(b) p99(step) may be `step_factor` times the wait of a step, plus this."""
    connect_budget_ns: int = 2_000_000_000
    """(c) p99(connect), from asking for the session (the gate is behind) until it exists."""
    reset_budget_ns: int = 1_000_000_000
    """(c) p99(reset)."""
    held: float = 0.99
    """(d) Sessions open at the same time, as a share of those asked for."""
    generator_cpu: float = 0.80
    """(e) CPU of the load generator, as a share of its processors, stays below this."""
    generator_lag: float = 0.05
    """(e) p99 of its own loop lag, as a share of the wait, stays below this. A wait shorter than the step budget
    counts as long as that budget: the criterion on steps cannot see a smaller lag either."""

    def __post_init__(self) -> None:
        if not 0 < self.success < 1:
            raise ValueError(
                f"the share of success lies between 0 and 1, not at {self.success}: no sample proves 1"
            )

    def step_limit_ns(self, wait_ns: int) -> int:
        """Return the limit of p99(step) for a step that waits so long."""
        return round(self.step_factor * wait_ns) + self.step_budget_ns

    def lag_limit_ns(self, wait_ns: int) -> int:
        """Return the limit of the generator's loop lag."""
        return round(self.generator_lag * max(wait_ns, self.step_budget_ns))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The numbers of one cell that held (or tried to hold) some sessions at once."""

    cell: str
    sessions: int
    """How many were asked for."""
    succeeded: int
    """Sessions in which every operation succeeded, from connect to close."""
    peak_open: int | None
    """Most sessions open at the same time, counted at the client's barrier."""
    server_open: int | None = None
    """The same by the server's own count, without those of before; absent where it was not asked."""
    left: int | None = None
    """Sessions that the server still counts after all were closed, without those of before; absent where it was not asked."""
    is_held: bool = True
    """False where sessions come and go, so that nobody asked for so many at the same time."""
    wait_ns: int
    """How long a step waits by design: the tool's own time."""
    connect: Population
    reset: Population
    step: Population
    """Warm-up left out. In an open loop: response times, from the intended start."""
    generator: Generator | None
    """Absent only where no load generator stands beside the system: in process."""
    aborted: Abort | None = None
    abort_reason: str = ""
    errors: abc.Mapping[str, int] = field(default_factory=dict)
    """Error text to how often it occurred."""

    def __post_init__(self) -> None:
        if not 0 <= self.succeeded <= self.sessions or self.sessions < 1:
            raise ValueError(f"{self.succeeded} of {self.sessions} sessions cannot have succeeded")


def judge_generator(
    *,
    cpu_s: float,
    wall_s: float,
    cores: int,
    loop_lag_p99_ns: int | None,
    wait_ns: int,
    slo: Slo | None = None,
) -> Generator:
    """Record what the load generator needed, and whether it was saturated.

    Args:
        cpu_s: CPU seconds of all its processes.
        wall_s: Seconds that the load lasted.
        cores: Processors that its processes could use at the same time: one per process, at most those there are.
        loop_lag_p99_ns: p99 of the lag of its own event loops; absent where it has none.
        wait_ns: How long a step waits by design.
        slo: The limits.
    """
    slo = slo or Slo()
    lagging = loop_lag_p99_ns is not None and loop_lag_p99_ns >= slo.lag_limit_ns(wait_ns)
    return Generator(
        cpu_s=cpu_s,
        wall_s=wall_s,
        cores=cores,
        loop_lag_p99_ns=loop_lag_p99_ns,
        saturated=cpu_s >= slo.generator_cpu * wall_s * cores or lagging,
    )


def evaluate(trial: Trial, slo: Slo | None = None) -> Verdict:
    """Judge one trial by the written criterion.

    Every part is evaluated, also after one has failed, so that a report can show all of them.
    """
    slo = slo or Slo()
    criteria = [
        *_aborted(trial),
        *_generator(trial, slo),
        _success(trial, slo),
        *_held(trial, slo),
        _p99("connect", trial.connect, slo.connect_budget_ns),
        _p99("reset", trial.reset, slo.reset_budget_ns),
        _p99("step", trial.step, slo.step_limit_ns(trial.wait_ns)),
        *_freed(trial),
    ]
    return _verdict(trial.cell, trial.sessions, criteria, trial.errors)


def evaluate_success_only(trials: abc.Sequence[Trial], share: float = 0.95) -> Verdict:
    """Judge the repetitions of one burst by mean success alone, as the published benchmark does.

    This says how large a burst may be, not how many sessions are held: it knows no latency and no concurrency.

    Args:
        trials: The repetitions, all of one size.
        share: What the mean of their shares of success must reach.

    Raises:
        ValueError: There are none, or they differ in size.
    """
    sizes = {trial.sessions for trial in trials}
    if len(sizes) != 1:
        raise ValueError(f"repetitions of one burst have one size, not {sorted(sizes)}")
    sessions = sizes.pop()
    errors: Counter[str] = Counter()
    for trial in trials:
        errors.update(trial.errors)
    mean = sum(trial.succeeded for trial in trials) / (sessions * len(trials))
    criterion = Criterion(
        name=SUCCESS_ONLY,
        passed=mean >= share,
        value=mean,
        limit=share,
        unit="share",
        note=f"mean of {len(trials)} bursts; no latency, no interval",
    )
    return _verdict(trials[-1].cell, sessions, [criterion], errors)


def _verdict(cell: str, sessions: int, criteria: list[Criterion], errors: abc.Mapping[str, int]) -> Verdict:
    return Verdict(
        cell=cell,
        sessions=sessions,
        passed=all(criterion.passed for criterion in criteria),
        criteria=tuple(criteria),
        first_errors=dict(Counter(errors).most_common(FIRST_ERRORS)),
    )


def _aborted(trial: Trial) -> list[Criterion]:
    if trial.aborted is None:
        return []
    return [
        Criterion(
            name=trial.aborted, passed=False, value=1, limit=0, unit="aborted trials", note=trial.abort_reason
        )
    ]


def _success(trial: Trial, slo: Slo) -> Criterion:
    n = trial.sessions
    enough = wilson_minimum_n(slo.success)
    share = wilson(trial.succeeded, n)
    if n < enough:
        return Criterion(
            name="success_all",
            passed=trial.succeeded == n,
            value=share.value,
            limit=1,
            unit="share",
            note=f"{n} sessions are too few for a lower bound of {slo.success:.0%} ({enough} are needed): all must succeed",
        )
    return Criterion(
        name="success",
        passed=share.low >= slo.success,
        value=share.low,
        limit=slo.success,
        unit="share",
        note=f"Wilson lower bound of {trial.succeeded} of {n}",
    )


def _p99(phase: str, population: Population, limit_ns: int) -> Criterion:
    n = population.n
    if n == 0:
        return Criterion(name=f"{phase}_max", passed=False, limit=limit_ns, unit="ns", note="not measured")
    estimate = quantile(population, P99)
    if isinstance(estimate, TooSmall):
        name, bound = f"{phase}_max", population.at_rank(n)
        note = (
            f"largest of {n}: too few for a bound of the p99 ({estimate.needed} are needed), "
            f"which it covers with {-math.expm1(n * math.log(P99)):.0%} confidence"
        )
    else:
        name, bound = f"{phase}_p99", estimate.high
        note = f"upper bound of the p99 of {n}"
    if math.isinf(bound):
        note = f"infinite, as {population.failures} failed: {note}"
    return Criterion(
        name=name,
        passed=bound <= limit_ns,
        value=None if math.isinf(bound) else round(bound),
        limit=limit_ns,
        unit="ns",
        note=note,
    )


def _held(trial: Trial, slo: Slo) -> list[Criterion]:
    if not trial.is_held:
        return []
    needed = slo.held * trial.sessions
    if trial.peak_open is None:
        return [Criterion(name="held", passed=False, limit=needed, unit="sessions", note="not measured")]
    counts = [trial.peak_open] if trial.server_open is None else [trial.peak_open, trial.server_open]
    note = (
        ""
        if trial.server_open is None
        else f"the generator counted {trial.peak_open:,}, the server {trial.server_open:,}"
    )
    return [
        Criterion(
            name="held",
            passed=min(counts) >= needed,
            value=min(counts),
            limit=needed,
            unit="sessions",
            note=note,
        )
    ]


def _freed(trial: Trial) -> list[Criterion]:
    if trial.left is None:
        return []
    # Whoever lost its session said no goodbye, and the server may keep it until it is reaped.
    excused = trial.sessions - trial.succeeded
    return [
        Criterion(
            name="freed",
            passed=trial.left <= excused,
            value=trial.left,
            limit=excused,
            unit="sessions",
            note="still open on the server after all were closed; as many as failed may be",
        )
    ]


def _generator(trial: Trial, slo: Slo) -> list[Criterion]:
    own = trial.generator
    if own is None:
        return []
    share = own.cpu_s / (own.wall_s * own.cores)
    lag, lag_limit = own.loop_lag_p99_ns, slo.lag_limit_ns(trial.wait_ns)
    return [
        Criterion(
            name="client_cpu",
            passed=share < slo.generator_cpu,
            value=share,
            limit=slo.generator_cpu,
            unit="share",
            note=f"of {own.cores} processor{'s' if own.cores > 1 else ''}",
        ),
        Criterion(
            name="client_loop_lag",
            passed=lag is not None and lag < lag_limit,
            value=lag,
            limit=lag_limit,
            unit="ns",
            note="p99" if lag is not None else "not measured",
        ),
    ]


def is_success_only(verdict: Verdict) -> bool:
    """Whether a verdict is about the success-only burst and not about held sessions."""
    return any(criterion.name == SUCCESS_ONLY for criterion in verdict.criteria)


def not_asked(method: int, verdicts: abc.Iterable[Verdict]) -> tuple[str, ...]:
    """Return the criteria that later methods than that of a run brought, and by which no trial of the run was judged.

    Args:
        method: Method of the run.
        verdicts: All of its verdicts.
    """
    judged = {
        criterion.name
        for verdict in verdicts
        if not is_success_only(verdict)
        for criterion in verdict.criteria
    }
    later = (names for brought, names in sorted(BROUGHT.items()) if brought > method)
    return tuple(name for names in later for name in names if judged and name not in judged)


def cause(verdict: Verdict) -> StoppedBy | None:
    """Say what a verdict failed by; nothing when it passed."""
    failed = {criterion.name for criterion in verdict.criteria if not criterion.passed}
    return next((CAUSES[name] for name in CAUSES if name in failed), None)


Stage = Literal["double", "bisect", "confirm"]


class Ask(NamedTuple):
    """The trial that a search wants next."""

    sessions: int
    stage: Stage
    fresh_server: bool
    """Whether the trial must run in a newly started server."""


class Point(NamedTuple):
    """What was decided about one number of sessions."""

    sessions: int
    stage: Stage
    passed: bool
    stopped_by: StoppedBy | None
    trials: int
    failed: int
    """Those of them that failed; a point that passed may have one, as it has a second chance."""


class Confirmation(NamedTuple):
    """How a result fared when it was tried again, each time in a fresh server."""

    passed: int
    trials: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """What a search knows."""

    lower: int
    """The largest number that passed and below which none failed; 0 when none did."""
    upper: int | None
    """The smallest number above it at which the system itself failed; absent when none was seen."""
    stopped_by: StoppedBy
    censored: bool
    """True when something other than the system keeps `lower` from being higher."""
    confirmed: bool
    """Whether `lower` passed the confirmation."""
    finished: bool
    trials: int
    """Trials run in all."""
    points: tuple[Point, ...]
    """Every decision, in order."""

    @property
    def confirmation(self) -> Confirmation | None:
        """The trials in fresh servers that confirmed `lower`, failed ones included; nothing where it is not confirmed."""
        return next(
            (
                Confirmation(point.trials - point.failed, point.trials)
                for point in self.points
                if point.stage == "confirm" and point.passed
            ),
            None,
        )

    def __str__(self) -> str:
        if self.censored:
            why = {"client": "client-limited", "limit": "limited by a cap", "interrupted": "interrupted"}
            text = f"{why[self.stopped_by]}, at least {self.lower:,}"
        elif self.lower == 0:
            text = f"none: already {self.upper:,} fails by {self.stopped_by}"
        else:
            text = f"{self.lower:,} ({self.upper:,} fails by {self.stopped_by})"
        if not self.finished and self.stopped_by != "interrupted":
            text += ", search interrupted"
        return text if self.confirmed or self.lower == 0 else f"{text}, not confirmed"


class Search:
    """Look for the largest number of sessions that passes: doubling, bisection, confirmation.

    Give the trial that `ask` names to whatever runs it, hand its verdict to `tell`, and repeat until `ask` is None::

        search = Search(start=8, cap=4096)
        while (ask := search.ask) is not None:
            search.tell(evaluate(run(ask)))
        print(search.bracket())

    A point (a number of sessions at one stage) passes when as many trials in a row pass as its stage wants. A failing
    trial breaks the row; the point then gets one second chance from the beginning, and fails with the next failing
    trial. So every accepted row consists of passing trials only, and one disturbed trial decides nothing.

    Doubling wants one trial per point. Bisection narrows the bracket until upper - lower is at most `tolerance` of
    lower (or 1). The result is then tried again in fresh servers; if it fails there, it becomes the upper end, and the
    search goes on below it.

    A point that fails only because the generator was saturated or a configured cap was hit ends the doubling as well,
    but it is no upper bound of the system: the result is then censored.

    Args:
        start: First number of sessions.
        cap: Largest number of sessions to try.
        tolerance: Relative width of the bracket to stop at.
        trials: Trials in a row that a point of the bisection needs.
        confirmations: Trials in a row, each in a fresh server, that the result needs; 0 leaves it unconfirmed.

    Raises:
        ValueError: The numbers make no search.
    """

    def __init__(
        self,
        *,
        start: int = 8,
        cap: int = 65_536,
        tolerance: float = 0.10,
        trials: int = 3,
        confirmations: int = 5,
    ) -> None:
        if not 1 <= start <= cap or tolerance < 0 or trials < 1 or confirmations < 0:
            raise ValueError(
                f"no search: start {start} must lie between 1 and the cap {cap}, tolerance {tolerance} and "
                f"confirmations {confirmations} must not be negative, trials {trials} must be at least 1"
            )
        self._start = start
        self._cap = cap
        self._tolerance = tolerance
        self._trials = trials
        self._confirmations = confirmations
        self._points: list[Point] = []
        self._told = 0
        self._confirmed = False
        self._asks = self._search()
        self._ask: Ask | None = next(self._asks)

    @property
    def ask(self) -> Ask | None:
        """The trial that is wanted next; None when the search is over."""
        return self._ask

    def tell(self, verdict: Verdict) -> None:
        """Report the verdict of the trial that was asked for.

        Raises:
            ValueError: Nothing was asked for, the verdict is of another number of sessions, or it failed without
                a failing criterion of `CAUSES`.
        """
        if self._ask is None:
            raise ValueError("the search is over; it asked for no trial")
        if verdict.sessions != self._ask.sessions:
            raise ValueError(f"asked for {self._ask.sessions} sessions, was told about {verdict.sessions}")
        if not verdict.passed and cause(verdict) is None:
            raise ValueError(f"the verdict of cell {verdict.cell} failed by no criterion known here")
        self._told += 1
        try:
            self._ask = self._asks.send(verdict)
        except StopIteration:
            self._ask = None

    def bracket(self) -> Bracket:
        """Say what is known now, whether or not the search is over."""
        lower, failing = self._bounds()
        finished = self._ask is None
        # Above a point that failed by the generator, the system itself may have been seen to fail.
        by_system = [point.sessions for point in self._failures() if point.stopped_by not in NOT_THE_SYSTEM]
        if failing is not None and failing.stopped_by is not None:
            stopped_by = failing.stopped_by
        else:
            stopped_by = "limit" if finished else "interrupted"
        return Bracket(
            lower=lower,
            upper=min(by_system, default=None),
            stopped_by=stopped_by,
            censored=stopped_by in NOT_THE_SYSTEM,
            confirmed=self._confirmed,
            finished=finished,
            trials=self._told,
            points=tuple(self._points),
        )

    def _failures(self) -> list[Point]:
        return [point for point in self._points if not point.passed]

    def _bounds(self) -> tuple[int, Point | None]:
        failing = min(self._failures(), key=lambda point: point.sessions, default=None)
        passing = (
            point.sessions
            for point in self._points
            if point.passed and (failing is None or point.sessions < failing.sessions)
        )
        return max(passing, default=0), failing

    def _search(self) -> abc.Generator[Ask, Verdict, None]:
        sessions = self._start
        while (yield from self._decide(sessions, "double", 1)) and sessions < self._cap:
            sessions = min(2 * sessions, self._cap)
        while True:
            yield from self._bisect()
            lower, _ = self._bounds()
            if lower == 0 or self._confirmations == 0:
                return
            if (yield from self._decide(lower, "confirm", self._confirmations)):
                self._confirmed = True
                return

    def _bisect(self) -> abc.Generator[Ask, Verdict, None]:
        while True:
            lower, failing = self._bounds()
            if failing is None or failing.sessions - lower <= max(1, self._tolerance * lower):
                return
            yield from self._decide((lower + failing.sessions) // 2, "bisect", self._trials)

    def _decide(self, sessions: int, stage: Stage, wanted: int) -> abc.Generator[Ask, Verdict, bool]:
        failed: list[Verdict] = []
        row = trials = 0
        while row < wanted and len(failed) < 2:
            verdict = yield Ask(sessions, stage, fresh_server=stage == "confirm")
            trials += 1
            if verdict.passed:
                row += 1
            else:
                row = 0
                failed.append(verdict)
        passed = row == wanted
        stopped_by = None if passed else _common_cause(failed)
        self._points.append(Point(sessions, stage, passed, stopped_by, trials, len(failed)))
        return passed


def retrace(plan: abc.Mapping[str, Any], verdicts: abc.Iterable[Verdict]) -> Bracket | None:
    """Follow a search again by the verdicts that it was told, in their order: they decide what it asked for.

    Args:
        plan: As the header of a run keeps it.
        verdicts: Those of its trials.

    Returns:
        What the search knew after the last of them; nothing where they are not the verdicts of a search by this plan.
    """
    try:
        search = Search(
            start=min(plan["start"], plan["cap"]),
            **{name: plan[name] for name in ("cap", "tolerance", "trials", "confirmations")},
        )
        for verdict in verdicts:
            search.tell(verdict)
    except (KeyError, TypeError, ValueError):
        return None
    return search.bracket()


def _common_cause(failed: abc.Sequence[Verdict]) -> StoppedBy:
    causes = {found for verdict in failed if (found := cause(verdict)) is not None}
    # A trial that the system failed on its own is not excused by another in which the generator was saturated.
    by_system = causes - NOT_THE_SYSTEM
    return next(stopped_by for stopped_by in CAUSES.values() if stopped_by in (by_system or causes))
