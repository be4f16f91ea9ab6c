"""All tables as one site: pages that need nothing from anywhere else, without the page of published runs."""

from __future__ import annotations

import json
from collections.abc import Sequence

from bench.facts import Facts
from bench.porting.records import ASPECTS, PortMatrix
from reports.ports import TRIPS, groups_of, made_of, summary_of, trip_rows
from reports.stone.inputs import Inputs
from reports.stone.pages import MEASURED, PORTS, Pages, environment, heads
from reports.stone.table import Table
from reports.stone.tree import grounds, grow
from reports.stone.writers import forms_of, page_of

SUMMARY_TABLE = "overview"
"""The table that stands on the first page, where there is one of this name."""


def render_site(facts: Facts, tables: Sequence[Table], inputs: Inputs, root: str) -> dict[str, str]:
    """Return the files of the site, by their path.

    Args:
        facts: The facts.
        tables: The tables made of them.
        inputs: The hand-written environments and the published runs.
        root: How files of this repository are reached from the root of the site, with a slash at the end; empty where they
            are not near, so that places are named and not linked.
    """
    pages = Pages(facts, tables, inputs, root)
    files = {
        "site.css": environment().get_template("site/site.css.j2").render(),
        "site.js": environment().get_template("site/site.js").render(),
        "search.js": _search(pages),
        "index.html": _first_page(pages),
        "choose.html": _choose(pages),
        "code.html": pages.render(
            "code.html.j2", "code.html", "The same Wordle, six times", panes=pages.panes
        ),
    }
    for subject in facts.subjects:
        path = f"frameworks/{subject.framework}.html"
        files[path] = pages.render(
            "framework.html.j2",
            path,
            subject.title,
            subject=subject,
            parts=pages.parts(subject, "../"),
            runs=[run for run in inputs.runs if run.framework == subject.framework],
            pane=next((one for one in pages.panes if one.framework == subject.framework and one.path), None),
        )
    files |= {page_of(table): table_page(pages, table) for table in tables}
    if inputs.ports is not None:
        files[PORTS] = _ports_page(pages, inputs.ports)
    return files


def _ports_page(pages: Pages, matrix: PortMatrix) -> str:
    titles = {subject.framework: subject.title for subject in pages.facts.subjects}
    return pages.render(
        "ports.html.j2",
        PORTS,
        "Ports",
        summary=summary_of(matrix),
        made=made_of(matrix),
        groups=groups_of(matrix),
        columns=[titles.get(target, target) for target in matrix.targets],
        trips=trip_rows(matrix.round_trips),
        about_trips=TRIPS,
        aspects=ASPECTS,
        titles=titles,
        unported=matrix.unported,
    )


def table_page(pages: Pages, table: Table) -> str:
    """Return the page of a table."""
    path = page_of(table)
    titles = [subject.title for subject in pages.facts.subjects]
    about = [title for title in titles if any(row.name.startswith(f"{title}: ") for row in table.rows)]
    return pages.render(
        "table.html.j2",
        path,
        table.title,
        table=table,
        heads=heads(pages.facts, table),
        rows=pages.rows(table, "../"),
        about=about,
        forms=[(form, file) for form, file in forms_of(table) if file != path],
    )


def _first_page(pages: Pages) -> str:
    summary = next((table for table in pages.tables if table.name == SUMMARY_TABLE), None)
    counts = {
        table.name: (sum(bool(cell.evidence) for cell in cells), len(cells))
        for table in pages.tables
        for cells in [[cell for row in table.rows for cell in row.cells]]
    }
    return pages.render(
        "index.html.j2",
        "index.html",
        "Six frameworks side by side",
        summary=summary,
        heads=[] if summary is None else heads(pages.facts, summary),
        rows=() if summary is None else pages.rows(summary, ""),
        counts=counts,
        runs=pages.inputs.runs,
        of_framework={
            subject.framework: len(pages.facts.of_framework(subject.framework))
            for subject in pages.facts.subjects
        },
    )


def _choose(pages: Pages) -> str:
    tree = grow(pages.facts)
    table = grounds(pages.facts, tree)
    return pages.render(
        "choose.html.j2",
        "choose.html",
        "Which one fits?",
        tree=tree,
        table=table,
        heads=heads(pages.facts, table),
        rows=pages.rows(table, ""),
        silent=[
            question
            for question in tree.questions
            if all(
                tree.known[question.key, subject.framework].key is None for subject in pages.facts.subjects
            )
        ],
    )


def _search(pages: Pages) -> str:
    """Return what can be searched, as a script: pages, rows and cells, with where they stand."""
    places: list[list[str]] = [
        ["Which one fits?", "four questions", "choose.html"],
        ["The same Wordle, six times", "hand-written code side by side", "code.html"],
        ["Latencies and ceilings", "published runs", MEASURED],
        *(
            [
                subject.title,
                f"{subject.release}, all that is known of it",
                f"frameworks/{subject.framework}.html",
            ]
            for subject in pages.facts.subjects
        ),
        *([table.title, table.about, page_of(table)] for table in pages.tables),
        *(
            [["Ports", "every source under every framework, with what is lost", PORTS]]
            if pages.inputs.ports
            else []
        ),
    ]
    tables = [
        {
            "title": table.title,
            "page": page_of(table),
            "columns": table.columns,
            "rows": [
                [anchor, row.name, *(cell.value if cell.evidence else "" for cell in row.cells)]
                for anchor, row in zip(pages.anchors[table.name], table.rows, strict=True)
            ],
        }
        for table in pages.tables
    ]
    index = json.dumps({"pages": places, "tables": tables}, ensure_ascii=True, separators=(",", ":"))
    return f"window.searchIndex = {index};\n"
