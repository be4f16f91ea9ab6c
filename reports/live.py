"""Live episodes of one process: what a step costs while more and more of them are alive, and what whole rollouts cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.records import Live, Rollouts
from reports import notation
from reports.document import (
    Block,
    Bullets,
    Code,
    Column,
    Entry,
    Section,
    Span,
    Strong,
    SummaryLine,
    Table,
    Verbatim,
    paragraph,
)

if TYPE_CHECKING:
    from reports.measurements import Measurements


def live(measurements: Measurements) -> Section | None:
    """Report live episodes by executor, and rollouts by path; nothing for a run that measured neither."""
    found = measurements.run.of(Live)
    rollouts = measurements.run.of(Rollouts)
    if not found and not rollouts:
        return None
    blocks: list[Block] = []
    if found:
        notes = {one.executor: one.note for one in found}
        blocks += [
            paragraph(
                "Episodes that are alive in one process, all of them stepped once per round, in each way in which users of the "
                "framework step them. Only rounds are timed. The garbage collector runs as in a trainer, so that it scans what "
                "is alive. Every observation, reward and ending is compared with the reference's, session by session."
            ),
            Bullets(tuple(_explained(name, note) for name, note in notes.items())),
            _steps_table(found),
        ]
    if rollouts:
        blocks += [
            paragraph(
                "Whole rollouts, from the task to its score, that the framework takes by itself. A scripted model stands in the "
                "place of the model, and its cost is within the numbers. The paths are not the same price, so a figure for "
                "this framework must name its path."
            ),
            Bullets(tuple(_explained(one.path, one.note) for one in rollouts)),
            _rollouts_table(rollouts),
        ]
    blocks += [
        Verbatim(f"The first wrong answer by {name}", text)
        for name, text in (
            *((one.executor, one.first_wrong) for one in found),
            *((one.path, one.first_wrong) for one in rollouts),
        )
        if text is not None
    ]
    return Section("live", "Live episodes in one process", tuple(blocks))


def live_line(measurements: Measurements) -> SummaryLine | None:
    """Say live episodes in one line: the largest number of the plainest executor; nothing where none were held."""
    found = measurements.run.of(Live)
    if not found:
        return None
    most = max((one for one in found if one.executor == found[0].executor), key=lambda one: one.sessions)
    memory = f", {notation.size(most.bytes_per_session)} each" if most.bytes_per_session is not None else ""
    wrong = sum(one.wrong for one in found)
    return SummaryLine(
        "Live episodes",
        f"{notation.plural(most.sessions, 'episode')} by {most.executor}: {notation.duration(most.step_ns)} per step, "
        f"{notation.count(round(1e9 / most.step_ns))} steps/s{memory}; {wrong:,} wrong answers",
        "bad" if wrong else "plain",
    )


def _explained(name: str, note: str) -> tuple[Span, ...]:
    # Names of the framework stand between backticks in a note.
    parts = note.split("`")
    spans = tuple(Code(part) if place % 2 else part for place, part in enumerate(parts))
    return (Strong(f"{name}: "), *spans, ".")


def _steps_table(found: tuple[Live, ...]) -> Table:
    first: dict[str, Live] = {}
    for one in found:
        first.setdefault(one.executor, one)
    rows = []
    for one in found:
        start = first[one.executor]
        rows.append(
            (
                Entry(one.executor),
                Entry(f"{one.sessions:,}"),
                Entry(
                    notation.duration(one.step_ns),
                    detail=""
                    if one.step_low_ns is None or one.step_high_ns is None
                    else notation.RANGE.join(map(notation.duration, (one.step_low_ns, one.step_high_ns))),
                ),
                Entry(notation.duration(one.step_cpu_ns)),
                Entry(notation.count(round(1e9 / one.step_ns))),
                Entry("1" if one is start else f"{one.step_cpu_ns / start.step_cpu_ns:.3g}")
                if start.step_cpu_ns
                else Entry("not measured", tone="muted"),
                Entry(notation.duration(one.open_ns)),
                Entry("not measured", tone="muted")
                if one.bytes_per_session is None
                else Entry(notation.size(one.bytes_per_session)),
                Entry(f"{one.threads:,}"),
                Entry(f"{one.steps:,}"),
                Entry(f"{one.wrong:,}", tone="bad" if one.wrong else "plain"),
            )
        )
    return Table(
        caption="A step, by the number of live episodes",
        about="",
        columns=(
            Column("Executor"),
            Column("Alive", "episodes", numeric=True),
            Column("Step", "median of rounds", numeric=True),
            Column("CPU of a step", numeric=True),
            Column("Rate", "steps/s", numeric=True),
            Column("CPU against the fewest", numeric=True),
            Column("Construct and reset", numeric=True),
            Column("Memory each", numeric=True),
            Column("Threads", numeric=True),
            Column("Steps", numeric=True),
            Column("Wrong", numeric=True),
        ),
        rows=tuple(rows),
        remarks=(
            "A step is the wall time of a round divided by its steps; the interval is of the median over rounds, and is left out below 6 of them.",
            "Memory each is the growth of what the process shares with nobody, from before any episode, divided by the live ones; for few episodes it is mostly what the process keeps for later.",
        ),
    )


def _rollouts_table(rollouts: tuple[Rollouts, ...]) -> Table:
    missing = Entry("not measured", tone="muted")
    return Table(
        caption="Whole rollouts, by path",
        about=f"{rollouts[0].turns} turns, {notation.plural(rollouts[0].concurrency, 'rollout')} at the same time",
        columns=(
            Column("Path"),
            Column("CPU of a rollout", numeric=True),
            Column("Wall time of a rollout", "all divided by their number", numeric=True),
            Column("Memory of a rollout", numeric=True),
            Column("Processes of a rollout", numeric=True),
            Column("Right", "rollouts", numeric=True),
        ),
        rows=tuple(
            (
                Entry(one.path),
                Entry(notation.duration(one.cpu_ns)),
                Entry(notation.duration(one.wall_ns)),
                missing if one.bytes_per_rollout is None else Entry(notation.size(one.bytes_per_rollout)),
                Entry(notation.count(round(one.processes, 2))),
                Entry(
                    f"{one.succeeded:,}",
                    detail=f"of {one.rollouts:,}",
                    tone="bad" if one.succeeded < one.rollouts else "plain",
                ),
            )
            for one in rollouts
        ),
        remarks=(
            "CPU is that of the process, the scripted model in it, and all processes that it started. One rollout was taken before, so that what is loaded once is not counted.",
            "Memory is the growth of the proportional memory of the process and its descendants at its largest, read 20 times a second.",
        ),
    )
