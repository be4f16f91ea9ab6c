"""Pages about ports: the ledger of one, and the matrix of many."""

from __future__ import annotations

from collections.abc import Sequence

from bench.porting.ledger import status_of
from bench.porting.records import EPISODES_FILE, LOSS_FILE, LossEntry, Mismatch, PortRecord, ProofRecord
from canonical.stone import Concern, PieceName

_WORST = {"preserved": 0, "approximated": 1, "lost": 2}


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
        *(f"- {concern.value}: {_of_concern(concern, record.ledger)}" for concern in Concern),
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


def _of_concern(concern: Concern, ledger: Sequence[LossEntry]) -> str:
    said = [entry for entry in ledger if entry.concern is concern]
    if not said:
        return "preserved"
    return max((entry.status for entry in said), key=_WORST.__getitem__)


def _proof(proof: ProofRecord | None) -> list[str]:
    if proof is None:
        return ["Nothing yet: run `rosetta verify-port`."]
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(proof.kinds.items()))
    differences = f"{len(proof.mismatches)} differences" if proof.mismatches else "no difference"
    seen = (
        f"{proof.episodes} episodes ({kinds}), {proof.steps:,} actions, played with the source itself, over the bridge and "
        f"through the target in {proof.seconds:.1f} s; {proof.returns} returns read as trainers read them: {differences}."
    )
    lines = [seen]
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


def render_matrix(records: Sequence[PortRecord]) -> str:
    """Return a table of ports, a row for each source and a column for each target."""
    sources = list(dict.fromkeys(record.source.name for record in records))
    targets = list(dict.fromkeys(record.target.framework for record in records))
    by_place = {(record.source.name, record.target.framework): record for record in records}
    lines = [
        f"| source | {' | '.join(targets)} |",
        f"| --- |{' --- |' * len(targets)}",
    ]
    for source in sources:
        cells = [_cell(by_place.get((source, target))) for target in targets]
        lines.append(f"| `{source}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(record: PortRecord | None) -> str:
    if record is None:
        return ""
    proof = record.proof
    if proof is None:
        return "not proven"
    losses = [entry.loss() for entry in record.ledger]
    counts = [status_of(piece, losses) for piece in PieceName]
    differ = "0 differ" if not proof.mismatches else f"**{len(proof.mismatches)} differ**"
    return (
        f"{proof.episodes} episodes, {differ}; {counts.count('preserved')} kept, "
        f"{counts.count('approximated')} approximated, {counts.count('lost')} lost"
    )
