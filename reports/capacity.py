"""The report of the planner's own test: what sessions cost, and predictions beside what was measured. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from bench.planner import CHECK_TURNS, CostModel, NotEnough, Observation, cost_of, observations
from bench.records import Note, Prediction, Run
from reports import notation
from reports.document import (
    Banner,
    Block,
    Column,
    Entry,
    Facts,
    Report,
    Section,
    SummaryLine,
    Table,
    Tone,
    paragraph,
)
from reports.page import markdown, page
from reports.quiet import disturbed
from reports.render import MARKDOWN, PAGE, RenderedReport
from reports.wording import describe_commit, describe_machine

QUANTITIES = {
    "server_cpu": "CPU of the server",
    "memory": "Memory of the server",
    "descriptors": "Descriptors",
    "threads": "Threads",
}
AIM = 0.15
"""Relative error that predictions aim to stay under."""


def render_capacity(run: Run) -> RenderedReport:
    """Render a run of the planner's test: the same records give the same bytes."""
    report = capacity_report(run)
    width = max(len(line.label) for line in report.summary)
    return RenderedReport(
        {PAGE: page(report).encode(), MARKDOWN: markdown(report).encode()},
        tuple(f"{line.label:<{width}}  {line.text}" for line in report.summary),
    )


def error_of(prediction: Prediction) -> float | None:
    """Return how far a prediction was off, relative to what was measured; nothing when that was 0."""
    if prediction.measured == 0:
        return None
    return prediction.predicted / prediction.measured - 1


def capacity_report(run: Run) -> Report:
    """Build the report of a run."""
    header = run.header
    try:
        cost: CostModel | None = cost_of(run)
    except NotEnough:
        cost = None
    return Report(
        title=f"Capacity: {header.environment.name} under {header.adapter}",
        subtitle=f"Run {header.run_id}, started {header.started:%Y-%m-%d %H:%M} UTC",
        banners=tuple(_banners(run)),
        summary=tuple(_summary(run, cost)),
        sections=(_costs(cost), _errors(run), _cells(run)),
    )


def _banners(run: Run) -> Iterable[Banner]:
    notes = tuple(note.text for note in run.of(Note))
    if run.partial:
        text = "The run did not come to its end. What follows was measured until then; the rest is missing."
        yield Banner("warning", "Partial run", text)
    if sentences := disturbed(run):
        text = "CPU seconds are little changed by that; compare nothing else with a quiet run."
        yield Banner("warning", "The machine was not quiet", text, sentences)
    if notes:
        yield Banner("warning", "Notes", "What the run wrote down about itself:", notes)
    if run.header.dirty:
        yield Banner("note", "Uncommitted changes", "The files differed from the commit that is named.")


def _summary(run: Run, cost: CostModel | None) -> Iterable[SummaryLine]:
    header = run.header
    packages = ", ".join(f"{package} {version}" for package, version in sorted(header.framework.items()))
    yield SummaryLine("Measured", f"{header.environment.name} {header.environment.version} under {packages}")
    yield SummaryLine(
        "Machine",
        f"{describe_machine(header.machine)}; commit {describe_commit(header.commit, header.dirty)}",
    )
    if cost is not None:
        yield SummaryLine(
            "Costs",
            f"{notation.duration(cost.session_s * 1e9)} of CPU per session, {notation.duration(cost.step_s * 1e9)} per step, "
            f"{notation.size(cost.memory_session)} per session",
        )
    for quantity, title in QUANTITIES.items():
        errors = [
            (error, one.sessions)
            for one in run.of(Prediction)
            if one.quantity == quantity and (error := error_of(one)) is not None
        ]
        if errors:
            worst = max(errors, key=lambda pair: abs(pair[0]))
            within = sum(abs(error) < AIM for error, _ in errors)
            yield SummaryLine(
                title,
                f"{within} of {len(errors)} predictions within {notation.share(AIM)}; the worst is off by {worst[0]:+.1%}, at "
                f"{notation.plural(worst[1], 'session')}",
                "good" if within == len(errors) else "bad",
            )


