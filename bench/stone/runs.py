"""Published runs: what was measured of a framework, as figures that tables and claims can name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.facts import Record
from bench.records import Ceiling, End, Live, Run, read_run
from bench.records import Cell as Measured
from bench.stacks import ROOT

PUBLISHED = ROOT / "reports" / "published"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One figure of a published run.

    Attributes:
        figure: What it is a figure of.
        value: The figure.
        unit: Its unit.
        record: What the record is of.
        line: Its line in the records of the run.
        bound: `at least` where the search was ended by a limit of its own.
        upper: The smallest number of sessions that failed, for a ceiling that has one.
        note: Under which conditions it was found, in a few words.
    """

    figure: str
    value: float
    unit: str
    record: str
    line: int
    bound: str = ""
    upper: float | None = None
    note: str = ""

    def shown_in(self, run: Run) -> Record:
        """Return the record of the run as evidence."""
        return Record(run=run.folder.name, record=self.record, line=self.line)


def published_runs(framework: str, folder: Path = PUBLISHED) -> list[Run]:
    """Return the published runs of a framework's compiled environments, by the names of their folders.

    Raises:
        RunError: One of them is damaged.
    """
    runs = [read_run(path.parent) for path in sorted(folder.glob("*/records.jsonl"))]
    return [run for run in runs if run.header.adapter.partition(":")[0] == framework]


def measurements(run: Run) -> dict[str, Measurement]:
    """Return the figures of a run by their names: ceilings, sessions per core, live episodes, throughput, memory per session."""
    return {one.figure: one for one in (*_held(run), *_live(run))}


def line_in(run: Run, record: object) -> int:
    """Return the line of a record in the file of its run."""
    # A header stands before the records, and each of them on a line of its own.
    return next(number for number, one in enumerate(run.records, start=2) if one is record)


def live_episodes(run: Run) -> Live | None:
    """Return the largest number of live episodes of the plainest way to step them; None where none were held."""
    found = run.of(Live)
    plainest = [one for one in found if one.executor == found[0].executor]
    return max(plainest, key=lambda one: one.sessions, default=None)


def _held(run: Run) -> Iterator[Measurement]:
    """Yield what is measured of a server that holds sessions."""
    cores, ceilings = run.header.machine.cores, [one for one in run.of(Ceiling) if one.subject == "compiled"]
    for ceiling in ceilings:
        if not ceiling.lower:
            continue
        figure, record = f"ceiling {ceiling.criterion}", f"ceiling by the criterion {ceiling.criterion}"
        line, bound = line_in(run, ceiling), "at least" if ceiling.censored else ""
        yield Measurement(figure, ceiling.lower, "sessions", record, line, bound, ceiling.upper)
        if cores:
            note = f"the ceiling divided by {cores} cores, which the load generator shares"
            yield Measurement(
                f"{figure} per core", ceiling.lower / cores, "sessions", record, line, bound, note=note
            )
    most = next((one.lower for one in ceilings if one.criterion == "slo"), None)
    held = [
        (cell, end)
        for cell in run.of(Measured)
        if cell.engine == "locust" and cell.subject == "compiled" and (end := run.end(cell.id)) is not None
    ]
    # A saturated generator makes the rate its own, and not the system's.
    fast = [
        (end.throughput_steps_per_s, cell, end)
        for cell, end in held
        if end.throughput_steps_per_s is not None and not (end.generator and end.generator.saturated)
    ]
    if fast:
        rate, cell, end = max(fast, key=lambda found: found[0])
        note = ", ".join(filter(None, ["the highest seen in one trial", _size(cell, most), _waits(cell)]))
        yield Measurement(
            "throughput", rate, "steps/s", f"end of {cell.id}", line_in(run, end), note=note
        )  # fmt: skip
    if held:
        cell, end = max(held, key=lambda pair: pair[0].sessions)
        growth = _growth(end)
        if growth is not None:
            yield Measurement(
                "memory per session", growth / cell.sessions, "bytes", f"end of {cell.id}", line_in(run, end),
                note=f"growth of the server, {_size(cell, most)}",
            )  # fmt: skip


def _size(cell: Measured, ceiling: int | None) -> str:
    beyond = ", beyond the ceiling" if ceiling is not None and cell.sessions > ceiling else ""
    return f"at {cell.sessions:,} sessions{beyond}"


def _waits(cell: Measured) -> str:
    waits = cell.workload.get("tool_ns")
    return f"each step waits {waits / 1e6:g} ms in its tool" if isinstance(waits, int) and waits else ""


def _live(run: Run) -> Iterator[Measurement]:
    """Yield what is measured of episodes that live in one process."""
    most = live_episodes(run)
    if most is None:
        return
    record, line = f"live episodes by {most.executor}", line_in(run, most)
    alive = f"{most.sessions:,} live episodes in one process by {most.executor}"
    wrong = sum(one.wrong for one in run.of(Live))
    tried = f"in one process by {most.executor}, the largest number tried; {wrong:,} wrong answers"
    yield Measurement("live episodes", most.sessions, "episodes", record, line, note=tried)
    yield Measurement(
        "throughput", 1e9 / most.step_ns, "steps/s", record, line, note=f"{alive}; no tool waits, no model"
    )  # fmt: skip
    if most.bytes_per_session is not None:
        yield Measurement(
            "memory per session", most.bytes_per_session, "bytes", record, line, note=f"growth of the process, {alive}"
        )  # fmt: skip


def _growth(end: End) -> int | None:
    before, peak = end.server_before, end.server_peak
    if before is None or peak is None or before.rss_bytes is None or peak.rss_bytes is None:
        return None
    return max(0, peak.rss_bytes - before.rss_bytes)
