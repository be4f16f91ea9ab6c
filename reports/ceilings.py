"""The ceiling report: how many sessions a written criterion allows, trial by trial, and whether the load was real."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.ceiling import is_success_only
from bench.records import Burst, CrossCheck, Live, Probe
from bench.samples import Phase
from bench.stats import littles_law
from reports import charts, notation
from reports.document import Block, Bullets, Column, Entry, Facts, Figure, Section, Strong, Table, paragraph
from reports.latency import chart_steps
from reports.measurements import Flow, Ladder, Measurements, flow
from reports.wording import (
    STOPPED_BY,
    SUBJECTS,
    describe_condition,
    describe_confirmation,
    describe_result,
    describe_workload,
    usable_cores,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bench.records import Ceiling, Cell, Criterion, Verdict

CRITERIA = {
    "server_died": "server died",
    "fds": "descriptors",
    "memory": "memory",
    "limit": "configured cap",
    "success": "success",
    "success_all": "success",
    "held": "held at once",
    "step_p99": "step",
    "step_max": "step",
    "connect_p99": "connect",
    "connect_max": "connect",
    "reset_p99": "reset",
    "reset_max": "reset",
    "freed": "left behind",
    "client_cpu": "generator CPU",
    "client_loop_lag": "generator lag",
}
"""Criterion to the column it stands in. A stricter stand-in shares the column of what it stands in for."""


def ceiling(measurements: Measurements) -> Section:
    """Report the ceilings, the ladder that led to them, and every verdict."""
    if measurements.in_process and not measurements.ceilings and not measurements.verdicts:
        text = f"There is no server that could hold sessions: {measurements.in_process}."
        if measurements.run.of(Live):
            text += " How many episodes the process itself can hold is below, under live episodes."
        return Section("ceiling", "Concurrency ceiling", (paragraph(Strong("Not searched. "), text),))
    blocks: list[Block] = [*_results(measurements)]
    for number, ladder in enumerate(measurements.ladders):
        figure = _ladder_figure(measurements, ladder, number)
        blocks += [figure] if figure else []
    blocks += _verdict_tables(measurements)
    if not measurements.run.of(Burst):
        blocks += _size_table(measurements)
    return Section("ceiling", "Concurrency ceiling", tuple(blocks))


def _results(measurements: Measurements) -> list[Block]:
    freed = "" if "freed" in measurements.not_asked else "the server keeps none of those that were closed, "
    explained = Bullets(
        (
            (
                Strong("Concurrency ceiling (SLO). "),
                (
                    "The largest number of sessions held open at the same time that meets a service-level objective, written "
                    "down before: enough of them succeed, they are counted open together, the p99 of step, connect and "
                    f"reset stay within their limits, {freed}and the load generator is not saturated."
                ),
            ),
            (
                Strong("Size by success alone. "),
                (
                    "The largest number of sessions of which at least 95 % succeed on average, however long they take: neither "
                    "latency, nor an interval, nor how many were open together is asked for. It is given because published "
                    "figures are of this kind; it is not a ceiling."
                ),
            ),
        )
    )
    if not measurements.ceilings:
        return [
            paragraph(
                Strong("Not searched. "),
                "This run looked for no ceiling: the numbers of sessions below are those of the plan, and the largest of them is no limit.",
            ),
            explained,
        ]
    cores = usable_cores(measurements.run.header.machine)
    several = len({found.subject for found in measurements.ceilings}) > 1
    tables: list[Block] = [
        Table(
            caption="What the search found",
            about=workload,
            columns=(
                Column("Criterion"),
                *([Column("Environment")] if several else []),
                Column("Largest that passed", "sessions", numeric=True),
                Column("Smallest that failed", "sessions", numeric=True),
                Column("Ended by"),
                Column("Per core", "sessions", numeric=True),
                Column("Trials", numeric=True),
            ),
            rows=tuple(
                _result_row(measurements, found, cores, several=several)
                for found in measurements.ceilings
                if describe_workload(found.workload) == workload
            ),
            remarks=(
                (
                    "A ceiling is a bracket: the largest number that passed and the smallest at which the system itself failed. "
                    "“At least” means that something other than the system ended the search."
                ),
                _cores_remark(cores),
            ),
        )
        for workload in dict.fromkeys(describe_workload(found.workload) for found in measurements.ceilings)
    ]
    answers = [
        paragraph(
            Strong(f"Concurrency ceiling{', ' + SUBJECTS[found.subject] if several else ''}: "),
            f"{describe_result(found)}.",
        )
        for found in measurements.ceilings
        if found.criterion == "slo"
    ]
    return [*answers, explained, *tables, *_declared(measurements)]


def _cores_remark(cores: float | None) -> str:
    if cores is None:
        return "Per core is left out: the number of processors is not recorded."
    return f"Per core divides by all {cores:g} processors of this machine, which the load generator shares with the server."


def _result_row(
    measurements: Measurements, found: Ceiling, cores: float | None, *, several: bool
) -> tuple[Entry, ...]:
    most = "at least " if found.censored else ""
    return (
        Entry(_criterion_name(found)),
        *([Entry(SUBJECTS[found.subject])] if several else []),
        Entry(
            f"{most}{found.lower:,}" if found.lower else "none",
            # A size by success alone is read off the trials of the other search, and nobody tries it again.
            detail=describe_confirmation(found, measurements.confirmation(found))
            if found.criterion == "slo"
            else "",
        ),
        Entry(f"{found.upper:,}" if found.upper else "none seen"),
        Entry(STOPPED_BY[found.stopped_by], detail=found.stopped_by),
        Entry(notation.count(found.lower / cores) if cores else "unknown"),
        Entry(f"{found.trials:,}"),
    )


def _criterion_name(found: Ceiling) -> str:
    return "ceiling (SLO)" if found.criterion == "slo" else "size (success alone)"


def _declared(measurements: Measurements) -> list[Block]:
    model = measurements.run.header.features.get("concurrent_sessions")
    declared = (
        f"{model.level}{f': {model.note}' if model.note else ''}" if model else "not declared by the adapter"
    )
    caps = {
        notation.settings(found.configured_caps) for found in measurements.ceilings if found.configured_caps
    }
    servers = {notation.settings(ladder.condition.server_fields) for ladder in measurements.ladders}
    probes, checks = measurements.run.of(Probe), measurements.run.of(CrossCheck)
    return [
        Facts(
            (
                ("Concurrent sessions, as declared", (declared,)),
                ("Configured caps", ("; ".join(sorted(caps)) or "none recorded",)),
                *((("Width of the executor", tuple(map(_width, probes))),) if probes else ()),
                *((("Cross-check of the engines", tuple(map(_agreement, checks))),) if checks else ()),
                ("Server settings", ("; ".join(sorted(filter(None, servers))) or "none recorded",)),
            )
        )
    ]


def _width(probe: Probe) -> str:
    tool = f"a tool that blocks its thread for {notation.duration(probe.tool_ns)}"
    if probe.width is None:
        return f"at least {probe.points[-1][1]:,}: {probe.most:,} steps of {tool} at the same time, and none had to wait"
    return f"{probe.width:,}: of {probe.most:,} steps of {tool} at the same time, the others came in a later round"


def _agreement(check: CrossCheck) -> str:
    word = "agree" if check.agrees else "do not agree"
    return (
        f"both {word} at {notation.plural(check.sessions, 'session')}: median of {check.phase} "
        f"{notation.duration(check.locust_ns)} by locust (n {check.locust_n:,}), {notation.duration(check.client_ns)} "
        f"by the framework's own client (n {check.client_n:,})"
    )


def _ladder_figure(measurements: Measurements, ladder: Ladder, number: int) -> Figure | None:
    steps = chart_steps(ladder, Phase.STEP)
    if not steps:
        return None
    found = next((c for c in reversed(ladder.ceilings(measurements)) if c.criterion == "slo"), None)
    limits = [
        criterion.limit
        for point in ladder.points
        if (criterion := point.criterion("step_p99", "step_max")) is not None
    ]
    tool_ns = ladder.condition.workload_fields.get("tool_ns") or None
    bracket = None
    if found is not None and found.lower:
        label = f"at least {found.lower:,}" if found.censored else f"ceiling {found.lower:,}"
        if found.upper and not found.censored:
            label += f"{notation.RANGE}{found.upper:,}"
        bracket = charts.Bracket(found.lower, found.upper, label)
    words = [_step_words(step) for step in steps]
    limit_words = f" The limit of the p99 is {notation.duration(max(limits))}." if limits else ""
    ceiling_words = (
        f" Concurrency ceiling (SLO): {describe_result(found)}."
        if found
        else " No ceiling was searched under this workload."
    )
    return Figure(
        charts.draw_ladder(
            "ceiling" if number == 0 else f"ceiling-{number + 1}",
            steps,
            subject=ladder.condition.subject,
            limit_ns=max(limits) if limits else None,
            tool_ns=tool_ns,
            bracket=bracket,
        ),
        caption=f"Step latency over the sessions held: {describe_condition(ladder.condition)}. Bands are the 95 % intervals of the p99; "
        "the shaded strip is the bracket of the ceiling.",
        alternative=f"Latency of a step over the number of sessions held. {'; '.join(words)}.{limit_words}{ceiling_words}",
    )


def _step_words(step: charts.Step) -> str:
    tail = (
        f"p99 {notation.duration(step.p99[0])}" if step.p99 else f"largest {notation.duration(step.largest)}"
    )
    verdict = {"pass": ", passed", "fail": ", failed", "mixed": ", passed in some trials", None: ""}[
        step.verdict
    ]
    return f"{notation.plural(step.sessions, 'session')}: {tail}{verdict}"


def held_verdicts(measurements: Measurements) -> list[tuple[Cell, Verdict]]:
    """Pair the verdicts by the written criterion with their cells, ascending in sessions."""
    cells = {cell.id: cell for cell in measurements.cells}
    pairs = [
        (cells[verdict.cell], verdict)
        for verdict in measurements.verdicts
        if not is_success_only(verdict) and cells[verdict.cell].workload.get("arrival", "closed") == "closed"
    ]
    return sorted(
        pairs,
        key=lambda pair: (pair[0].subject != "compiled", pair[1].sessions, pair[0].repetition, pair[0].order),
    )


def _verdict_tables(measurements: Measurements) -> list[Block]:
    pairs = held_verdicts(measurements)
    if not pairs:
        return [
            paragraph(Strong("No verdicts. "), "No cell of this run was judged by the written criterion.")
        ]
    columns = criterion_names([verdict for _, verdict in pairs])
    several = len({cell.subject for cell, _ in pairs}) > 1
    rows = []
    for cell, verdict in pairs:
        failed = [_column(criterion) for criterion in verdict.criteria if not criterion.passed]
        rows.append(
            (
                *([Entry(SUBJECTS[cell.subject])] if several else []),
                Entry(f"{verdict.sessions:,}"),
                Entry(f"{cell.repetition:,}"),
                Entry("passed", tone="good")
                if verdict.passed
                else Entry("failed", detail=notation.listing(failed), tone="bad"),
                *(criterion_entry(verdict, column) for column in columns),
            )
        )
    return [
        Table(
            caption="Verdicts by the written criterion",
            about="trial by trial: what was found, and its limit",
            columns=(
                *([Column("Environment")] if several else []),
                Column("Sessions", numeric=True),
                Column("Trial", numeric=True),
                Column("Verdict"),
                *(Column(column, numeric=True) for column in columns),
            ),
            rows=tuple(rows),
            remarks=(
                (
                    "Success is the lower bound of the share of sessions that succeeded; step, connect and reset are the upper bounds of "
                    "their p99 (both 95 %). Where a trial is too small for a bound, all sessions must succeed and the largest value must "
                    "meet the limit (marked “largest” or “all must”)."
                ),
            ),
        )
    ]


def criterion_names(verdicts: Iterable[Verdict]) -> list[str]:
    """Return the columns that the criteria of verdicts stand in, in the order of a table."""
    present = {_column(criterion) for verdict in verdicts for criterion in verdict.criteria}
    columns = [column for column in dict.fromkeys(CRITERIA.values()) if column in present]
    return columns + sorted(present - set(columns))


def _column(criterion: Criterion) -> str:
    return CRITERIA.get(criterion.name, criterion.name.replace("_", " "))


def criterion_entry(verdict: Verdict, column: str) -> Entry:
    """Return what a verdict says under a column of `criterion_names`."""
    criterion = next((c for c in verdict.criteria if _column(c) == column), None)
    if criterion is None:
        return Entry("not judged", tone="muted")
    sign = {
        "step": "≤", "connect": "≤", "reset": "≤", "left behind": "≤", "generator CPU": "<", "generator lag": "<",
    }.get(column, "≥")  # fmt: skip
    limit = f"{sign} {notation.quantity(criterion.limit, criterion.unit)}"
    if criterion.name.endswith("_max"):
        limit = f"largest {limit}"
    if criterion.name == "success_all":
        limit = f"all must: {limit}"
    if criterion.value is None:
        value = notation.INFINITE if criterion.note.startswith("infinite") else "not measured"
    elif criterion.unit == "aborted trials":
        return Entry("aborted", detail=criterion.note, tone="bad")
    else:
        value = notation.quantity(criterion.value, criterion.unit)
    return Entry(value, detail=limit, tone="plain" if criterion.passed else "bad")


def _size_table(measurements: Measurements) -> list[Block]:
    cells = {cell.id: cell for cell in measurements.cells}
    sizes = sorted(
        (verdict for verdict in measurements.verdicts if is_success_only(verdict)),
        key=lambda verdict: (cells[verdict.cell].subject != "compiled", verdict.sessions),
    )
    if not sizes:
        return []
    return [
        Table(
            caption="Sizes judged by success alone",
            about="the kind of figure that is published; not a ceiling",
            columns=(
                Column("Sessions", numeric=True),
                Column("Environment"),
                Column("Verdict"),
                Column("Mean success", numeric=True),
                Column("Note"),
            ),
            rows=tuple(
                (
                    Entry(f"{verdict.sessions:,}"),
                    Entry(SUBJECTS[cells[verdict.cell].subject]),
                    Entry("passed", tone="good") if verdict.passed else Entry("failed", tone="bad"),
                    criterion_entry(verdict, _column(verdict.criteria[0])),
                    Entry(verdict.criteria[0].note),
                )
                for verdict in sizes
            ),
        )
    ]


def load(measurements: Measurements) -> Section | None:
    """Report throughput, the cross-check by Little's law, and whether the load generator kept up.

    Where there is no server to put under load, and nothing was, there is nothing to report.
    """
    rows, sentences = _load_rows(measurements.ladders, measurements)
    if not rows and measurements.in_process:
        return None
    if not rows:
        return Section(
            "load",
            "Throughput and the load generator",
            (
                paragraph(
                    Strong("Not measured. "),
                    "No cell with more than one session recorded a throughput in this run.",
                ),
            ),
        )
    several = len({ladder.condition.subject for ladder in measurements.ladders}) > 1
    blocks: list[Block] = [
        paragraph(
            "Little's law: throughput \N{MULTIPLICATION SIGN} time in the system = sessions in the system. If the product does not agree with the "
            "sessions that were counted, the load was not what it is said to be."
        ),
        Table(
            caption="Throughput and cross-checks",
            about="trial by trial",
            columns=(
                *([Column("Environment")] if several else []),
                Column("Sessions", numeric=True),
                Column("Trial", numeric=True),
                Column("Succeeded", "sessions", numeric=True),
                Column("Throughput", "steps/s", numeric=True),
                Column("Steady rate", "steps/s", numeric=True),
                Column("Time per step", "mean, with thinking", numeric=True),
                Column("Little's law", "sessions", numeric=True),
                Column("Counted open", "sessions", numeric=True),
                Column("Agreement"),
                Column("Generator CPU", numeric=True),
                Column("Generator lag p99", numeric=True),
                Column("Generator"),
            ),
            rows=tuple(row if several else row[1:] for row in rows),
            remarks=(
                (
                    "Throughput counts right steps from the first step to the last, while sessions still come and go. The steady rate is "
                    "taken while every whole session is playing (a step that lies partly inside counts in part), and Little's law is applied to it; agreement is within 10 %. A saturated generator makes the other numbers its own: such a trial says nothing about the system."
                ),
                *sentences,
            ),
        ),
    ]
    return Section("load", "Throughput and the load generator", tuple(blocks))


def _left_out(steady: Flow | None) -> str:
    return f"{steady.left_out:,} failed, left out" if steady and steady.left_out else ""


def _load_rows(
    ladders: Sequence[Ladder], measurements: Measurements
) -> tuple[list[tuple[Entry, ...]], list[str]]:
    rows: list[tuple[Entry, ...]] = []
    disagreements = judged = saturated = generators = 0
    for ladder in ladders:
        think_ns = float(ladder.condition.workload_fields.get("think_ns", 0))
        for point in ladder.points:
            if point.sessions == 1:
                continue
            for cell in point.cells:
                end = point.ends[cell.id]
                table = measurements.samples(cell.id)
                steady = flow(table) if table is not None else None
                rate, counted, own = end.throughput_steps_per_s, end.peak_open, end.generator
                missing = Entry("not measured", tone="muted")
                law, agreement = missing, missing
                if steady is not None and counted is not None:
                    playing = max(0, counted - steady.left_out)
                    found = littles_law(steady.steps_per_s, (steady.mean_step_ns + think_ns) / 1e9, playing)
                    law = Entry(notation.count(round(found.expected)))
                    agreement = Entry("agrees") if found.agrees else Entry("does not agree", tone="bad")
                    judged += 1
                    disagreements += not found.agrees
                generators += own is not None
                saturated += own is not None and own.saturated
                rows.append(
                    (
                        Entry(SUBJECTS[cell.subject]),
                        Entry(f"{cell.sessions:,}"),
                        Entry(f"{cell.repetition:,}"),
                        Entry(
                            f"{end.succeeded:,}",
                            detail=f"of {end.opened:,} opened" if end.opened is not None else "",
                            tone="bad" if end.succeeded < cell.sessions else "plain",
                        )
                        if end.succeeded is not None
                        else missing,
                        Entry(notation.count(round(rate, 1))) if rate is not None else missing,
                        Entry(
                            notation.count(round(steady.steps_per_s, 1)),
                            detail=f"over {notation.duration(steady.seconds * 1e9)}",
                        )
                        if steady
                        else Entry("too short", tone="muted"),
                        Entry(notation.duration(steady.mean_step_ns + think_ns)) if steady else missing,
                        law,
                        Entry(f"{counted:,}", detail=_left_out(steady)) if counted is not None else missing,
                        agreement,
                        Entry(
                            notation.share(own.cpu_s / (own.wall_s * own.cores)),
                            detail=f"of {notation.plural(own.cores, 'core')}",
                        )
                        if own
                        else missing,
                        Entry(notation.duration(own.loop_lag_p99_ns))
                        if own and own.loop_lag_p99_ns is not None
                        else missing,
                        (Entry("saturated", tone="bad") if own.saturated else Entry("kept up"))
                        if own
                        else missing,
                    )
                )
    sentences = []
    if judged:
        sentences.append(
            f"Little's law agrees in {judged - disagreements:,} of {notation.plural(judged, 'trial')}."
        )
    if generators:
        sentences.append(
            f"The generator was saturated in {saturated:,} of {notation.plural(generators, 'trial')}."
        )
    return rows, sentences
