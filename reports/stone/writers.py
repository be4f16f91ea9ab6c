"""A table of the stone as Markdown, CSV and JSON: one writer per form, the same for all tables.

Evidence is numbered in the order of the cells. In Markdown a cell links to its numbers below the table, and these link to
the place in the repository where there is one.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from bench.facts import Code, Evidence, Facts, Probe, Record, Source, Symbol
from reports.stone.table import Cell, Table

NO_REPOSITORIES: Mapping[str, str] = MappingProxyType({})
"""No distribution whose source is known to be public."""
RECORDS_FILE = "records.jsonl"
"""As in `bench.records`, which takes long to import."""

_SPECIAL = re.compile(r"([\\*<>\[\]|~])")


@dataclass(frozen=True, slots=True)
class Line:
    """One piece of evidence, as it stands below a table.

    Attributes:
        number: Its number; 0 where it has none.
        kind: Symbol, probe, record, code or source.
        name: What it is called.
        detail: What else is to be known.
        place: File and line, or an address; empty where there is none.
        link: Where that leads, of a symbol to the repository of its distribution; empty where it leads nowhere.
    """

    number: int
    kind: str
    name: str
    detail: str
    place: str
    link: str


@dataclass(frozen=True, slots=True)
class Numbered:
    """A cell with its evidence, numbered."""

    cell: Cell
    lines: tuple[Line, ...]


def repositories_of(facts: Facts) -> dict[str, str]:
    """Return where the source of distributions is public, by their names, as far as the facts say it."""
    return {
        subject.release.rpartition("-")[0]: subject.repository
        for subject in facts.subjects
        if subject.repository is not None
    }


def numbered(
    table: Table, root: str, repositories: Mapping[str, str] = NO_REPOSITORIES
) -> list[tuple[str, list[Numbered]]]:
    """Return the rows of a table with their evidence numbered; the same evidence has one number."""
    numbers: dict[str, int] = {}
    rows = []
    for row in table.rows:
        cells = []
        for cell in row.cells:
            lines = []
            for evidence in cell.evidence:
                number = numbers.setdefault(evidence.model_dump_json(), len(numbers) + 1)
                lines.append(line_of(evidence, root, number, repositories))
            cells.append(Numbered(cell, tuple(lines)))
        rows.append((row.name, cells))
    return rows


def line_of(
    evidence: Evidence, root: str, number: int = 0, repositories: Mapping[str, str] = NO_REPOSITORIES
) -> Line:
    """Return a piece of evidence as a person reads it.

    Args:
        evidence: What it is.
        root: How files of this repository are reached, with a slash at the end; empty where they are not near.
        number: Its number.
        repositories: Where the source of distributions is public, by their names.
    """
    match evidence:
        case Symbol():
            place = f"{evidence.file}:{evidence.line}" if evidence.line else evidence.file
            detail = " ".join(part for part in (evidence.what, evidence.signature) if part)
            where = ", ".join(part for part in (evidence.distribution, place) if part)
            link = repositories.get(evidence.distribution.partition(" ")[0], "")
            return Line(number, "symbol", evidence.name, detail, where, link)
        case Code():
            place = f"{evidence.file}:{evidence.first}"
            return Line(
                number, "code", evidence.name or evidence.file, evidence.text, place, _link(evidence, root)
            )
        case Probe():
            function = f" ({evidence.function})" if evidence.function else ""
            place = f"{evidence.file}:{evidence.line}{function}"
            link = f"{root}{evidence.file}#L{evidence.line}" if root else ""
            detail = f"sent: {evidence.sent}; seen: {evidence.seen}"
            return Line(number, "probe", evidence.name, detail, place, link)
        case Record():
            link = f"{root}reports/published/{evidence.run}" if root else ""
            # A line of a file cannot be linked to where the file is shown raw, so that it is named.
            line = f"/{RECORDS_FILE}:{evidence.line}" if evidence.line else ""
            return Line(number, "record", evidence.record, "", f"{evidence.run}{line}", link)
        case Source():
            words = f', "{evidence.quoted}"' if evidence.quoted else ""
            url = evidence.url or ""
            place = url.removeprefix("https://").rstrip("/")
            return Line(number, "source", evidence.title, f"{evidence.date}{words}", place, url)


def _link(code: Code, root: str) -> str:
    last = f"-L{code.last}" if code.last != code.first else ""
    return f"{root}{code.file}#L{code.first}{last}" if root else ""


def _each_once(rows: Sequence[tuple[str, list[Numbered]]]) -> Iterator[Line]:
    seen: set[int] = set()
    for _, cells in rows:
        for line in (line for cell in cells for line in cell.lines):
            if line.number not in seen:
                seen.add(line.number)
                yield line


def csv_text(table: Table) -> str:
    """Return a table as CSV: one line per cell, with its evidence as JSON."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "framework", "release", "value", "kind", "evidence"])
    for row in table.rows:
        for column, release, cell in zip(table.columns, table.releases, row.cells, strict=True):
            evidence = json.dumps([_plain(one) for one in cell.evidence])
            writer.writerow([row.name, column, release, cell.value, cell.kind, evidence])
    return text.getvalue()


