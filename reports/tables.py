"""The tables of a report as CSV, for who computes with them.

Times are nanoseconds, sizes bytes. An empty field means that there is no such number; the `state` beside a quantile
says why: `measured`, `too_few` operations, or `failed` where the rank falls among failed operations. An end of an
interval that falls among them is empty, too. In `phases.csv` and `ladder.csv` an interval comes from resampling trials
where there are enough of them, as in the report; in `quantiles.csv` it is always made of order statistics of the
pooled operations.
"""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING

from bench.ceiling import is_success_only
from bench.records import Cost, Live, Ratio, Rollouts
from bench.samples import PHASES
from bench.stats import TooSmall, quantile_name
from reports.ceilings import held_verdicts
from reports.measurements import QUANTILES, canonical_json
from reports.server import memory_per_session

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bench.samples import Phase
    from reports.measurements import Condition, Estimate, Measurements, Point

RAW_QUANTILES = (0.01, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99, 0.995, 0.999)
"""The quantiles of `quantiles.csv`."""

Field = str | int | float | None
_CONDITION = ("subject", "engine", "workload", "server")


def tables(measurements: Measurements) -> dict[str, bytes]:
    """Return file name to content; those of what only some frameworks have are there when it was measured."""
    found = {
        "phases.csv": _wide(measurements.single),
        "ladder.csv": _ladder(measurements),
        "verdicts.csv": _verdicts(measurements),
        "ceilings.csv": _ceilings(measurements),
        "comparisons.csv": _comparisons(measurements),
        "quantiles.csv": _quantiles(measurements),
    }
    if live := measurements.run.of(Live):
        found["live.csv"] = _records(live)
    if rollouts := measurements.run.of(Rollouts):
        found["rollouts.csv"] = _records(rollouts)
    return found


def _records(records: Sequence[Live | Rollouts]) -> bytes:
    columns = [name for name in type(records[0]).model_fields if name != "kind"]
    return _write(columns, ([getattr(record, name) for name in columns] for record in records))


def _write(columns: Sequence[str], rows: Iterable[Sequence[Field]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_field(value) for value in row] for row in rows)
    return text.getvalue().encode()


def _field(value: Field) -> str | int:
    if value is None:
        return ""
    if isinstance(value, float):
        if not math.isfinite(value):
            return ""
        return int(value) if value.is_integer() else repr(value)
    return value


def _condition(condition: Condition) -> tuple[Field, ...]:
    return (condition.subject, condition.engine, condition.workload, condition.server)


def _estimate(estimate: Estimate | TooSmall) -> tuple[Field, ...]:
    if isinstance(estimate, TooSmall):
        return (None, None, None, "too_few")
    return (
        estimate.value,
        estimate.low,
        estimate.high,
        "measured" if math.isfinite(estimate.value) else "failed",
    )


def _estimate_columns(prefix: str) -> tuple[str, ...]:
    return (f"{prefix}_ns", f"{prefix}_low_ns", f"{prefix}_high_ns", f"{prefix}_state")


def _kinds(point: Point) -> tuple[tuple[str, bool, bool], ...]:
    """Name the populations of a phase: the measured ones, as response where that differs, and the warm-up."""
    kinds = [("service", False, False)]
    if point.condition.open_loop:
        kinds.append(("response", True, False))
    return (*kinds, ("warmup", False, True))


def _populations(point: Point) -> Iterable[tuple[Phase, str, bool, bool]]:
    for phase in PHASES:
        for kind, response, warmup in _kinds(point):
            if point.population(phase, warmup=warmup, response=response).n:
                yield phase, kind, response, warmup


_WIDE = ("sessions", "phase", "kind", "trials", "n", "failures")


def _wide_rows(points: Iterable[Point]) -> Iterable[tuple[Field, ...]]:
    for point in points:
        for phase, kind, response, warmup in _populations(point):
            measured = point.population(phase, warmup=warmup, response=response)
            estimates = (point.estimate(phase, q, warmup=warmup, response=response) for q in QUANTILES)
            trials = len(point.trials(phase, warmup=warmup, response=response))
            yield (
                *_condition(point.condition),
                point.sessions,
                str(phase),
                kind,
                trials,
                measured.n,
                measured.failures,
                *(field for estimate in estimates for field in _estimate(estimate)),
            )


def _wide(points: Iterable[Point]) -> bytes:
    quantiles = (column for q in QUANTILES for column in _estimate_columns(quantile_name(q)))
    return _write((*_CONDITION, *_WIDE, *quantiles), _wide_rows(points))


