"""The matrix of versions as a report: a pure function of its cells."""

from __future__ import annotations

from collections.abc import Sequence

from bench.versions.cells import Cell, Outcome
from bench.versions.drift import FrameChange, SymbolChange, drifts, wire_drifts
from bench.versions.latencies import Latencies
from bench.versions.matrix import Matrix
from reports import notation
from reports.document import (
    Banner,
    Block,
    Bullets,
    Code,
    Column,
    Entry,
    Report,
    Section,
    SummaryLine,
    Table,
    Tone,
    Verbatim,
    paragraph,
)
from reports.page import markdown, page
from reports.release_latency import latency_banners, latency_section, latency_summary
from reports.render import MARKDOWN, PAGE, RenderedReport, figure_files
from reports.wording import OWN_WAY

_TONES: dict[Outcome, Tone] = {
    Outcome.PASSES: "good",
    Outcome.FAILS: "bad",
    Outcome.KNOWN: "muted",
    Outcome.NOT_INSTALLABLE: "muted",
    Outcome.NO_INTERPRETER: "muted",
}
_LONGEST = 160


def render_matrix(matrix: Matrix, latencies: Latencies | None = None) -> RenderedReport:
    """Render a matrix, with latencies where they were measured: the same records give the same bytes."""
    report = matrix_report(matrix, latencies)
    files = {PAGE: page(report).encode(), MARKDOWN: markdown(report).encode()}
    for figure in report.figures:
        files |= figure_files(figure.drawing)
    return RenderedReport(files, tuple(f"{line.label}: {line.text}" for line in report.summary))


def matrix_report(matrix: Matrix, latencies: Latencies | None = None) -> Report:
    """Build the report of a matrix, with latencies where they were measured."""
    sections = [_legend(matrix)]
    for title, cells in matrix.by_framework():
        sections.append(_framework(title, cells))
    summary, banners = _summary(matrix), _banners(matrix)
    if latencies is not None:
        sections.append(latency_section(latencies))
        summary.append(latency_summary(latencies))
        banners += latency_banners(latencies)
    return Report(
        title=f"Versions: {matrix.environment}",
        subtitle=f"{notation.plural(len(matrix.cells), 'cell')}, written {matrix.written:%Y-%m-%d %H:%M} UTC",
        banners=banners,
        summary=tuple(summary),
        sections=tuple(sections),
    )


def matrix_text(matrix: Matrix) -> str:
    """Return the matrix as plain text for a terminal."""
    rows = [(cell.stack, f"Python {cell.python}", str(cell.outcome), _said(cell)) for cell in matrix.cells]
    widths = [max(len(row[index]) for row in rows) for index in range(3)]
    lines = []
    for row in rows:
        head = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=False))
        lines.append(f"{head}  {row[3]}".rstrip())
    for cell in matrix.cells:
        if cell.outcome is Outcome.FAILS:
            lines += ["", f"{cell.stack}:", *(one.difference for one in cell.findings)]
    return "\n".join(lines)


def _banners(matrix: Matrix) -> tuple[Banner, ...]:
    failing = [cell for cell in matrix.cells if cell.outcome is Outcome.FAILS]
    if not failing:
        return ()
    points = tuple(f"{cell.stack}: {_said(cell)}" for cell in failing)
    return (Banner("alarm", "Some releases do not show what the reference shows", "", points),)


def _summary(matrix: Matrix) -> list[SummaryLine]:
    lines = []
    for title, cells in matrix.by_framework():
        counts = {outcome: sum(cell.outcome is outcome for cell in cells) for outcome in Outcome}
        told = ", ".join(f"{outcome}: {count}" for outcome, count in counts.items() if count)
        lines.append(SummaryLine(title, told, "bad" if counts[Outcome.FAILS] else "plain"))
    return lines


def _legend(matrix: Matrix) -> Section:
    commit = "outside of a checkout" if matrix.commit is None else f"at commit {matrix.commit[:12]}"
    if matrix.dirty:
        commit += " with changes that are not committed"
    return Section(
        "how",
        "How it was made",
        (
            Bullets(
                (
                    (
                        f"Each release was installed in an environment of its own and played at least {matrix.episodes} episodes of ",
                        Code(matrix.environment),
                        f", and a quarter as many of the touchstone, {OWN_WAY}; the seed was {matrix.seed}. Compared is ",
                        "every observation, reward and ending, as conformance does.",
                    ),
                    (
                        "A release passes when nothing differs and every feature is as declared. Where it fails, the promise and the ",
                        "first step that differs are named.",
                    ),
                    (f"Written {commit}; a cell that was kept from before names its own commit.",),
                )
            ),
        ),
    )


def _framework(title: str, cells: Sequence[Cell]) -> Section:
    blocks: list[Block] = [
        Table(
            f"Releases of {title}",
            "",
            (
                Column("Release"),
                Column("Python"),
                Column("Outcome"),
                Column("Episodes", numeric=True),
                Column("Steps", numeric=True),
                Column("Divergent promises", numeric=True),
                Column("Digest"),
                Column("Commit"),
            ),
            tuple(
                (
                    Entry(cell.stack, code=True),
                    Entry(cell.python),
                    Entry(str(cell.outcome), tone=_TONES[cell.outcome]),
                    Entry(notation.count(cell.episodes)),
                    Entry(notation.count(cell.steps)),
                    Entry(str(len(cell.findings))),
                    Entry(cell.digest[:12], code=bool(cell.digest)),
                    Entry((cell.commit or "")[:12], code=bool(cell.commit)),
                )
                for cell in cells
            ),
        )
    ]
    for cell in cells:
        if cell.reason:
            blocks.append(Verbatim(f"{cell.stack}: {cell.outcome}", cell.reason))
        blocks += [Verbatim(f"{cell.stack}: {one.promise}", one.difference) for one in cell.findings]
    blocks += _features(cells)
    blocks += _drifts(cells)
    blocks += _wire(cells)
    return Section(cells[0].framework, title, tuple(blocks))