def _costs(cost: CostModel | None) -> Section:
    if cost is None:
        return Section(
            "costs", "What sessions cost", (paragraph("Too few cells came to their end for a cost model."),)
        )
    blocks: tuple[Block, ...] = (
        paragraph(
            "Fitted by relative least squares with parts that are not negative: CPU seconds of the server = a part per second, "
            "measured without sessions, + a part per session + a part per step; memory, descriptors and threads at their peak = a base + a part per session."
        ),
        Facts(
            (
                ("CPU per session (connect, reset, close)", (notation.duration(cost.session_s * 1e9),)),
                ("CPU per step", (notation.duration(cost.step_s * 1e9),)),
                ("CPU per second of a server that runs", (notation.duration(cost.second_s * 1e9),)),
                (
                    "Memory",
                    (
                        f"{notation.size(cost.memory_base)}, and {notation.size(cost.memory_session)} per session",
                    ),
                ),
                ("Descriptors", (f"{cost.fds_base:.0f}, and {cost.fds_session:.2f} per session",)),
                ("Threads", (f"{cost.threads_base:.0f}, and {cost.threads_session:.2f} per session",)),
                ("Cells behind it", (f"{cost.cells}, of up to {notation.plural(cost.largest, 'session')}",)),
            )
        ),
    )
    return Section("costs", "What sessions cost", blocks)


def _errors(run: Run) -> Section:
    rows = []
    for one in run.of(Prediction):
        error = error_of(one)
        tone: Tone = "muted" if error is None else "good" if abs(error) < AIM else "bad"
        rows.append(
            (
                Entry(f"{one.sessions:,}"),
                Entry(QUANTITIES.get(one.quantity, one.quantity)),
                Entry(notation.quantity(round(one.predicted, 6), one.unit)),
                Entry(notation.quantity(round(one.measured, 6), one.unit)),
                Entry("nothing measured" if error is None else f"{error:+.1%}", tone=tone),
            )
        )
    table = Table(
        caption="Predicted, then measured",
        about=f"{CHECK_TURNS} turns, which no cell behind the cost model has",
        columns=(
            Column("Sessions", numeric=True),
            Column("Quantity"),
            Column("Predicted", numeric=True),
            Column("Measured", numeric=True),
            Column("Error", numeric=True),
        ),
        rows=tuple(rows),
        remarks=(f"The aim is an error below {notation.share(AIM)}.",),
    )
    return Section(
        "errors", "Predicted against measured", (table,) if rows else (paragraph("Nothing was compared."),)
    )


def _cells(run: Run) -> Section:
    rows = tuple(_cell(one) for one in observations(run))
    table = Table(
        caption="What each cell used",
        about="every cell in a fresh server that has served a few sessions before",
        columns=(
            Column("Sessions", numeric=True),
            Column("Turns", numeric=True),
            Column("Used for"),
            Column("Wall time", numeric=True),
            Column("CPU", numeric=True),
            Column("Memory per session", numeric=True),
            Column("Descriptors", numeric=True),
            Column("Threads", numeric=True),
        ),
        rows=rows,
    )
    return Section("cells", "The cells", (table,) if rows else (paragraph("No cell came to its end."),))


def _cell(one: Observation) -> tuple[Entry, ...]:
    return (
        Entry(f"{one.sessions:,}"),
        Entry(f"{one.turns}"),
        Entry("the check" if one.turns == CHECK_TURNS else "the fit"),
        Entry(notation.duration(one.wall_s * 1e9)),
        Entry(notation.duration(one.cpu_s * 1e9)),
        Entry(notation.size(max(0, one.memory_peak - one.memory_before) / one.sessions)),
        Entry(f"{one.fds_peak:,}"),
        Entry(f"{one.threads_peak:,}"),
    )
