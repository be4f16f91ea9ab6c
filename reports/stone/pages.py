"""What all pages of the site share: the frame around them, cells with their evidence, and where things stand.

Pages lie at three places, the root and two folders, share one style sheet and one script, and hold no style or script of
their own, so that they can be served under a policy that allows only what comes with them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import jinja2
from markupsafe import Markup

from bench.facts import Code, Evidence, Fact, Facts, Record, Subject
from reports.stone.inputs import Inputs
from reports.stone.source import panes
from reports.stone.table import Cell, Table
from reports.stone.writers import Line, headed, line_of, older_releases, page_of, provenance, repositories_of

MEASURED = "measured.html"
"""The page whose figures another release of the drawing library may draw with other bytes."""

PORTS = "ports.html"
"""The page of ports, where there are any."""

KINDS = {
    "declared": "what an adapter says, and what was checked where it can be",
    "introspected": "read from the installed release, or from a hand-written environment",
    "probed": "seen by a probe that ran",
    "measured": "measured",
    "sourced": "from a dated source, for what cannot be measured",
}
"""How a cell came about, in words."""

_LEAD = re.compile(r"([A-Za-z][a-z' ]{0,24}|\d+)(: )(?=\S)")


@dataclass(frozen=True, slots=True)
class ShownCell:
    """A cell on a page: what it says, how it came about, and its evidence with places that a reader can go to."""

    value: str
    kind: str
    evidence: tuple[Line, ...]
    more: str = ""
    """Where the table lies that tells more, from the page; empty where this is the one."""


@dataclass(frozen=True, slots=True)
class ShownRow:
    """A row on a page, with the name of its place."""

    anchor: str
    name: str
    cells: tuple[ShownCell, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """What is known of one framework in one table."""

    table: Table
    rows: tuple[ShownRow, ...]


class Pages:
    """Everything that several pages share."""

    def __init__(self, facts: Facts, tables: Sequence[Table], inputs: Inputs, root: str) -> None:
        self.facts = facts
        self.tables = tables
        self.inputs = inputs
        self.root = root
        self.panes = panes(facts, inputs.handwritten)
        self.places = {pane.path: pane.framework for pane in self.panes if pane.path}
        self.repositories = repositories_of(facts)
        self.runs = {run.folder for run in inputs.runs}
        self.anchors = {table.name: _anchors(table) for table in tables}

    def render(self, template: str, path: str, title: str, **more: object) -> str:
        """Render a page that lies at a path."""
        up = "../" * path.count("/")
        return (
            environment()
            .get_template(f"site/{template}")
            .render(
                up=up,
                path=path,
                title=title,
                facts=self.facts,
                tables=self.tables,
                subjects=self.facts.subjects,
                provenance=provenance(self.facts),
                headed=partial(headed, self.facts),
                older=older_releases(self.facts),
                kinds=KINDS,
                page_of=page_of,
                ports=PORTS if self.inputs.ports is not None else "",
                repository=f"{up}{self.root}" if self.root else "",
                **more,
            )
        )

    def cell(self, cell: Cell, up: str) -> ShownCell:
        """Return a cell for a page."""
        more = next((f"{up}{page_of(table)}" for table in self.tables if table.name == cell.table), "")
        return ShownCell(cell.value, cell.kind, self.lines(cell.evidence, up), more)

    def lines(self, evidence: Sequence[Evidence], up: str) -> tuple[Line, ...]:
        """Return evidence for a page, with links from it."""
        return tuple(self._line(one, up) for one in evidence)

    def _line(self, evidence: Evidence, up: str) -> Line:
        line = line_of(evidence, f"{up}{self.root}" if self.root else "", 0, self.repositories)
        if isinstance(evidence, Code) and evidence.file in self.places:
            here = f"{up}code.html#{self.places[evidence.file]}-{evidence.first}"
            return replace(line, link=here)
        if isinstance(evidence, Record) and evidence.run in self.runs:
            return replace(line, link=f"{up}{MEASURED}#{evidence.run}")
        return line

    def rows(self, table: Table, up: str) -> tuple[ShownRow, ...]:
        """Return the rows of a table for a page."""
        anchors = self.anchors.get(table.name) or _anchors(table)
        return tuple(
            ShownRow(anchor, row.name, tuple(self.cell(cell, up) for cell in row.cells))
            for anchor, row in zip(anchors, table.rows, strict=True)
        )

    def parts(self, subject: Subject, up: str) -> tuple[Part, ...]:
        """Return what the tables know of a framework, table by table."""
        found = []
        for table in self.tables:
            if subject.title in table.columns:
                index = table.columns.index(subject.title)
                rows = tuple(
                    ShownRow(anchor, row.name, (self.cell(row.cells[index], up),))
                    for anchor, row in zip(self.anchors[table.name], table.rows, strict=True)
                )
            else:
                # Rows of such a table begin with the framework that they are about, where they are about one.
                own = dict(zip((row.name for row in table.rows), self.anchors[table.name], strict=True))
                rows = tuple(
                    ShownRow(own.get(f"{subject.title}: {fact.row}", ""), fact.row, (self._fact(fact, up),))
                    for fact in self.facts.of(table.name)
                    if fact.framework == subject.framework
                )
            if rows:
                found.append(Part(table, rows))
        return tuple(found)

    def _fact(self, fact: Fact, up: str) -> ShownCell:
        return self.cell(Cell(fact.value, fact.kind, fact.evidence), up)


def heads(facts: Facts, table: Table) -> list[tuple[str, str, str]]:
    """Return the title, the release and the folder name of every column; no name where a column is no framework."""
    names = {subject.title: subject.framework for subject in facts.subjects}
    return [
        (title, headed(facts, release), names.get(title, ""))
        for title, release in zip(table.columns, table.releases, strict=True)
    ]


def _anchors(table: Table) -> list[str]:
    """Return a name for the place of every row, each once on its page."""
    found: list[str] = []
    for row in table.rows:
        name = re.sub(r"[^a-z0-9]+", "-", row.name.lower()).strip("-")[:60] or "row"
        number = 2
        anchor = f"row-{name}"
        while anchor in found:
            anchor, number = f"row-{name}-{number}", number + 1
        found.append(anchor)
    return found


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """Return what renders the templates."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("reports", "templates"),
        autoescape=jinja2.select_autoescape(enabled_extensions=("html.j2",), default=False),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["ticked"] = ticked
    made.filters["led"] = led
    made.filters["wrapped"] = wrapped
    return made


def wrapped(name: str) -> Markup:
    """Let a long name break where one of its parts ends, and not within a word."""
    return Markup("<wbr>").join(re.findall(r"[^:./_-]*[:./_-]+|[^:./_-]+", name))


def ticked(text: str) -> Markup:
    """Write what stands in backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return Markup("{}").format(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if index % 2 else Markup("{}").format(part)
        for index, part in enumerate(parts)
    )


def led(text: str) -> Markup:
    """Write what stands in backticks as code, and the word before a first colon so that it is seen first."""
    found = _LEAD.match(text)
    if found is None:
        return ticked(text)
    return Markup("<b>{}</b>{}{}").format(found[1], found[2], ticked(text[found.end() :]))
