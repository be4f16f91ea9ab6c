"""The report of open arrivals: what sessions waited that came by themselves, by both clocks."""

from __future__ import annotations

import numpy as np

from bench.ceiling import cause
from bench.samples import Phase, Status
from bench.stats import littles_law
from reports import notation
from reports.ceilings import criterion_entry, criterion_names
from reports.document import Block, Column, Entry, Section, Strong, Table, paragraph
from reports.latency import phase_table
from reports.measurements import Measurements, Point, equal
from reports.wording import STOPPED_BY, describe_condition, estimate_sentence


def arrivals(measurements: Measurements) -> Section | None:
    """Report the cells in which sessions arrived by themselves; nothing where there are none."""
    points = measurements.arriving
    if not points:
        return None
    blocks: list[Block] = [
        paragraph(
            Strong("Service time "),
            "runs from sending to the answer. ",
            Strong("Response time "),
            "runs from when the schedule meant to send: a session's arrival for connect, and for its steps the times of the "
            "episode model after it. A server that stands still makes few operations slow by the first clock, and every "
            "operation late that was meant meanwhile by the second. Sessions come and go here: no number of them is a "
            "number of held sessions.",
        )
    ]
    for point in points:
        blocks += [
            phase_table([point], f"{notation.plural(point.sessions, 'session')} that arrived by themselves"),
            _counts(point),
            _verdicts(point),
        ]
        law = _law(point)
        blocks += [law] if law else []
    return Section("arrivals", "Open arrivals", tuple(blocks))


def arrival_sentence(point: Point) -> str:
    """Say in words what sessions waited for a step, by both clocks."""
    response = estimate_sentence("response p99", point.estimate(Phase.STEP, 0.99, response=True))
    service = estimate_sentence("service p99", point.estimate(Phase.STEP, 0.99))
    reason = next((cause(verdict) for verdict in point.verdicts if not verdict.passed), None)
    outcome = f"failed: {STOPPED_BY[reason]}" if reason else "passed"
    served = sum(point.ends[cell.id].succeeded or 0 for cell in point.cells)
    came = f"{notation.plural(point.sessions * len(point.cells), 'session')} arrived, {served:,} served without a fault"
    return f"{point.condition.workload_fields['arrival']}: {came}; step {response}, {service}; {outcome}"


def _counts(point: Point) -> Table:
    rows = []
    for cell in point.cells:
        end, table = point.ends[cell.id], point.tables[cell.id]
        first = equal(table, "phase", Phase.CONNECT)
        meant = table.column("intended_ns").to_numpy()
        came_s = float(meant[first].max() - meant[first].min()) / 1e9 if first.any() else 0.0
        done = table.column("start_ns").to_numpy() + table.column("ns").to_numpy()
        all_s = float(done.max() - meant.min()) / 1e9 if len(done) else 0.0
        served = end.succeeded or 0
        rows.append(
            (
                Entry(cell.id, code=True),
                Entry(f"{cell.sessions:,}"),
                Entry(notation.duration(came_s * 1e9)),
                Entry(f"{served:,}", tone="good" if served == cell.sessions else "bad"),
                Entry(f"{cell.sessions - served:,}"),
                Entry("not counted", tone="muted") if end.peak_open is None else Entry(f"{end.peak_open:,}"),
                Entry(notation.count(round(served / all_s, 1)) if all_s else "not known"),
            )
        )
    return Table(
        caption="Who came, and who was served",
        about=describe_condition(point.condition),
        columns=(
            Column("Cell"),
            Column("Arrived", "sessions", numeric=True),
            Column("Within", numeric=True),
            Column("Served without a fault", "sessions", numeric=True),
            Column("Not so", "sessions", numeric=True),
            Column("Open together", "sessions, most", numeric=True),
            Column("Served", "sessions/s", numeric=True),
        ),
        rows=tuple(rows),
        remarks=(
            "Served per second: from the first arrival to the end of the last session, in whose last part nobody arrives.",
        ),
    )


def _verdicts(point: Point) -> Table:
    columns = criterion_names(point.verdicts)
    return Table(
        caption="Verdict on response times",
        about=describe_condition(point.condition),
        columns=(
            Column("Cell"),
            Column("Verdict"),
            *(Column(column, numeric=True) for column in columns),
        ),
        rows=tuple(
            (
                Entry(verdict.cell, code=True),
                Entry("passed", tone="good") if verdict.passed else Entry("failed", tone="bad"),
                *(criterion_entry(verdict, column) for column in columns),
            )
            for verdict in point.verdicts
        ),
        remarks=(
            "The limits are those of held sessions, applied to response times; how many are open together is not asked.",
        ),
    )


def _law(point: Point) -> Table | None:
    rows = []
    for cell in point.cells:
        counted, table = point.ends[cell.id].mean_open, point.tables[cell.id]
        session, done = (
            table.column("session").to_numpy(),
            table.column("start_ns").to_numpy() + table.column("ns").to_numpy(),
        )
        connect = equal(table, "phase", Phase.CONNECT) & equal(table, "status", Status.OK)
        begun = dict(zip(session[connect].tolist(), done[connect].tolist(), strict=True))
        ended: dict[int, int] = {}
        for one, at in zip(session.tolist(), done.tolist(), strict=True):
            ended[one] = max(at, ended.get(one, at))
        inside = [ended[one] - at for one, at in begun.items()]
        if counted is None or not inside:
            continue
        wall_s = float(done.max() - table.column("intended_ns").to_numpy().min()) / 1e9
        rate, time_s = len(inside) / wall_s, float(np.mean(inside)) / 1e9
        found = littles_law(rate, time_s, counted)
        rows.append(
            (
                Entry(cell.id, code=True),
                Entry(notation.count(round(rate, 1))),
                Entry(notation.duration(time_s * 1e9)),
                Entry(notation.count(round(found.expected, 1))),
                Entry(notation.count(round(counted, 1))),
                Entry("agrees") if found.agrees else Entry("does not agree", tone="bad"),
            )
        )
    if not rows:
        return None
    return Table(
        caption="Little's law",
        about="sessions per second x time in the system = sessions in the system, on average",
        columns=(
            Column("Cell"),
            Column("Rate", "sessions/s", numeric=True),
            Column("Time in the system", "mean", numeric=True),
            Column("Little's law", "sessions", numeric=True),
            Column("Counted open", "sessions, mean", numeric=True),
            Column("Agreement"),
        ),
        rows=tuple(rows),
        remarks=("Counted every 10 ms by the generator; agreement is within 10 %.",),
    )
