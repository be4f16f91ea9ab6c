"""The latency report: phases at one session, and over the number of sessions held."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bench.samples import PHASES, Phase, Status
from bench.stats import TooSmall, instabilities, quantile, quantile_name, steady_state
from reports import charts, notation
from reports.document import Block, Bullets, Column, Entry, Figure, Section, Strong, Table, paragraph
from reports.measurements import QUANTILES, Ladder, Measurements, Point, equal
from reports.wording import SUBJECTS, describe_condition, estimate_entry, estimate_sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

BELOW = "Below each quantile stands its 95 % interval. Failed operations are part of n and count as infinitely slow."
"""What a reader must know at a table of quantiles; the rest is in the method."""


def one_session(measurements: Measurements) -> Section:
    """Report every phase at one session, measured alone."""
    anchor, title = "one-session", "Latency at one session"
    if not measurements.single:
        text = "No cell with one session was measured alone in this run."
        if measurements.paired:
            text += " Latencies of interleaved cells stand under “Compiled against hand-written”."
        return Section(anchor, title, (paragraph(Strong("Not measured. "), text),))
    blocks: list[Block] = [
        paragraph(
            "One session at a time: what a single rollout waits for. A phase is timed where the framework's own client "
            "runs, in whole nanoseconds, from sending until the answer is there."
        )
    ]
    blocks += _phase_blocks(measurements.single, "phases", "Phases at one session")
    blocks.append(_warmup_table(measurements.single))
    return Section(anchor, title, tuple(blocks))


def paired_blocks(measurements: Measurements) -> list[Block]:
    """Show the phases of cells that took turns, both sides beside each other."""
    if not measurements.paired:
        return []
    return _phase_blocks(measurements.paired, "paired-phases", "Phases of the interleaved cells, one session")


def _phase_blocks(points: Sequence[Point], name: str, caption: str) -> list[Block]:
    blocks: list[Block] = []
    for number, workload in enumerate(_workloads(points)):
        same = [point for point in points if (point.condition.workload, point.condition.engine) == workload]
        figure = _distributions(same, name if number == 0 else f"{name}-{number + 1}")
        blocks += [figure] if figure else []
        blocks.append(phase_table(same, caption))
        blocks += _warnings(same)
    return blocks


def _workloads(points: Iterable[Point]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((point.condition.workload, point.condition.engine) for point in points))


def _subject(points: Sequence[Point], point: Point) -> str:
    """Name a point among others of the same workload: by its subject, and by its server where that is not enough."""
    same = [other for other in points if other.condition.subject == point.condition.subject]
    if len(same) == 1:
        return SUBJECTS[point.condition.subject]
    mine, shared = point.condition.server_fields, set.intersection(*(set(_items(other)) for other in same))
    apart = {key: value for key, value in mine.items() if (key, notation.plain(value)) not in shared}
    return f"{SUBJECTS[point.condition.subject]} ({notation.settings(apart)})"


def _items(point: Point) -> Iterable[tuple[str, str]]:
    return ((key, notation.plain(value)) for key, value in point.condition.server_fields.items())


def phase_table(points: Sequence[Point], caption: str) -> Table:
    """Tabulate the quantiles of every phase of points with one workload."""
    rows = []
    for phase in PHASES:
        for response in (False, True):
            for point in points:
                if response and not point.condition.open_loop:
                    continue
                measured = point.population(phase, response=response)
                if not measured.n:
                    continue
                name = f"{phase}, response" if response else str(phase)
                trials = point.trials(phase)
                rows.append(
                    (
                        Entry(name),
                        Entry(_subject(points, point)),
                        Entry(f"{measured.n:,}"),
                        Entry(f"{measured.failures:,}", tone="bad" if measured.failures else "plain"),
                        *(estimate_entry(point.estimate(phase, q, response=response)) for q in QUANTILES),
                        Entry(f"{len(trials):,}"),
                    )
                )
    remarks = [BELOW]
    if any(point.condition.open_loop for point in points):
        remarks.append(
            "Response: from the intended start to the answer, what a user of an open system waits. Otherwise service time, from sending."
        )
    return Table(
        caption=caption,
        about=describe_condition(points[0].condition).split("; ", 1)[1],
        columns=(
            Column("Phase"),
            Column("Environment"),
            Column("n", numeric=True),
            Column("Failed", numeric=True),
            *(Column(quantile_name(q), numeric=True) for q in QUANTILES),
            Column("Trials", numeric=True),
        ),
        rows=tuple(rows),
        remarks=tuple(remarks),
    )


def _warmup_table(points: Sequence[Point]) -> Block:
    rows = []
    for point in points:
        for phase in PHASES:
            measured = point.population(phase, warmup=True)
            if measured.n:
                rows.append(
                    (
                        Entry(str(phase)),
                        Entry(SUBJECTS[point.condition.subject]),
                        Entry(f"{measured.n:,}"),
                        Entry(f"{measured.failures:,}", tone="bad" if measured.failures else "plain"),
                        estimate_entry(point.estimate(phase, 0.50, warmup=True)),
                        Entry(notation.duration(measured.at_rank(measured.n))),
                    )
                )
    if not rows:
        return paragraph("No operations were marked as warm-up: every one is in the tables above.")
    return Table(
        caption="Warm-up operations at one session",
        about="kept apart from the tables above",
        columns=(
            Column("Phase"),
            Column("Environment"),
            Column("n", numeric=True),
            Column("Failed", numeric=True),
            Column("p50", numeric=True),
            Column("Largest", numeric=True),
        ),
        rows=tuple(rows),
    )


def _warnings(points: Sequence[Point]) -> list[Block]:
    items = []
    for point in points:
        name = SUBJECTS[point.condition.subject]
        medians = [
            found.value
            for trial in point.trials(Phase.STEP)
            if not isinstance(found := quantile(trial, 0.50), TooSmall)
        ]
        if len(point.cells) > 1 and len(medians) > 1:
            items += [
                (Strong(f"Unstable, {name}. "), f"p50 of step over {len(medians)} trials: {reason.sentence}")
                for reason in instabilities(medians)
            ]
        items += [
            (
                Strong(f"Not steady, {name}, {notation.plural(point.sessions, 'session')}. "),
                f"Step: {sentence}.",
            )
            for sentence in _unsteady(point.tables.values())
        ]
    return [Bullets(tuple(items))] if items else []


def _unsteady(tables: Iterable[pa.Table]) -> Iterable[str]:
    for table in tables:
        wanted = equal(table, "phase", Phase.STEP) & ~table.column("warmup").to_numpy()
        ns, start = (table.column(name).to_numpy()[wanted] for name in ("ns", "start_ns"))
        ok = equal(table, "status", Status.OK)[wanted]
        verdict = steady_state(start + ns, ns, ok)
        if not isinstance(verdict, TooSmall) and not verdict.steady:
            yield str(verdict).removeprefix("not steady: ")


def _distributions(points: Sequence[Point], name: str) -> Figure | None:
    rows = []
    for phase in PHASES:
        for point in points:
            measured = point.population(phase)
            if not measured.ok.size:
                continue
            detail = "" if len(points) == 1 else SUBJECTS[point.condition.subject]
            rows.append(
                charts.Row(
                    str(phase),
                    detail,
                    point.condition.subject,
                    measured.ok,
                    measured.n,
                    measured.failures,
                    _marks(point, phase),
                )
            )
    if not rows:
        return None
    sentences = [
        f"{row.label}{row.detail and f', {row.detail}'} (n {row.n:,}): "
        + (
            ", ".join(f"{name} {notation.duration(value)}" for name, value, _, _ in row.marks)
            or "n too small for quantiles"
        )
        for row in rows
    ]
    return Figure(
        charts.draw_distributions(name, rows),
        caption="How long each phase takes at one session. The hill shows where operations fall (each to its own height), "
        "the marks below it p50, p95 and p99, the bands their 95 % intervals. Fewer than 30 operations are shown one by one.",
        alternative=f"Distribution of latency per phase at one session. {'; '.join(sentences)}.",
    )


def _marks(point: Point, phase: Phase) -> tuple[tuple[str, float, float, float], ...]:
    return tuple(
        (quantile_name(q), estimate.value, estimate.low, estimate.high)
        for q in QUANTILES
        if not isinstance(estimate := point.estimate(phase, q), TooSmall)
    )


def over_sessions(measurements: Measurements) -> Section | None:
    """Report every phase over the number of sessions held; nothing where there is no server that could hold any."""
    anchor, title = "sessions", "Latency over the number of sessions"
    if not measurements.ladders and measurements.in_process:
        return None
    if not measurements.ladders:
        return Section(
            anchor,
            title,
            (
                paragraph(
                    Strong("Not measured. "),
                    "No cell with more than one session came to its end in this run.",
                ),
            ),
        )
    blocks: list[Block] = [
        paragraph(
            "All sessions of a cell are open before the first of them is reset, and stay open until all have played."
        )
    ]
    for number, ladder in enumerate(measurements.ladders):
        figure = _phase_panels(ladder, number)
        blocks += [figure] if figure else []
        blocks.append(ladder_table(ladder))
        blocks += _warnings(ladder.points)
    return Section(anchor, title, tuple(blocks))


def ladder_table(ladder: Ladder) -> Table:
    """Tabulate p50 and p99 of every phase over the number of sessions."""
    phases = [phase for phase in _step_first() if any(point.population(phase).n for point in ladder.points)]
    rows = []
    for point in ladder.points:
        steps = point.population(Phase.STEP)
        entries = [
            Entry(f"{point.sessions:,}"),
            Entry(f"{len(point.cells):,}"),
            Entry(f"{steps.n:,}", detail=_failed(steps.failures)),
        ]
        for phase in phases:
            measured = point.population(phase)
            entries += [
                estimate_entry(point.estimate(phase, q))
                if measured.n
                else Entry("not measured", tone="muted")
                for q in (QUANTILES[0], QUANTILES[-1])
            ]
        rows.append(tuple(entries))
    others = [
        f"{phase} {point.population(phase).n:,}"
        for point in ladder.points[-1:]
        for phase in phases
        if phase is not Phase.STEP
    ]
    return Table(
        caption="Latency over sessions",
        about=describe_condition(ladder.condition),
        columns=(
            Column("Sessions", numeric=True),
            Column("Trials", numeric=True),
            Column("n (step)", numeric=True),
            *(
                Column(f"{phase} {quantile_name(q)}", numeric=True)
                for phase in phases
                for q in (QUANTILES[0], QUANTILES[-1])
            ),
        ),
        rows=tuple(rows),
        remarks=(
            BELOW,
            f"The other phases happen once per session and trial (last row: n of {notation.listing(others)}); every n is in tables/ladder.csv."
            if others
            else "No other phase was measured.",
        ),
    )


def _failed(failures: int) -> str:
    return f"{failures:,} failed" if failures else ""


def _step_first() -> list[Phase]:
    return sorted(PHASES, key=lambda phase: phase is not Phase.STEP)


def chart_steps(ladder: Ladder, phase: Phase) -> tuple[charts.Step, ...]:
    """Arrange one phase of a ladder for its chart."""
    steps = []
    for point in ladder.points:
        measured = point.population(phase)
        if not measured.n:
            continue
        p50, p99 = (point.estimate(phase, q) for q in (QUANTILES[0], QUANTILES[-1]))
        outcomes = {verdict.passed for verdict in point.verdicts}
        steps.append(
            charts.Step(
                sessions=point.sessions,
                p50=None if isinstance(p50, TooSmall) else (p50.value, p50.low, p50.high),
                p99=None if isinstance(p99, TooSmall) else (p99.value, p99.low, p99.high),
                largest=measured.at_rank(measured.n),
                verdict=None
                if not outcomes
                else "mixed"
                if len(outcomes) > 1
                else "pass"
                if outcomes == {True}
                else "fail",
            )
        )
    return tuple(steps)


def _phase_panels(ladder: Ladder, number: int) -> Figure | None:
    parts, sentences = [], []
    for phase in PHASES:
        # The verdict is about the whole point, mostly about its steps: marks of failure belong to that figure.
        steps = tuple(step._replace(verdict=None) for step in chart_steps(ladder, phase))
        if phase is Phase.STEP or not steps:
            continue
        limits = {
            criterion.limit
            for point in ladder.points
            if (criterion := point.criterion(f"{phase}_p99", f"{phase}_max")) is not None
        }
        parts.append(charts.Panel(str(phase), steps, max(limits) if limits else None))
        last = ladder.points[-1]
        sentences.append(
            f"{phase} at {last.sessions:,} sessions: {estimate_sentence('p50', last.estimate(phase, 0.5))}, largest {notation.duration(steps[-1].largest)}"
        )
    if not parts or all(
        math.isinf(step.largest) and step.p50 is None for part in parts for step in part.steps
    ):
        return None
    return Figure(
        charts.draw_panels(
            "other-phases" if number == 0 else f"other-phases-{number + 1}",
            parts,
            subject=ladder.condition.subject,
        ),
        caption="The phases beside the step, over the number of sessions: p50 (light) and p99 (dark, its interval as a band; "
        "hollow: the largest of all, where n is too small for a p99).",
        alternative=f"Latency of the other phases over the number of sessions. {'; '.join(sentences)}.",
    )