def _ladder(measurements: Measurements) -> bytes:
    quantiles = (column for q in QUANTILES for column in _estimate_columns(quantile_name(q)))
    server = (
        "server_rss_bytes",
        "server_bytes_per_session",
        "server_threads",
        "server_fds",
        "server_loop_lag_p99_ns",
    )
    points = {
        (point.condition, point.sessions): point for ladder in measurements.ladders for point in ladder.points
    }
    rows = []
    for row in _wide_rows(points.values()):
        subject, engine, workload, settings, sessions = row[:5]
        point = next(
            point
            for (condition, number), point in points.items()
            if (*_condition(condition), number) == (subject, engine, workload, settings, sessions)
        )
        rows.append((*row, *_server(point)))
    return _write((*_CONDITION, *_WIDE, *quantiles, *server), rows)


def _server(point: Point) -> tuple[Field, ...]:
    peaks = [end.server_peak for end in point.ends.values() if end.server_peak is not None]

    def most(values: Iterable[int | None]) -> int | None:
        return max((value for value in values if value is not None), default=None)

    return (
        most(peak.rss_bytes for peak in peaks),
        memory_per_session(point),
        most(peak.threads for peak in peaks),
        most(peak.fds for peak in peaks),
        most(peak.loop_lag_p99_ns for peak in peaks),
    )


def _verdicts(measurements: Measurements) -> bytes:
    cells = {cell.id: cell for cell in measurements.cells}
    held = [(cell, verdict, "slo") for cell, verdict in held_verdicts(measurements)]
    bursts = [
        (cells[verdict.cell], verdict, "success_only")
        for verdict in measurements.verdicts
        if is_success_only(verdict)
    ]
    rows = (
        (
            cell.id,
            cell.subject,
            verdict.sessions,
            cell.repetition,
            judged_by,
            _truth(verdict.passed),
            criterion.name,
            _truth(criterion.passed),
            criterion.value,
            criterion.limit,
            criterion.unit,
            criterion.note,
        )
        for cell, verdict, judged_by in held + bursts
        for criterion in verdict.criteria
    )
    columns = (
        "cell",
        "subject",
        "sessions",
        "trial",
        "judged_by",
        "passed",
        "criterion",
        "criterion_passed",
        "value",
        "limit",
        "unit",
        "note",
    )
    return _write(columns, rows)


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _ceilings(measurements: Measurements) -> bytes:
    rows = (
        (
            found.subject,
            canonical_json(found.workload),
            found.criterion,
            found.lower,
            found.upper,
            found.stopped_by,
            _truth(found.censored),
            _truth(found.confirmed),
            *(measurements.confirmation(found) or (None, None)),
            found.trials,
            canonical_json(found.configured_caps),
        )
        for found in measurements.ceilings
    )
    columns = (
        "subject",
        "workload",
        "criterion",
        "lower",
        "upper",
        "stopped_by",
        "censored",
        "confirmed",
        "confirming_passed",
        "confirming_trials",
        "trials",
        "configured_caps",
    )
    return _write(columns, rows)


def _comparisons(measurements: Measurements) -> bytes:
    ratios: list[tuple[Field, ...]] = [
        ("ratio", ratio.name, str(ratio.phase), ratio.ratio, ratio.low, ratio.high, "", ratio.n, ratio.pairs)
        for ratio in measurements.run.of(Ratio)
    ]
    costs: list[tuple[Field, ...]] = [
        ("cost", cost.name, None, cost.value, cost.low, cost.high, cost.unit, cost.n, None)
        for cost in measurements.run.of(Cost)
    ]
    return _write(("kind", "name", "phase", "value", "low", "high", "unit", "n", "pairs"), ratios + costs)


def _quantiles(measurements: Measurements) -> bytes:
    rows = (
        (
            *_condition(point.condition),
            point.sessions,
            str(phase),
            kind,
            quantile_name(q),
            *_pooled(point, phase, q, response=response, warmup=warmup),
        )
        for point in measurements.points
        for phase, kind, response, warmup in _populations(point)
        for q in RAW_QUANTILES
    )
    return _write(
        (
            *_CONDITION,
            "sessions",
            "phase",
            "kind",
            "quantile",
            "n",
            "failures",
            *("value_ns", "low_ns", "high_ns", "state"),
        ),
        rows,
    )


def _pooled(point: Point, phase: Phase, q: float, *, response: bool, warmup: bool) -> tuple[Field, ...]:
    measured = point.population(phase, warmup=warmup, response=response)
    return (
        measured.n,
        measured.failures,
        *_estimate(point.pooled(phase, q, warmup=warmup, response=response)),
    )
