"""What went wrong, counted by its text."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from bench.samples import Status
from reports import notation
from reports.document import Block, Column, Entry, Section, Table, paragraph

if TYPE_CHECKING:
    from reports.measurements import Measurements

SHOWN = 20
"""Distinct errors that the table shows, the most frequent first."""


def errors(measurements: Measurements) -> Section:
    """Report failed operations by phase and text, and cells that did not end well."""
    failures = _failures(measurements)
    blocks: list[Block] = []
    if failures:
        most = sorted(failures.items(), key=lambda item: (-item[1][0], item[0]))
        blocks.append(
            Table(
                caption="Failed operations",
                about="the most frequent first",
                columns=(
                    Column("Phase"),
                    Column("Status"),
                    Column("Error"),
                    Column("Operations", numeric=True),
                    Column("At sessions", numeric=True),
                ),
                rows=tuple(
                    (
                        Entry(phase),
                        Entry(status),
                        Entry(text or "no text recorded", code=bool(text), tone="plain" if text else "muted"),
                        Entry(f"{number:,}"),
                        Entry(_range(sessions)),
                    )
                    for (phase, status, text), (number, sessions) in most[:SHOWN]
                ),
                remarks=(
                    f"{notation.plural(len(most) - SHOWN, 'rarer error is', 'rarer errors are')} left out here.",
                )
                if len(most) > SHOWN
                else (),
            )
        )
    else:
        blocks.append(paragraph("No operation failed in the cells that are reported."))
    blocks.append(_endings(measurements))
    return Section("errors", "Errors", tuple(blocks))


def _failures(measurements: Measurements) -> dict[tuple[str, str, str], tuple[int, set[int]]]:
    counts: Counter[tuple[str, str, str]] = Counter()
    at: dict[tuple[str, str, str], set[int]] = {}
    for cell in measurements.cells:
        table = measurements.samples(cell.id)
        if table is not None:
            failed = table.select(["phase", "status", "error"]).to_pandas()
            failed = failed[failed["status"] != Status.OK.value]
            found = Counter(
                (str(phase), str(status), error if isinstance(error, str) else "")
                for phase, status, error in zip(
                    failed["phase"], failed["status"], failed["error"], strict=True
                )
            )
        else:
            # Without samples the verdict is all that is known of a cell's errors.
            verdicts = [verdict for verdict in measurements.verdicts if verdict.cell == cell.id][:1]
            found = Counter(
                {
                    ("unknown", "error", text): number
                    for verdict in verdicts
                    for text, number in verdict.first_errors.items()
                }
            )
        counts.update(found)
        for key in found:
            at.setdefault(key, set()).add(cell.sessions)
    return {key: (number, at[key]) for key, number in counts.items()}


def _range(sessions: set[int]) -> str:
    lowest, highest = min(sessions), max(sessions)
    return f"{lowest:,}" if lowest == highest else f"{lowest:,}{notation.RANGE}{highest:,}"


def _endings(measurements: Measurements) -> Block:
    rows = []
    for cell in sorted(measurements.cells, key=lambda cell: cell.order):
        end = measurements.ends.get(cell.id)
        if end is None or end.status != "ok":
            status = end.status if end else "unfinished"
            reason = (end.reason if end else None) or "no reason recorded"
            rows.append(
                (
                    Entry(cell.id, code=True),
                    Entry(f"{cell.sessions:,}"),
                    Entry(status, tone="bad"),
                    Entry(reason),
                )
            )
    if not rows:
        return paragraph("Every cell came to its end as planned.")
    return Table(
        caption="Cells that did not end well",
        about="",
        columns=(Column("Cell"), Column("Sessions", numeric=True), Column("Ended"), Column("Reason")),
        rows=tuple(rows),
    )
