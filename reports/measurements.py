"""A run arranged for reporting: the cells that measured the same thing, side by side, with their samples.

A *condition* is everything that cells have in common but the number of sessions. A *point* is all cells of one
condition at one number of sessions: the repetitions of one measurement, whose raw samples are pooled. Cells that ran
interleaved with others (they began before the others had ended) are a condition of their own: what they measured
holds for a comparison, and is not mixed with what a cell measured alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bench.ceiling import Confirmation, is_success_only, not_asked, retrace
from bench.records import Ceiling, Cell, CellStatus, Conformance, Criterion, End, Subject, Verdict
from bench.samples import PHASES, Phase, Status
from bench.stats import Population, TooSmall, cluster_quantile, minimum_n, pool, population, quantile

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from bench.records import Run

QUANTILES = (0.50, 0.95, 0.99)
"""The quantiles that tables show."""
SEED = 20
"""Of the resampling of trials: fixed, so that the same records give the same intervals."""

CROSS_CHECKS = frozenset({"cross-client"})
"""Cells that stand in the cross-check of the engines and are no rung of a ladder."""


class Condition(NamedTuple):
    """What cells of one measurement have in common."""

    subject: Subject
    interleaved: bool
    """Whether the cells took turns with cells of another subject."""
    engine: str
    workload: str
    """As JSON with sorted keys."""
    server: str
    """As JSON with sorted keys."""

    @classmethod
    def of(cls, cell: Cell, *, interleaved: bool) -> Condition:
        """Return the condition of a cell."""
        return cls(
            cell.subject, interleaved, cell.engine, canonical_json(cell.workload), canonical_json(cell.server)
        )

    @property
    def workload_fields(self) -> dict[str, Any]:
        """The workload as it was recorded."""
        fields: dict[str, Any] = json.loads(self.workload)
        return fields

    @property
    def server_fields(self) -> dict[str, Any]:
        """The server's settings as they were recorded."""
        fields: dict[str, Any] = json.loads(self.server)
        return fields

    @property
    def open_loop(self) -> bool:
        """Whether operations were sent by a schedule, so that response and service time differ."""
        return self.arrival.startswith("open")

    @property
    def arrival(self) -> str:
        """How sessions came: `closed` where all of them were held, `burst`, or `open` with a rate."""
        return str(self.workload_fields.get("arrival", "closed"))


class Estimate(NamedTuple):
    """A quantile with its interval, and what the interval was computed over."""

    value: float
    low: float
    high: float
    n: int
    """Operations, failed ones included."""
    trials: int
    """Trials that were resampled; 0 when the interval is of order statistics of the pooled samples."""


@dataclass(frozen=True)
class Point:
    """All cells of one condition at one number of sessions."""

    condition: Condition
    sessions: int
    cells: tuple[Cell, ...]
    ends: Mapping[str, End]
    verdicts: tuple[Verdict, ...]
    """Verdicts by the written criterion; those of the success-only burst are apart."""
    tables: Mapping[str, pa.Table] = field(repr=False)
    """Raw samples by cell."""
    _trials: dict[tuple[Phase, bool, bool], tuple[Population, ...]] = field(
        default_factory=dict, repr=False, compare=False
    )
    _estimates: dict[tuple[Phase, float, bool, bool], Estimate | TooSmall] = field(
        default_factory=dict, repr=False, compare=False
    )

    def trials(self, phase: Phase, *, warmup: bool = False, response: bool = False) -> tuple[Population, ...]:
        """Return the population of a phase in every cell that has operations of it."""
        key = (phase, warmup, response)
        if key not in self._trials:
            parts = (
                population(table, phase, warmup=warmup, response=response) for table in self.tables.values()
            )
            self._trials[key] = tuple(part for part in parts if part.n)
        return self._trials[key]

    def population(self, phase: Phase, *, warmup: bool = False, response: bool = False) -> Population:
        """Return the pooled population of a phase."""
        return pool(self.trials(phase, warmup=warmup, response=response))

    def estimate(
        self, phase: Phase, q: float, *, warmup: bool = False, response: bool = False
    ) -> Estimate | TooSmall:
        """Estimate a quantile of a phase.

        With as many trials as a bootstrap needs, the interval comes from resampling whole trials; with fewer it is
        the order-statistic interval of the pooled samples, which knows only the spread inside the trials.
        """
        key = (phase, q, warmup, response)
        if key not in self._estimates:
            trials = self.trials(phase, warmup=warmup, response=response)
            if len(trials) >= minimum_n(0.5):
                self._estimates[key] = _over_trials(trials, q)
            else:
                self._estimates[key] = self.pooled(phase, q, warmup=warmup, response=response)
        return self._estimates[key]

    def pooled(
        self, phase: Phase, q: float, *, warmup: bool = False, response: bool = False
    ) -> Estimate | TooSmall:
        """Estimate a quantile of a phase with the order-statistic interval of the pooled samples."""
        found = quantile(self.population(phase, warmup=warmup, response=response), q)
        return (
            found if isinstance(found, TooSmall) else Estimate(found.value, found.low, found.high, found.n, 0)
        )

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases that were measured, in the order of a session's life."""
        return tuple(phase for phase in PHASES if self.population(phase).n)

    def criterion(self, *names: str) -> Criterion | None:
        """Return a criterion that this point was judged by, under the first of these names that occurs."""
        for name in names:
            for verdict in self.verdicts:
                for criterion in verdict.criteria:
                    if criterion.name == name:
                        return criterion
        return None


