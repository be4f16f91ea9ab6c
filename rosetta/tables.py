"""Verbs about the frameworks side by side: tables and explain."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from bench.facts import FACTS_FILE, Change, Fact, Facts, compare, read_facts
from bench.stacks import ROOT, adapter_names, all_stacks, find_stack
from bench.stone.gather import gather
from bench.stone.places import NoSuchPlace
from bench.stone.subject import UnresolvedSymbols
from reports.stone.inputs import read_inputs
from reports.stone.render import render_files, render_tables
from reports.stone.writers import describe
from rosetta.console import FINDING, Console, output_options
from rosetta.options import make_ready, out_folder_option

PUBLISHED = ROOT / "reports" / "published" / "rosetta"


@click.command()
@click.option(
    "--gather", "fresh", is_flag=True, help="Gather the facts anew from the stacks, instead of reading them."
)
@click.option("--build", is_flag=True, help="With --gather, build the stacks first when they are not ready.")
@click.option(
    "--no-install", is_flag=True,
    help="With --gather, do not install each framework afresh and resolve them together, which takes minutes and a network.",
)  # fmt: skip
@click.option(
    "--facts", "source", type=click.Path(path_type=Path), default=PUBLISHED / FACTS_FILE,
    help="The facts to render; the published ones when left out.",
)  # fmt: skip
@click.option(
    "--diff", "compared", nargs=2, type=click.Path(path_type=Path),
    help="Render nothing, and show the cells that differ between two files of facts.",
)  # fmt: skip
@out_folder_option("Folder for the facts and the tables; the published one when left out.", FACTS_FILE)
@output_options
def tables(
    *,
    fresh: bool,
    build: bool,
    no_install: bool,
    source: Path,
    compared: tuple[Path, Path] | None,
    out: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Put the frameworks side by side: tables whose every cell is computed and leads to what shows it.

    With --diff the exit code is 1 when a cell differs.
    """
    console = Console(quiet=quiet, as_json=as_json)
    if compared is not None:
        _show_difference(compared, console)
        return
    folder = out or PUBLISHED
    facts = _gathered(console, build=build, install=not no_install) if fresh else read_facts(source)
    files = render_files(facts, read_inputs(ROOT), root=_way_to_root(folder))
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    cells = [cell for table in render_tables(facts) for row in table.rows for cell in row.cells]
    empty = sum(not cell.evidence for cell in cells)
    console.result(
        f"{len(facts.facts)} facts, {len(cells)} cells, {empty} without evidence\n\n{folder / 'index.html'}",
        {"facts": len(facts.facts), "cells": len(cells), "without_evidence": empty, "folder": str(folder)},
    )


def _gathered(console: Console, *, build: bool, install: bool) -> Facts:
    stacks = [find_stack(name) for name in adapter_names()]
    # Claims are tried on older releases, too.
    make_ready(all_stacks(), console, build=build)
    with console.progress() as show:
        try:
            return asyncio.run(gather(stacks, show, install=install))
        except (NoSuchPlace, UnresolvedSymbols) as error:
            raise click.ClickException(f"an adapter.toml says what is not so: {error}") from error


def _way_to_root(folder: Path) -> str:
    """Return how the tables reach files of this checkout, or nothing where they lie outside of it."""
    place = folder.resolve()
    return f"{os.path.relpath(ROOT, place)}/" if place.is_relative_to(ROOT) else ""


def _show_difference(compared: tuple[Path, Path], console: Console) -> None:
    changes = compare(*map(read_facts, compared))
    lines = [line for change in changes for line in _change_lines(change)]
    console.result(
        "\n".join([*lines, f"cells that differ: {len(changes)}"]) if changes else "no cell differs",
        [
            {
                "table": change.table,
                "row": change.row,
                "framework": change.framework,
                "where": change.where,
                "before": _as_json(change.before),
                "after": _as_json(change.after),
            }
            for change in changes
        ],
    )
    if changes:
        sys.exit(FINDING)


def _change_lines(change: Change) -> list[str]:
    said = [
        f"  {sign} {'(no fact)' if fact is None else fact.value}"
        for sign, fact in (("-", change.before), ("+", change.after))
    ]
    if change.where == "evidence":
        said = [
            f"  {sign} {'; '.join(describe(one) for one in fact.evidence)}"
            for sign, fact in (("-", change.before), ("+", change.after))
            if fact is not None
        ]
    return [f"{change.table} / {change.row} / {change.framework}: the {change.where}", *said]


def _as_json(fact: Fact | None) -> Any:
    return None if fact is None else fact.model_dump(mode="json", exclude_none=True)


@click.command()
@click.argument("framework")
@click.argument("piece", required=False)
@click.option(
    "--facts", "source", type=click.Path(path_type=Path), default=PUBLISHED / FACTS_FILE,
    help="The facts to read; the published ones when left out.",
)  # fmt: skip
@output_options
def explain(framework: str, piece: str | None, *, source: Path, quiet: bool, as_json: bool) -> None:
    """Explain FRAMEWORK, or one PIECE of it, by the facts of the tables and what shows each of them.

    PIECE is the name of a row, such as reward or 'episode end', or of a table.
    """
    console = Console(quiet=quiet, as_json=as_json)
    facts = read_facts(source)
    name = find_stack(framework).adapter
    known = facts.of_framework(name)
    titles = {table.name: table.title for table in render_tables(facts)}
    chosen = [
        fact
        for fact in known
        if piece is None
        or piece.lower() in {fact.row.lower(), fact.table, titles.get(fact.table, fact.table).lower()}
    ]
    if not chosen:
        rows = [name for fact in known for name in (fact.row, fact.table)]
        if piece is not None and (near := get_close_matches(piece.lower(), dict.fromkeys(rows), n=3)):
            raise click.UsageError(
                f"nothing is known of {piece} in {name}; did you mean {' or '.join(near)}?"
            )
        held = dict.fromkeys(fact.table for fact in known)
        known_rows = [
            f"  {titles.get(table, table)}: {', '.join(dict.fromkeys(one.row for one in known if one.table == table))}"
            for table in held
        ]
        raise click.UsageError(
            "\n".join([f"nothing is known of {piece or 'it'} in {name}; there are", *known_rows])
        )
    lines: list[str] = []
    for table in dict.fromkeys(fact.table for fact in chosen):
        lines += ["", titles.get(table, table)]
        for fact in (one for one in chosen if one.table == table):
            lines += _explained(fact)
    console.result("\n".join(lines[1:]), [_as_json(fact) for fact in chosen])


def _explained(fact: Fact) -> list[str]:
    value = fact.value.splitlines()
    return [
        f"  {fact.row}",
        *(
            line
            for part in value
            for line in textwrap.wrap(part, 100, initial_indent="    ", subsequent_indent="    ")
        ),
        *(f"      {describe(one)}" for one in fact.evidence),
    ]


COMMANDS = (tables, explain)
