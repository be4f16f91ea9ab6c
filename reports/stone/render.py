"""All tables of the stone, and the files that they become. Pure: the same facts give the same files."""

from __future__ import annotations

from collections.abc import Callable

from bench.facts import FACTS_FILE, Facts
from reports.stone import (
    bad_input,
    beginning,
    claims,
    code,
    ecosystem,
    local,
    loop,
    overview,
    pieces,
    reward,
    scaling,
    sharing,
    stages,
    tasks,
    tools,
    transport,
    troubles,
    words,
)
from reports.stone.inputs import NOTHING, Inputs
from reports.stone.table import Table
from reports.stone.writers import contents, csv_text, json_text, markdown_page

TABLES: tuple[Callable[[Facts], Table], ...] = (
    overview.render,
    words.render,
    code.render,
    pieces.render,
    tools.render,
    reward.render,
    tasks.render,
    local.render,
    sharing.render,
    transport.render,
    loop.render,
    bad_input.render,
    troubles.render,
    stages.render,
    beginning.render,
    scaling.render,
    ecosystem.render,
    claims.render,
)
"""One renderer per table, in the order of a reader."""


def render_tables(facts: Facts) -> list[Table]:
    """Return every table."""
    return [render(facts) for render in TABLES]


def render_files(facts: Facts, inputs: Inputs = NOTHING, *, root: str = "") -> dict[str, str]:
    """Return path to content: every table as Markdown, CSV and JSON, an overview, the facts themselves, and the site.

    Args:
        facts: The facts.
        inputs: What the site shows beside them: hand-written environments and published runs.
        root: How files of this repository are reached from the tables, with a slash at the end; empty where they are not
            near, so that places are named and not linked.

    Raises:
        BadSamples: The samples of a published run are damaged.
    """
    # What draws takes seconds to load and to draw, and whoever only asks for a table needs none of it.
    from reports.stone.measured import render_measured  # noqa: PLC0415

    return render_undrawn(facts, inputs, root=root) | render_measured(
        facts, render_tables(facts), inputs, root
    )


def render_undrawn(facts: Facts, inputs: Inputs = NOTHING, *, root: str = "") -> dict[str, str]:
    """Return what `render_files` returns, without the page that holds figures."""
    from reports.stone.site import render_site  # noqa: PLC0415 - as above

    tables = render_tables(facts)
    files = {FACTS_FILE: facts.to_text(), "README.md": contents(facts, tables)}
    for table in tables:
        files[f"{table.name}.md"] = markdown_page(facts, table, root)
        files[f"{table.name}.csv"] = csv_text(table)
        files[f"{table.name}.json"] = json_text(table)
    return files | render_site(facts, tables, inputs, root)
