"""Published runs: what was measured of a framework, as figures that tables and claims can name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.records import Ceiling, End, Run, read_run
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
        record: What the record is called in the run.
        bound: `at least` where the search was ended by a limit of its own.
        upper: The smallest number of sessions that failed, for a ceiling that has one.
    """

    figure: str
    value: float
    unit: str
    record: str
    bound: str = ""
    upper: float | None = None


def published_runs(framework: str, folder: Path = PUBLISHED) -> list[Run]:
    """Return the published runs of a framework's compiled environments, by the names of their folders.

    Raises:
        RunError: One of them is damaged.
    """
    runs = [read_run(path.parent) for path in sorted(folder.glob("*/records.jsonl"))]
    return [run for run in runs if run.header.adapter.partition(":")[0] == framework]


def measurements(run: Run) -> dict[str, Measurement]:
    """Return the figures of a run by their names: ceilings, sessions per core, throughput, memory per session."""
    return {one.figure: one for one in _measured(run)}


def _measured(run: Run) -> Iterator[Measurement]:
    cores = run.header.machine.cores
    for ceiling in run.of(Ceiling):
        if ceiling.subject != "compiled" or not ceiling.lower:
            continue
        name = f"ceiling {ceiling.criterion}"
        bound = "at least" if ceiling.censored else ""
        yield Measurement(name, ceiling.lower, "sessions", name, bound, ceiling.upper)
        if cores:
            yield Measurement(f"{name} per core", ceiling.lower / cores, "sessions", name, bound)
    held = [
        (cell, end)
        for cell in run.of(Measured)
        if cell.engine == "locust" and cell.subject == "compiled" and (end := run.end(cell.id)) is not None
    ]
    # A saturated generator makes the rate its own, and not the system's.
    fast = [
        (end.throughput_steps_per_s, cell)
        for cell, end in held
        if end.throughput_steps_per_s is not None and not (end.generator and end.generator.saturated)
    ]
    if fast:
        most, cell = max(fast, key=lambda pair: pair[0])
        yield Measurement("throughput", most, "steps/s", cell.id)
    if held:
        cell, end = max(held, key=lambda pair: pair[0].sessions)
        growth = _growth(end)
        if growth is not None:
            yield Measurement("memory per session", growth / cell.sessions, "bytes", cell.id)


def _growth(end: End) -> int | None:
    before, peak = end.server_before, end.server_peak
    if before is None or peak is None or before.rss_bytes is None or peak.rss_bytes is None:
        return None
    return max(0, peak.rss_bytes - before.rss_bytes)
