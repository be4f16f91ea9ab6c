"""All tables of the stone, and the files that they become. Pure: the same facts give the same files."""

from __future__ import annotations

from collections.abc import Callable

from bench.facts import FACTS_FILE, Facts
from reports.stone import claims, code, local, pieces, reward, sharing, tasks, tools, troubles, words
from reports.stone.inputs import NOTHING, Inputs
from reports.stone.table import Table
from reports.stone.writers import contents, csv_text, json_text, markdown_page

TABLES: tuple[Callable[[Facts], Table], ...] = (
    words.render,
    code.render,
    pieces.render,
    tools.render,
    reward.render,
    tasks.render,
    local.render,
    sharing.render,
    troubles.render,
    claims.render,
)
"""One renderer per table, in the order of a reader."""


def render_tables(facts: Facts) -> list[Table]:
    """Return every table."""
    return [render(facts) for render in TABLES]


def render_files(facts: Facts, *, root: str = "") -> dict[str, str]:
    """Return file name to content: every table in four forms, an overview, and the facts themselves.

    Args:
        facts: The facts.
        root: How files of this repository are reached from the tables, with a slash at the end; empty where they are not
            near, so that places are named and not linked.
    """
    tables = render_tables(facts)
    files = {FACTS_FILE: facts.to_text(), "README.md": contents(facts, tables)}
    for table in tables:
        files[f"{table.name}.md"] = markdown_page(facts, table, root)
        files[f"{table.name}.html"] = html_page(facts, table, tables, root)
        files[f"{table.name}.csv"] = csv_text(table)
        files[f"{table.name}.json"] = json_text(table)
    return files