def json_text(table: Table) -> str:
    """Return a table as JSON: rows of cells, in the order of the columns."""
    value = {
        "name": table.name,
        "title": table.title,
        "about": table.about,
        "columns": [
            {"title": title, "release": release}
            for title, release in zip(table.columns, table.releases, strict=True)
        ],
        "rows": [
            {
                "name": row.name,
                "cells": [
                    {
                        "value": cell.value,
                        "kind": cell.kind,
                        "evidence": [_plain(one) for one in cell.evidence],
                    }
                    for cell in row.cells
                ],
            }
            for row in table.rows
        ],
    }
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _plain(evidence: Evidence) -> object:
    return evidence.model_dump(mode="json", exclude_none=True)


def provenance(facts: Facts) -> str:
    """Say in one sentence of what and when the facts are."""
    header = facts.header
    commit = "outside a checkout" if header.commit is None else f"at commit {header.commit[:12]}"
    changed = " with changes that are not committed" if header.dirty else ""
    return f"Gathered {header.gathered:%Y-%m-%d %H:%M} UTC {commit}{changed}, on {header.machine}."


def older_releases(facts: Facts) -> str:
    """Say which frameworks are shown as of a release that is not the newest; nothing where none is."""
    newer = newest_releases(facts)
    return " ".join(
        f"{one.title} is shown as of {one.release}; its newest release is {newer[one.release]}."
        for one in facts.subjects
        if one.release in newer
    )


def newest_releases(facts: Facts) -> dict[str, str]:
    """Return the label of a release -> the newest version on the package index, where that is another one."""
    found = {}
    for fact in facts.of("ecosystem"):
        version = fact.data.get("version") if isinstance(fact.data, dict) else None
        if fact.row == "last release" and version and not fact.release.endswith(f"-{version}"):
            found[fact.release] = str(version)
    return found


def headed(facts: Facts, release: str) -> str:
    """Return the label of a release as it heads a column: with the newest version, where that is another one."""
    newest = newest_releases(facts).get(release)
    return release if newest is None else f"{release}; newest {newest}"


def markdown_page(facts: Facts, table: Table, root: str) -> str:
    """Return a table as a Markdown page, with its evidence below."""
    rows = numbered(table, root, repositories_of(facts))
    heads = [
        f"{title}<br>{headed(facts, release)}"
        for title, release in zip(table.columns, table.releases, strict=True)
    ]
    lines = [
        f"# {table.title}",
        "",
        table.about,
        "",
        *([older, ""] if (older := older_releases(facts)) else []),
        provenance(facts),
        "",
        f"| | {' | '.join(heads)} |",
        f"| --- |{' --- |' * len(heads)}",
        *(f"| {name} | {' | '.join(_markdown_cell(one, table) for one in cells)} |" for name, cells in rows),
        "",
        "## Evidence",
        "",
        *(_markdown_line(line) for line in _each_once(rows)),
    ]
    return "\n".join(lines) + "\n"