def _over_trials(trials: tuple[Population, ...], q: float) -> Estimate | TooSmall:
    found = cluster_quantile(trials, q, seed=SEED)
    if isinstance(found, TooSmall):
        return found
    return Estimate(found.value, found.low, found.high, sum(trial.n for trial in trials), len(trials))


class Ladder(NamedTuple):
    """One condition over its numbers of sessions, ascending."""

    condition: Condition
    points: tuple[Point, ...]

    def ceilings(self, measurements: Measurements) -> tuple[Ceiling, ...]:
        """Return what was searched under this subject and workload."""
        return tuple(
            ceiling
            for ceiling in measurements.ceilings
            if ceiling.subject == self.condition.subject
            and canonical_json(ceiling.workload) == self.condition.workload
        )


class Measurements:
    """A run with its samples read, once for all reports.

    Args:
        run: As `bench.records.read_run` returns it.

    Raises:
        BadSamples: The samples of a cell are damaged. A cell without a file of samples is no error.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.cells = run.of(Cell)
        self.ends: dict[str, End] = {end.cell: end for end in run.of(End)}
        self.ceilings = run.of(Ceiling)
        self.verdicts = run.of(Verdict)
        self.conformance = run.of(Conformance)
        self._tables = {
            cell.id: run.samples(cell.id)
            for cell in self.cells
            if is_usable(cell, self.status(cell.id)) and run.has_samples(cell.id)
        }
        self._interleaved = _interleaved(run)

    @property
    def in_process(self) -> str | None:
        """What keeps sessions out of a server of their own, in the adapter's words; nothing where there is a server."""
        remote = self.run.header.features.get("remote")
        return (remote.note or "the framework has no server") if remote and remote.level == "absent" else None

    def samples(self, cell: str) -> pa.Table | None:
        """Return the samples of a cell; nothing when there are none, or when they are not used (see `is_usable`)."""
        return self._tables.get(cell)

    def status(self, cell: str) -> CellStatus | None:
        """Return how a cell ended; nothing when it did not."""
        end = self.ends.get(cell)
        return None if end is None else end.status

    @property
    def verified(self) -> bool:
        """Whether conformance was run, passed, and no cell is marked otherwise."""
        return (
            bool(self.conformance)
            and all(record.status == "passed" for record in self.conformance)
            and not any(end.status == "unverified" for end in self.ends.values())
        )

    @cached_property
    def not_asked(self) -> tuple[str, ...]:
        """The criteria that later methods brought, and by which no trial of this run was judged."""
        return not_asked(self.run.header.method, self.verdicts)

    def confirmation(self, ceiling: Ceiling) -> Confirmation | None:
        """Return how often the result of a search passed again in fresh servers, by the verdicts of its trials.

        Nothing where it is not confirmed, and where the verdicts are not those of a search that ended like this.
        """
        if not ceiling.confirmed:
            return None
        workload = canonical_json(ceiling.workload)
        told = {
            cell.id
            for cell in self.cells
            if cell.subject == ceiling.subject and canonical_json(cell.workload) == workload
        }
        found = retrace(
            self.run.header.plan,
            (verdict for verdict in self.verdicts if verdict.cell in told and not is_success_only(verdict)),
        )
        if found is None or (found.lower, found.trials) != (ceiling.lower, ceiling.trials):
            return None
        return found.confirmation

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """Every point with samples, compiled before baseline, ascending in sessions."""
        groups: dict[tuple[Condition, int], list[Cell]] = {}
        for cell in sorted(self.cells, key=lambda cell: (cell.repetition, cell.order, cell.id)):
            if cell.id in self._tables:
                condition = Condition.of(cell, interleaved=cell.id in self._interleaved)
                groups.setdefault((condition, cell.sessions), []).append(cell)
        return tuple(
            Point(
                condition=condition,
                sessions=sessions,
                cells=tuple(cells),
                ends={cell.id: self.ends[cell.id] for cell in cells if cell.id in self.ends},
                verdicts=tuple(
                    verdict
                    for cell in cells
                    for verdict in self.verdicts
                    if verdict.cell == cell.id and not is_success_only(verdict)
                ),
                tables={cell.id: self._tables[cell.id] for cell in cells},
            )
            for (condition, sessions), cells in sorted(groups.items(), key=_compiled_first)
        )

    @cached_property
    def single(self) -> tuple[Point, ...]:
        """The points at one session that were measured alone."""
        return tuple(
            point
            for point in self.points
            if point.sessions == 1 and not point.condition.interleaved and point.condition.arrival == "closed"
        )

    @cached_property
    def arriving(self) -> tuple[Point, ...]:
        """The points at which sessions arrived by themselves."""
        return tuple(point for point in self.points if point.condition.open_loop)

    @cached_property
    def paired(self) -> tuple[Point, ...]:
        """The points at one session whose cells took turns with those of another subject."""
        return tuple(point for point in self.points if point.sessions == 1 and point.condition.interleaved)

    @cached_property
    def ladders(self) -> tuple[Ladder, ...]:
        """The conditions that were measured at more than one session, all of them held."""
        groups: dict[Condition, list[Point]] = {}
        checked = {cell for cell in CROSS_CHECKS if cell in self.ends}
        for point in self.points:
            if point.condition.arrival != "closed" or checked & {cell.id for cell in point.cells}:
                continue
            groups.setdefault(point.condition, []).append(point)
        return tuple(
            Ladder(condition, tuple(points))
            for condition, points in groups.items()
            if any(point.sessions > 1 for point in points)
        )


