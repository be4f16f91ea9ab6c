"""The report of a benchmark of sandboxes: what they cost, how many live at once, and what is left. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from bench.machine import Stretch, busy_before, disturbances, foreign_cpu_share
from bench.records import Note
from bench.sandbox_records import Action, Circumstances, Left, Rung, SandboxRun, Throughput, Timing
from bench.stats import Population, TooSmall, quantile, quantile_name
from reports import notation
from reports.document import (
    Banner,
    Block,
    Bullets,
    Code,
    Column,
    Entry,
    Facts,
    Report,
    Section,
    SummaryLine,
    Table,
    paragraph,
)
from reports.measurements import Estimate
from reports.page import markdown, page
from reports.render import MARKDOWN, PAGE, RenderedReport
from reports.wording import describe_commit, describe_machine, estimate_entry, estimate_sentence

_QUANTILES = (0.50, 0.99)
_ACTIONS: dict[Action, str] = {
    "open": "Session start, until its first answer",
    "close": "Session end",
    "read": "File call: read 1 kB",
    "true": "Command: `true`",
    "bash": "Command: `bash -c true`",
    "python": "Command: `python3 -c pass`",
}
_FEWEST_RUNGS = 3


def render_sandbox_run(run: SandboxRun) -> RenderedReport:
    """Render a run: the same records give the same bytes."""
    report = sandbox_report(run)
    width = max(len(line.label) for line in report.summary)
    return RenderedReport(
        {PAGE: page(report).encode(), MARKDOWN: markdown(report).encode()},
        tuple(f"{line.label:<{width}}  {line.text}" for line in report.summary),
    )


def sandbox_report(run: SandboxRun) -> Report:
    """Build the report of a run."""
    header = run.header
    return Report(
        title=f"Sandboxes: {header.backend}",
        subtitle=f"Benchmark run {header.run_id}, started {header.started:%Y-%m-%d %H:%M} UTC",
        banners=tuple(_banners(run)),
        summary=tuple(_summary(run)),
        sections=tuple(_sections(run)),
    )


def memory_per_sandbox(rungs: Sequence[Rung]) -> float | None:
    """Estimate the memory of one idle sandbox: the slope of the machine's available memory over the live sandboxes.

    The least-squares line through all rungs; nothing below three rungs with a reading, or when nothing varies.
    """
    points = [(rung.live, rung.available_bytes) for rung in rungs if rung.available_bytes is not None]
    if len(points) < _FEWEST_RUNGS or len({live for live, _ in points}) < _FEWEST_RUNGS:
        return None
    slope = statistics.linear_regression([live for live, _ in points], [free for _, free in points]).slope
    return -slope


def own_memory_per_sandbox(rungs: Sequence[Rung]) -> float | None:
    """Return the proportional memory of the processes of one sandbox on the highest rung, when it could be read."""
    read = [rung for rung in rungs if rung.pss_bytes is not None and rung.live]
    return read[-1].pss_bytes / read[-1].live if read and read[-1].pss_bytes is not None else None


def _banners(run: SandboxRun) -> Iterable[Banner]:
    notes = tuple(note.text for note in run.of(Note))
    if run.partial:
        text = "The run did not come to its end. What follows was measured until then; the rest is missing."
        yield Banner("warning", "Partial run", text)
    parts = [Stretch(one.before, one.after, one.own_cpu_s) for one in run.of(Circumstances)]
    if sentences := (*busy_before(run.header.pressure), *disturbances(parts, "parts")):
        text = "Read latencies as upper bounds, and compare them with no quiet run."
        yield Banner("warning", "The machine was not quiet", text, sentences)
    if notes:
        yield Banner("warning", "Notes", "What the run wrote down about itself:", notes)
    if run.header.dirty:
        yield Banner("note", "Uncommitted changes", "The files differed from the commit that is named.")
    missing = run.header.missing
    if missing:
        points = tuple(f"{name}: {reason}" for name, reason in sorted(missing.items()))
        yield Banner(
            "warning", "Not everything is isolated", "The backend says what it does not enforce here:", points
        )


def _summary(run: SandboxRun) -> Iterable[SummaryLine]:
    header = run.header
    user = "an ordinary user" if header.ordinary_user else "root"
    yield SummaryLine("Measured", f"{header.backend}: {header.tool}, as {user}")
    yield SummaryLine(
        "Machine",
        f"{describe_machine(header.machine)}; commit {describe_commit(header.commit, header.dirty)}",
    )
    for timing in run.of(Timing):
        population = Population(timing.ns, timing.failures)
        quantiles = "; ".join(
            estimate_sentence(quantile_name(q), _estimate(population, q)) for q in _QUANTILES
        )
        failed = f", {timing.failures:,} failed" if timing.failures else ""
        label = _ACTIONS[timing.action].replace("`", "")
        yield SummaryLine(label, f"{quantiles}; n {population.n:,}{failed}")
    rungs = run.of(Rung)
    if rungs:
        top = max(rungs, key=lambda rung: rung.live)
        yield SummaryLine(
            "Live at once",
            f"{top.live:,} of {top.asked:,} asked for; {top.answering:,} of {top.tried:,} tried ran a command",
            "plain" if top.live == top.asked and top.answering == top.tried else "bad",
        )
        yield SummaryLine("Memory of one", _memory_sentence(rungs))
    for flat_out in run.of(Throughput):
        yield SummaryLine(
            f"Throughput, {notation.plural(flat_out.sessions, 'session')}",
            f"{notation.count(round(len(flat_out.ns) / flat_out.seconds, 1))} commands/s, in one trial of {flat_out.seconds:.1f} s",
        )
    for left in run.of(Left):
        yield SummaryLine("Left afterwards", _left_sentence(left), "good" if _is_nothing(left) else "bad")


def _memory_sentence(rungs: Sequence[Rung]) -> str:
    slope, own = memory_per_sandbox(rungs), own_memory_per_sandbox(rungs)
    parts = [
        "not enough rungs for a slope"
        if slope is None
        else f"{_signed_size(slope)} by the machine's available memory",
        "its processes could not be read" if own is None else f"{notation.size(own)} by its processes alone",
    ]
    return f"{'; '.join(parts)}; {notation.plural(len(rungs), 'rung')}"


def _signed_size(octets: float) -> str:
    return notation.size(octets) if octets >= 0 else f"-{notation.size(-octets)}"


def _is_nothing(left: Left) -> bool:
    return not (left.processes or left.mounts or left.files or left.descriptors > 0)


def _left_sentence(left: Left) -> str:
    counts = (
        notation.plural(len(left.processes), "process", "processes"),
        notation.plural(len(left.mounts), "mount"),
        notation.plural(len(left.files), "file"),
        notation.plural(max(0, left.descriptors), "open file") + " of this process",
    )
    return notation.listing(counts)


def _sections(run: SandboxRun) -> Iterable[Section]:
    header = run.header
    yield Section(
        "measured",
        "What was measured",
        (
            Facts(
                (
                    ("Backend", (f"{header.backend}: {header.tool}",)),
                    ("Enforced", (notation.listing(header.enforced) if header.enforced else "nothing",)),
                    ("User", ("an ordinary user" if header.ordinary_user else "root",)),
                    ("Machine", (describe_machine(header.machine),)),
                    ("Commit", (describe_commit(header.commit, header.dirty),)),
                    ("Plan", (notation.settings(header.plan),)),
                    ("Command", (Code(" ".join(header.args_passed) or "not recorded"),)),
                )
            ),
        ),
    )
    if timings := run.of(Timing):
        yield Section("calls", "Sessions and calls", (_timing_table(timings),))
    if rungs := run.of(Rung):
        yield Section("live", "Sandboxes alive at once", (_rung_table(rungs), _memory_block(rungs)))
    if flat_out := run.of(Throughput):
        yield Section("throughput", "Throughput", (_throughput_table(flat_out),))
    for left in run.of(Left):
        yield Section("left", "What was left", _left_blocks(left))
    if parts := run.of(Circumstances):
        yield Section("circumstances", "Circumstances", (_circumstances_table(parts),))


def _estimate(population: Population, q: float) -> Estimate | TooSmall:
    found = quantile(population, q)
    return found if isinstance(found, TooSmall) else Estimate(found.value, found.low, found.high, found.n, 0)


def _quantile_columns() -> tuple[Column, ...]:
    return tuple(Column(quantile_name(q), numeric=True) for q in _QUANTILES)


def _quantile_entries(ns: Sequence[int], failures: int) -> tuple[Entry, ...]:
    population = Population(ns, failures)
    return tuple(estimate_entry(_estimate(population, q)) for q in _QUANTILES)


def _timing_table(timings: Sequence[Timing]) -> Table:
    return Table(
        caption="Latency of one call at a time",
        about="one sandbox in use, the kinds of call in turn; 95 % intervals",
        columns=(
            Column("Call"),
            *_quantile_columns(),
            Column("n", numeric=True),
            Column("Failed", numeric=True),
        ),
        rows=tuple(
            (
                Entry(_ACTIONS[timing.action].replace("`", "")),
                *_quantile_entries(timing.ns, timing.failures),
                Entry(f"{len(timing.ns) + timing.failures:,}"),
                Entry(f"{timing.failures:,}", tone="bad" if timing.failures else "plain"),
            )
            for timing in timings
        ),
        remarks=_errors(timings),
    )


def _errors(records: Iterable[Timing | Rung | Throughput]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"First error: {one.first_error}" for one in records if one.first_error))


def _rung_table(rungs: Sequence[Rung]) -> Table:
    def size(value: int | None) -> Entry:
        return Entry("not read", tone="muted") if value is None else Entry(notation.size(value))

    return Table(
        caption="More and more sandboxes alive and idle",
        about="each rung keeps those of the rung before",
        columns=(
            Column("Asked for", numeric=True),
            Column("Live", numeric=True),
            Column("Opened in", "s", numeric=True),
            Column("Ran true", numeric=True),
            Column("p50 of true", numeric=True),
            Column("Available memory", numeric=True),
            Column("Their processes", numeric=True),
        ),
        rows=tuple(
            (
                Entry(f"{rung.asked:,}"),
                Entry(f"{rung.live:,}", tone="plain" if rung.live == rung.asked else "bad"),
                Entry(notation.significant(rung.open_s)),
                Entry(
                    f"{rung.answering:,} of {rung.tried:,}",
                    tone="plain" if rung.answering == rung.tried else "bad",
                ),
                estimate_entry(_estimate(Population(rung.ns, rung.tried - rung.answering), 0.50)),
                size(rung.available_bytes),
                size(rung.pss_bytes),
            )
            for rung in rungs
        ),
        remarks=_errors(rungs),
    )


def _memory_block(rungs: Sequence[Rung]) -> Block:
    return paragraph(
        f"Memory of one sandbox: {_memory_sentence(rungs)}. The first is the slope of MemAvailable over the live sandboxes, "
        "kernel memory included, and moves with whatever else the machine does; the second is the proportional set size of "
        "their processes on the highest rung."
    )


def _throughput_table(flat_out: Sequence[Throughput]) -> Table:
    return Table(
        caption="The command true as often as possible",
        about="each session one call after the other, one trial each",
        columns=(
            Column("Sessions", numeric=True),
            Column("Commands/s", numeric=True),
            *_quantile_columns(),
            Column("n", numeric=True),
            Column("Failed", numeric=True),
        ),
        rows=tuple(
            (
                Entry(f"{one.sessions:,}"),
                Entry(notation.count(round(len(one.ns) / one.seconds, 1))),
                *_quantile_entries(one.ns, one.failures),
                Entry(f"{len(one.ns) + one.failures:,}"),
                Entry(f"{one.failures:,}", tone="bad" if one.failures else "plain"),
            )
            for one in flat_out
        ),
        remarks=_errors(flat_out),
    )


def _left_blocks(left: Left) -> tuple[Block, ...]:
    sentence = paragraph(f"After every sandbox and the backend were closed: {_left_sentence(left)}.")
    names = [f"{kind}: {name}" for kind in ("processes", "mounts", "files") for name in getattr(left, kind)]
    return (sentence, Bullets(tuple((name,) for name in names))) if names else (sentence,)


def _circumstances_table(parts: Sequence[Circumstances]) -> Table:
    def row(one: Circumstances) -> tuple[Entry, ...]:
        share = foreign_cpu_share(one.before, one.after, one.own_cpu_s)
        return (
            Entry(one.part),
            Entry(notation.duration(one.after.at_ns - one.before.at_ns)),
            Entry(f"{one.own_cpu_s:.2f}"),
            Entry("not known" if share is None else notation.share(share)),
        )

    return Table(
        caption="How busy the machine was",
        about="",
        columns=(
            Column("Part"),
            Column("Took", numeric=True),
            Column("Our processor time", "s", numeric=True),
            Column("Used by others", numeric=True),
        ),
        rows=tuple(row(one) for one in parts),
    )
