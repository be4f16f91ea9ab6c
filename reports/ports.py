"""Pages about ports: the ledger of one, and the matrix of many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from bench.porting.ledger import STATUSES, concerned, status_of
from bench.porting.records import (
    ASPECTS,
    EPISODES_FILE,
    LOSS_FILE,
    LossEntry,
    MatrixSource,
    Mismatch,
    PortMatrix,
    PortRecord,
    ProofRecord,
    RoundTrip,
)
from canonical.stone import Concern, PieceName


def render_port(record: PortRecord) -> str:
    """Return `PORT.md` of a port: what was ported where, what becomes of each piece, and what was proven."""
    source, target = record.source, record.target
    tasks = f"{source.tasks:,} {'task' if source.tasks == 1 else 'tasks'}"
    what = (
        f"Ported from {_packages(source.packages)} to {_packages(target.packages)}. {tasks}; tools: "
        f"{', '.join(source.tools)}."
    )
    how = (
        f"`rosetta verify-port` with this folder plays the recorded episodes on both sides again{_with_options(record)}. "
        f"`{LOSS_FILE}` holds this page for programs, `{EPISODES_FILE}` the episodes."
    )
    losses = [entry.loss() for entry in record.ledger]
    lines = [
        f"# {source.name} under {target.framework}",
        "",
        what,
        "",
        how,
        "",
        "## What becomes of it",
        "",
        "| piece | | what a trainer will notice |",
        "| --- | --- | --- |",
        *(_row(entry) for entry in record.ledger),
        "",
        "By what trainers notice first:",
        "",
        *(f"- {concern.value}: {concerned(concern, losses)}" for concern in Concern),
        "",
    ]
    if record.accepted:
        lines += [f"Losses accepted: {', '.join(piece.value for piece in record.accepted)}.", ""]
    lines += ["## What was proven", "", *_proof(record.proof)]
    return "\n".join(lines).rstrip() + "\n"


def _with_options(record: PortRecord) -> str:
    given = record.source.options
    said = ", ".join(f"{name} {value}" for name, value in given.items())
    return f"; the source was lifted with {said}" if said else ""


def _packages(packages: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in packages.items())


def _row(entry: LossEntry) -> str:
    note = entry.note.replace("|", "\\|").replace("\n", " ")
    return f"| {entry.piece.value} | {entry.status} | {note} |"


def _proof(proof: ProofRecord | None) -> list[str]:
    if proof is None:
        return ["Nothing yet: run `rosetta verify-port`."]
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(proof.kinds.items()))
    count = len(proof.mismatches)
    differences = "no difference" if not count else f"{count} {'difference' if count == 1 else 'differences'}"
    seen = (
        f"{proof.episodes} episodes ({kinds}), {proof.steps:,} actions, played with the source itself, over the bridge and "
        f"through the target in {proof.seconds:.1f} s; {proof.returns} returns read as trainers read them: {differences}."
    )
    lines = [seen]
    if not proof.returns:
        lines += ["", "No episode ended, so that neither an end nor a return was compared."]
    if proof.unrepeatable:
        lines += [
            "",
            "The source shows something else each time, so there was nothing to compare: the episodes were only played.",
        ]
    for one in proof.mismatches[:20]:
        lines += ["", *(f"    {line}" for line in render_mismatch(one).splitlines())]
    return lines


def render_mismatch(one: Mismatch) -> str:
    """Return a difference as text for a person."""
    place = "before the first step" if one.step is None else f"at step {one.step}"
    left, right = one.between.split(" and ")
    return (
        f"episode {one.episode} (task {one.task}): {one.piece} differs {place}\n"
        f"  {left + ':':<8} {one.source}\n  {right + ':':<8} {one.target}"
    )


@dataclass(frozen=True, slots=True)
class PortCell:
    """Hold a port in a table.

    Attributes:
        text: What it says.
        brief: The same in numbers: episodes that differ, of how many; pieces that are kept, approximated and lost.
        entries: What of the ledger is not preserved.
    """

    text: str
    brief: str
    entries: tuple[LossEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class PortRow:
    """Hold a source and its ports, one for each target."""

    source: MatrixSource
    cells: tuple[PortCell, ...]


@dataclass(frozen=True, slots=True)
class PortGroup:
    """Hold rows of one kind.

    Attributes:
        anchor: The name of its place on a page.
        title: What the rows are.
        rows: The rows.
    """

    anchor: str
    title: str
    rows: tuple[PortRow, ...]


@dataclass(frozen=True, slots=True)
class TripCell:
    """Hold in how many episodes something was the same at both ends of a way, and the first place where it was not."""

    count: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class TripRow:
    """Hold a round trip, with a cell for each aspect."""

    source: str
    through: str
    episodes: int
    reason: str
    cells: tuple[TripCell, ...]


TRIPS = (
    "A source ported to another framework, lifted out of it there, and ported back. A cell says in how many episodes both "
    "ends are the same: rewards, ends and causes step by step, the return when both are over. A framework that shows no end "
    "gets one more message without a call, after which its agents ask for the reward. A way adds what the ledgers of its two "
    "ports name: tools may be written into the prompt, a tool for text may join the others, and a call of an unknown tool is "
    "answered where it is seen first, so that only that side counts it as a turn."
)
"""What a table of round trips compares."""


def groups_of(matrix: PortMatrix) -> list[PortGroup]:
    """Return the ports of a matrix as rows: the hand-written Wordles, other sources of frameworks, and libraries of tasks."""
    by_place = {(port.source.name, port.target.framework): port for port in matrix.ports}
    groups = []
    for is_baseline, is_library, anchor, title in (
        (True, False, "wordle", "Wordle, written by hand for each framework"),
        (False, False, "others", "Other sources"),
        (False, True, "libraries", "Libraries of tasks"),
    ):
        rows = tuple(
            PortRow(row, tuple(_cell(by_place.get((row.name, target))) for target in matrix.targets))
            for row in matrix.sources
            if row.baseline is is_baseline and row.library is is_library
        )
        if rows:
            groups.append(PortGroup(anchor, title, rows))
    return groups


def trip_rows(trips: Sequence[RoundTrip]) -> list[TripRow]:
    """Return round trips as rows."""
    return [
        TripRow(
            trip.source,
            trip.through,
            trip.episodes,
            _line(trip.reason),
            tuple(
                TripCell(
                    "" if trip.reason else str(trip.equal.get(aspect, 0)), trip.differing.get(aspect, "")
                )
                for aspect in ASPECTS
            ),
        )
        for trip in trips
    ]


def summary_of(matrix: PortMatrix) -> str:
    """Return what a matrix shows, as one sentence."""
    proofs = [port.proof for port in matrix.ports if port.proof is not None]
    differ = sum(bool(proof.mismatches) for proof in proofs)
    sources = len({port.source.name for port in matrix.ports})
    unported = f"; {len(matrix.unported)} could not be made" if matrix.unported else ""
    return (
        f"{sources} sources, {len(matrix.ports)} ports, {sum(proof.episodes for proof in proofs):,} episodes, "
        f"{sum(proof.steps for proof in proofs):,} actions on all sides: {_how_many(differ)}{unported}."
    )


def made_of(matrix: PortMatrix) -> str:
    """Return when and how a matrix was made, and what a cell of it says."""
    commit = (
        ""
        if matrix.commit is None
        else f", commit {matrix.commit[:12]}{' with changes' if matrix.dirty else ''}"
    )
    return (
        f"rosetta ports, {matrix.written:%Y-%m-%d %H:%M} UTC, {matrix.seconds:.0f} s{commit}. A cell says how many episodes were "
        "played with the source itself, over the bridge and through the target, in how many of them something differs, "
        "and of how many of the eleven pieces everything is kept, something is approximated, or something is lost."
    )


def _how_many(differ: int) -> str:
    if not differ:
        return "no port differs from its source"
    return "1 port differs from its source" if differ == 1 else f"{differ} ports differ from their source"


def _cell(record: PortRecord | None) -> PortCell:
    if record is None:
        return PortCell("not made", "not made")
    entries = tuple(entry for entry in record.ledger if entry.status != "preserved")
    proof = record.proof
    if proof is None:
        return PortCell("not proven", "not proven", entries)
    losses = [entry.loss() for entry in record.ledger]
    counts = Counter(status_of(piece, losses) for piece in PieceName)
    differ = f"{len(proof.mismatches)} differ"
    if proof.unrepeatable and not proof.mismatches:
        differ = "nothing to compare, as the source does not repeat itself"
    kept = ", ".join(f"{counts[status]} {word}" for status, word in zip(STATUSES, _WORDS, strict=True))
    brief = (
        f"{len(proof.mismatches)} of {proof.episodes}; {'/'.join(str(counts[status]) for status in STATUSES)}"
    )
    return PortCell(f"{proof.episodes} episodes, {differ}; {kept}", brief, entries)


_WORDS = ("kept", "approximated", "lost")


def render_matrix(matrix: PortMatrix) -> str:
    """Return the page of a matrix: hand-written Wordles, other sources, libraries, round trips, and each source's losses."""
    lines = ["# Ports", "", summary_of(matrix), "", made_of(matrix), ""]
    for group in groups_of(matrix):
        lines += [
            f"## {group.title}",
            "",
            f"| source | {' | '.join(f'to {name}' for name in matrix.targets)} |",
        ]
        lines.append(f"| --- |{' --- |' * len(matrix.targets)}")
        for row in group.rows:
            cells = " | ".join(cell.text for cell in row.cells)
            lines.append(f"| `{row.source.name}`, {row.source.what} | {cells} |")
        lines.append("")
    if matrix.round_trips:
        lines += ["## There and back", "", *_trips(matrix.round_trips), ""]
    lines += ["## What happens to each source", ""]
    for source in matrix.sources:
        lines += _ledgers(source, matrix)
    if matrix.unported:
        lines += ["## What could not be ported", ""]
        lines += [
            f"- `{one.source}`{f' to {one.target}' if one.target else ''}: {_line(one.reason)}"
            for one in matrix.unported
        ]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _trips(trips: Sequence[RoundTrip]) -> list[str]:
    lines = [
        TRIPS,
        "",
        f"| source | through | episodes | {' | '.join(ASPECTS)} |",
        f"| --- | --- | --- |{' --- |' * len(ASPECTS)}",
    ]
    notes = []
    for row in trip_rows(trips):
        cells = " | ".join(cell.count for cell in row.cells)
        lines.append(f"| `{row.source}` | {row.through} | {row.reason or row.episodes} | {cells} |")
        notes += [
            f"- `{row.source}` through {row.through}, {aspect}: {_line(cell.place)}"
            for aspect, cell in zip(ASPECTS, row.cells, strict=True)
            if cell.place
        ]
    return [*lines, *(["", "Where they are not the same first:", "", *notes] if notes else [])]


def _ledgers(row: MatrixSource, matrix: PortMatrix) -> list[str]:
    ports = [port for port in matrix.ports if port.source.name == row.name]
    if not ports:
        return []
    everywhere = [entry for entry in ports[0].ledger if all(entry in port.ledger for port in ports)]
    lines = [f"### {row.name}", "", f"{row.what[:1].upper()}{row.what[1:]}. Wherever it goes:", ""]
    lines += [f"- {_entry(entry)}" for entry in everywhere if entry.status != "preserved"]
    for port in ports:
        special = [entry for entry in port.ledger if entry not in everywhere and entry.status != "preserved"]
        lines += [f"- to {port.target.framework}: {_entry(entry)}" for entry in special]
        if port.proof is not None:
            for one in port.proof.mismatches[:3]:
                lines += ["", *(f"    {line}" for line in render_mismatch(one).splitlines()), ""]
    return [*lines, ""]


def _entry(entry: LossEntry) -> str:
    return f"{entry.piece.value}, {entry.status}: {_line(entry.note)}"


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