def _markdown_cell(cell: Numbered, table: Table) -> str:
    value = cell.cell.value
    text = (
        "<br>".join(_code(line) for line in value.splitlines())
        if table.code and cell.lines
        else "<br>".join(_escaped(line) for line in value.splitlines())
    )
    links = " ".join(f"[{line.number}](#e{line.number})" for line in cell.lines)
    more = f" [{cell.cell.table}]({cell.cell.table}.md)" if cell.cell.table else ""
    return f"{text}{more} <sup>{links}</sup>" if links else f"*{text}*"


def _escaped(text: str) -> str:
    """Escape what Markdown would take for markup, except code, which values write in backticks."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return _SPECIAL.sub(r"\\\1", text).replace("`", "\\`")
    return "".join(
        _code(part) if index % 2 else _SPECIAL.sub(r"\\\1", part) for index, part in enumerate(parts)
    )


def _code(text: str) -> str:
    # In a table a pipe ends the cell, in code too.
    return f"`{text.replace('|', chr(92) + '|')}`"


def _markdown_line(line: Line) -> str:
    place = f"[{line.place}]({line.link})" if line.link else line.place
    detail = f"`{' '.join(line.detail.split()).replace('`', chr(39))}`" if line.detail else ""
    parts = [f"{line.kind} `{line.name}`", detail, place]
    return f'<a id="e{line.number}"></a>{line.number}. {": ".join(part for part in parts if part)}  '


def page_of(table: Table) -> str:
    """Return where the page of a table lies, from the folder of all of them."""
    return f"tables/{table.name}.html"


def forms_of(table: Table) -> tuple[tuple[str, str], ...]:
    """Return the forms of a table with their files, from the folder of all of them."""
    return (
        ("Markdown", f"{table.name}.md"),
        ("page", page_of(table)),
        ("CSV", f"{table.name}.csv"),
        ("JSON", f"{table.name}.json"),
    )


def contents(facts: Facts, tables: Sequence[Table]) -> str:
    """Return the overview of all tables, in Markdown."""
    lines = [
        "# Six frameworks side by side",
        "",
        (
            "Every cell is computed, or said by an adapter; it names what shows it, and says so where nothing does. Whether a feature is "
            "native or emulated is what an adapter declares: its probe shows that the feature works, not whose work it is. All cells are "
            "facts of [facts.jsonl](facts.jsonl), except those of the overview, which is made of cells of the other tables."
        ),
        "",
        provenance(facts),
        "",
        (
            "All of it as [pages](index.html) to open in a browser, with [four questions](choose.html) that lead to a framework, the "
            "[same Wordle six times](code.html), and [latencies and ceilings](measured.html)."
        ),
        "",
        "| Table | Rows | Cells with evidence | Forms |",
        "| --- | --- | --- | --- |",
    ]
    for table in tables:
        cells = [cell for row in table.rows for cell in row.cells]
        shown = sum(bool(cell.evidence) for cell in cells)
        forms = ", ".join(f"[{form}]({path})" for form, path in forms_of(table))
        lines.append(f"| {table.title} | {len(table.rows)} | {shown} of {len(cells)} | {forms} |")
    lines += ["", "| Framework | Release | Python |", "| --- | --- | --- |"]
    lines += [f"| {one.title} | {headed(facts, one.release)} | {one.python} |" for one in facts.subjects]
    return "\n".join(lines) + "\n"


def describe(evidence: Evidence) -> str:
    """Return a piece of evidence in one line, for a terminal."""
    line = line_of(evidence, "")
    parts = [f"{line.kind} {line.name}", line.detail, line.place]
    return " | ".join(" ".join(part.split()) for part in parts if part)
