"""The server's own side: memory, descriptors, threads, event-loop lag, and what is left after every session closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports import charts, notation
from reports.document import Block, Column, Entry, Figure, Section, Strong, Table, paragraph
from reports.wording import describe_condition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bench.records import End, ServerReading
    from reports.measurements import Ladder, Measurements, Point

REMARKS = (
    (
        "Memory per session is the growth of resident memory from before the cell to its peak, divided by the sessions open then. "
        "A server that already served a cell keeps memory from it, so a later cell can show less than a fresh server would."
    ),
    (
        "Left is the reading after close minus the reading before the cell: sessions and descriptors should be 0; memory that the "
        "allocator keeps for the next session is no leak unless it grows from cell to cell."
    ),
)
"""What the columns of the server's table mean; under the last one."""
_MISSING = Entry("not measured", tone="muted")


def memory_per_session(point: Point) -> float | None:
    """Return the growth of resident memory per open session in bytes, the largest over the trials of a point."""
    return max((grown for end in point.ends.values() if (grown := _growth(end)) is not None), default=None)


def _growth(end: End) -> float | None:
    before, peak = end.server_before, end.server_peak
    if (
        before is None
        or peak is None
        or before.rss_bytes is None
        or peak.rss_bytes is None
        or not end.peak_open
    ):
        return None
    return max(0, peak.rss_bytes - before.rss_bytes) / end.peak_open


def server(measurements: Measurements) -> Section:
    """Report what the server needed, by the number of sessions."""
    anchor = "server"
    title = "The process of the episodes" if measurements.in_process else "The server's own side"
    measured = [point for point in measurements.points if any(end.server_peak for end in point.ends.values())]
    if not measured:
        return Section(
            anchor,
            title,
            (
                paragraph(
                    Strong("Not measured. "),
                    "No cell of this run read the server's memory, descriptors or threads.",
                ),
            ),
        )
    where = "in the process that holds the episodes" if measurements.in_process else "on the server"
    blocks: list[Block] = [
        paragraph(
            f"Read {where} before a cell, at its peak, and after every session was closed. The largest value over the trials of a row is shown."
        )
    ]
    ladders = [ladder for ladder in measurements.ladders if any(point in measured for point in ladder.points)]
    for number, ladder in enumerate(ladders):
        figure = _figure(ladder, number)
        blocks += [figure] if figure else []
    conditions = list(dict.fromkeys(point.condition for point in measured))
    blocks += [
        _table(
            [point for point in measured if point.condition == condition],
            REMARKS if condition == conditions[-1] else (),
            subject="process" if measurements.in_process else "server",
        )
        for condition in conditions
    ]
    return Section(anchor, title, tuple(blocks))


def _peaks(point: Point) -> list[ServerReading]:
    return [end.server_peak for end in point.ends.values() if end.server_peak is not None]


def _most(readings: Iterable[int | None]) -> int | None:
    return max((reading for reading in readings if reading is not None), default=None)


def _table(points: list[Point], remarks: tuple[str, ...], *, subject: str) -> Table:
    rows = []
    # Sessions that come and go are not all there at once; what is there at once is what memory is divided by.
    comes = points[0].condition.open_loop
    for point in points:
        peaks = _peaks(point)
        rss, lag = _most(peak.rss_bytes for peak in peaks), _most(peak.loop_lag_p99_ns for peak in peaks)
        per_session = memory_per_session(point)
        entries = [
            Entry(f"{point.sessions:,}"),
            *((_counted(_most(end.peak_open for end in point.ends.values())),) if comes else ()),
            Entry(f"{len(peaks):,}"),
            Entry(notation.size(rss)) if rss is not None else _MISSING,
            Entry(notation.size(per_session)) if per_session is not None else _MISSING,
            _counted(_most(peak.threads for peak in peaks)),
            _counted(_most(peak.fds for peak in peaks)),
            Entry(notation.duration(lag)) if lag is not None else _MISSING,
            _left(point, lambda reading: reading.open_sessions, notation.count),
            _left(point, lambda reading: reading.rss_bytes, notation.size),
            _left(point, lambda reading: reading.fds, notation.count),
            _left(point, lambda reading: reading.threads, notation.count),
        ]
        rows.append(tuple(entries))
    return Table(
        caption=f"The {subject} at its peak, and what was left after close",
        about=describe_condition(points[0].condition),
        columns=(
            Column("Arrived" if comes else "Sessions", numeric=True),
            *((Column("Open together", "most", numeric=True),) if comes else ()),
            Column("Trials", numeric=True),
            Column("Resident memory", numeric=True),
            Column("Memory per session", numeric=True),
            Column("Threads", numeric=True),
            Column("Descriptors", numeric=True),
            Column("Loop lag p99", numeric=True),
            Column("Left: sessions", numeric=True),
            Column("Left: memory", numeric=True),
            Column("Left: descriptors", numeric=True),
            Column("Left: threads", numeric=True),
        ),
        rows=tuple(rows),
        remarks=remarks,
    )


def _counted(value: int | None) -> Entry:
    return Entry(f"{value:,}") if value is not None else _MISSING


def _left(point: Point, read: Callable[[ServerReading], int | None], write: Callable[[float], str]) -> Entry:
    differences = []
    for end in point.ends.values():
        if end.server_before is None or end.server_after is None:
            continue
        before, after = read(end.server_before), read(end.server_after)
        if before is not None and after is not None:
            differences.append(after - before)
    if not differences:
        return _MISSING
    worst = max(differences)
    sign = "+" if worst > 0 else "\N{MINUS SIGN}" if worst < 0 else ""
    return Entry(f"{sign}{write(abs(worst))}")


def _figure(ladder: Ladder, number: int) -> Figure | None:
    readings = []
    for point in ladder.points:
        peaks = _peaks(point)
        if peaks:
            readings.append(
                charts.Reading(
                    point.sessions,
                    _most(peak.rss_bytes for peak in peaks),
                    _most(peak.threads for peak in peaks),
                    _most(peak.fds for peak in peaks),
                )
            )
    if len(readings) < 2:
        return None
    first, last = readings[0], readings[-1]
    return Figure(
        charts.draw_server("server" if number == 0 else f"server-{number + 1}", readings),
        caption=f"The server's resident memory, threads and file descriptors at their peak: {describe_condition(ladder.condition)}.",
        alternative=f"Server resources over the number of sessions. {_words(first)}; {_words(last)}.",
    )


def _words(reading: charts.Reading) -> str:
    parts = [
        f"{notation.size(reading.rss_bytes)} of memory" if reading.rss_bytes is not None else "",
        notation.plural(reading.threads, "thread") if reading.threads is not None else "",
        notation.plural(reading.fds, "file descriptor") if reading.fds is not None else "",
    ]
    return f"At {notation.plural(reading.sessions, 'session')}: {notation.listing([part for part in parts if part])}"