def _features(cells: Sequence[Cell]) -> list[Block]:
    played = [cell for cell in cells if cell.features]
    names = dict.fromkeys(name for cell in played for name in cell.features)
    moved = [name for name in names if len({cell.features.get(name, "") for cell in played}) > 1]
    if not moved:
        return []
    return [
        Table(
            "Features that are not alike in all of them",
            "",
            (Column("Feature"), *(Column(cell.stack) for cell in played)),
            tuple(
                (
                    Entry(name, code=True),
                    *(Entry(cell.features.get(name, "not as declared")) for cell in played),
                )
                for name in moved
            ),
        )
    ]


def _drifts(cells: Sequence[Cell]) -> list[Block]:
    blocks: list[Block] = []
    same = []
    for before, after, found in drifts(cells):
        if found:
            blocks.append(_drift(before, after, found))
        else:
            same.append(f"{before.version} to {after.version}")
    if same:
        blocks.append(
            paragraph(
                f"No symbol that this project uses or names appeared, vanished or changed from {', from '.join(same)}."
            )
        )
    return blocks


def _drift(before: Cell, after: Cell, found: Sequence[SymbolChange]) -> Table:
    return Table(
        f"Symbols from {before.stack} to {after.stack}",
        f"Of {notation.plural(len(after.symbols), 'symbol')} that this project uses or names.",
        (Column("Symbol"), Column("What happened"), Column("Before"), Column("After")),
        tuple(
            (
                Entry(one.name, code=True),
                Entry(str(one.shift)),
                Entry(before_part, code=bool(one.before)),
                Entry(after_part, code=bool(one.after)),
            )
            for one in found
            for before_part, after_part in [differing_parts(one.before, one.after)]
        ),
    )


def _wire(cells: Sequence[Cell]) -> list[Block]:
    pairs = wire_drifts(cells)
    blocks: list[Block] = []
    if pairs:
        blocks.append(
            Table(
                f"Messages of an episode, from release to release of {cells[0].title}",
                "The same episode, recorded on the wire; names of sessions, ports and times aside.",
                (Column("From"), Column("To"), Column("Messages", numeric=True), Column("What differs")),
                tuple(
                    (
                        Entry(before.stack, code=True),
                        Entry(after.stack, code=True),
                        Entry(str(len(after.frames))),
                        Entry(_wire_text(found)),
                    )
                    for before, after, found in pairs
                ),
            )
        )
    blocks += [_wire_table(before, after, found) for before, after, found in pairs if found]
    blocks += [
        paragraph(f"The messages of {cell.stack} could not be recorded: {_short(cell.unrecorded)}.")
        for cell in cells
        if cell.unrecorded
    ]
    return blocks


def _wire_text(found: Sequence[FrameChange]) -> str:
    if not found:
        return "same"
    first = found[0]
    place = f"{first.frame}, field {first.field}" if first.field else f"{first.frame}, the whole message"
    further = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"{_short(place)} {first.shift}{further}"


def _wire_table(before: Cell, after: Cell, found: Sequence[FrameChange]) -> Table:
    return Table(
        f"Messages from {before.stack} to {after.stack}",
        "",
        (
            Column("Message"),
            Column("Field"),
            Column("What happened"),
            Column("Messages", numeric=True),
            Column("Before"),
            Column("After"),
        ),
        tuple(
            (
                Entry(_short(one.frame)),
                Entry(_short(one.field) or "the whole message", code=bool(one.field)),
                Entry(str(one.shift)),
                Entry(str(one.times)),
                Entry(_short(one.before), code=bool(one.before)),
                Entry(_short(one.after), code=bool(one.after)),
            )
            for one in found
        ),
    )


def differing_parts(before: str, after: str) -> tuple[str, str]:
    """Return two signatures, of long ones the part that differs, with what was left out as dots."""
    if not before or not after or max(len(before), len(after)) <= _LONGEST:
        return _short(before), _short(after)
    earlier, later = before.split(", "), after.split(", ")
    head = _alike(earlier, later)
    tail = _alike(earlier[head:][::-1], later[head:][::-1])

    def part(parameters: list[str]) -> str:
        kept = parameters[head : len(parameters) - tail] or ["(nothing)"]
        return _short(", ".join(["..."] * bool(head) + kept + ["..."] * bool(tail)))

    return part(earlier), part(later)


def _alike(before: Sequence[str], after: Sequence[str]) -> int:
    """Return with how many equal parts both begin."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((index for index, (one, other) in pairs if one != other), min(len(before), len(after)))


def _said(cell: Cell) -> str:
    if cell.reason:
        return _short(cell.reason.strip().splitlines()[-1].strip())
    if cell.findings:
        further = len(cell.findings) - 1
        return _short(cell.findings[0].promise) + (f" (and {further} more)" if further else "")
    return f"{notation.plural(cell.episodes, 'episode')}, {notation.plural(cell.steps, 'step')}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