class Flow(NamedTuple):
    """Steps through the system while every session of a cell is playing."""

    steps_per_s: float
    mean_step_ns: float
    seconds: float
    left_out: int
    """Sessions with a failed step, which are not looked at."""


def flow(samples: pa.Table) -> Flow | None:
    """Measure the steady part of a cell: from when the last session has begun to when the first one has finished.

    Before and after it, sessions that have not begun or are already done take part in no step, and a rate over them
    would say less than what the open sessions ask for. A step that lies partly inside counts in part.

    Returns:
        The flow; nothing where the steady part is shorter than a mean step, so that no rate can be told.
    """
    steps = equal(samples, "phase", Phase.STEP)
    session, start, ns = (samples.column(name).to_numpy()[steps] for name in ("session", "start_ns", "ns"))
    broken = np.unique(session[~equal(samples, "status", Status.OK)[steps]])
    whole = ~np.isin(session, broken) & (ns > 0)
    session, start, ns = session[whole], start[whole], ns[whole]
    if not ns.size:
        return None
    done = start + ns
    numbers, position = np.unique(session, return_inverse=True)
    first, last = np.full(numbers.size, np.iinfo(np.int64).max), np.zeros(numbers.size, dtype=np.int64)
    np.minimum.at(first, position, start)
    np.maximum.at(last, position, done)
    begin, end = int(first.max()), int(last.min())
    if end - begin < ns.mean():
        return None
    inside = np.clip(np.minimum(done, end) - np.maximum(start, begin), 0, None)
    passed = float((inside / ns).sum())
    seconds = (end - begin) / 1e9
    return Flow(passed / seconds, float(inside.sum()) / passed, seconds, int(broken.size))


def equal(samples: pa.Table, column: str, word: str) -> NDArray[np.bool_]:
    """Say which samples have a word in a coded column."""
    same: NDArray[np.bool_] = samples.column(column).cast("string").to_numpy() == word
    return same


def is_usable(cell: Cell, status: CellStatus | None) -> bool:
    """Whether the samples of a cell are used.

    With one session an interruption only shortens the list of operations. With many, what is missing is not missing
    at random: the cell says nothing about its workload.
    """
    whole: frozenset[CellStatus] = frozenset({"ok", "failed", "unverified", "timeout"})
    return status in whole or (cell.sessions == 1 and status in {None, "interrupted"})


def _interleaved(run: Run) -> frozenset[str]:
    """Find the cells that were under way at the same time as another one."""
    under_way: set[str] = set()
    found: set[str] = set()
    for record in run.records:
        if isinstance(record, Cell):
            under_way.add(record.id)
            if len(under_way) > 1:
                found |= under_way
        elif isinstance(record, End):
            under_way.discard(record.cell)
    return frozenset(found)


def canonical_json(fields: Mapping[str, object]) -> str:
    """Write fields so that equal ones are equal as text."""
    return json.dumps(fields, sort_keys=True, ensure_ascii=False)


def _compiled_first(item: tuple[tuple[Condition, int], list[Cell]]) -> tuple[bool, Condition, int]:
    (condition, sessions), _ = item
    return (condition.subject != "compiled", condition, sessions)
