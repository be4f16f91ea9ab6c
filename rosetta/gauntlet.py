"""The verb that attacks: gauntlet."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import click

from bench.gauntlet import NoAttacksError, begin_gauntlet, run_gauntlet
from bench.stacks import adapter_names
from reports.gauntlet import write_gauntlet
from rosetta.authorship import pointing_to_author
from rosetta.console import FINDING, Console, output_options
from rosetta.endurance import subject_of
from rosetta.options import (
    DEFAULT,
    choose_stacks,
    frameworks_option,
    make_ready,
    out_folder_option,
    releases_option,
)

RESULTS = ("gauntlet.json", "gauntlet.md")


@click.command()
@click.argument("environment", default="coding_agent")
@frameworks_option("Only the reference")
@click.option("--all", "every", is_flag=True, help="Every framework.")
@releases_option(DEFAULT)
@click.option("--attack", "names", multiple=True, help="Only this attack; may be repeated.")
@out_folder_option(f"Folder for {' and '.join(RESULTS)}.", *RESULTS)
@click.option("--build", is_flag=True, help="Build the stacks first when they are not ready.")
@output_options
@pointing_to_author
def gauntlet(
    environment: str,
    *,
    frameworks: tuple[str, ...],
    every: bool,
    release: str,
    names: tuple[str, ...],
    out: Path | None,
    build: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Attack ENVIRONMENT by scripted episodes, and say what each attack was paid and what it reached.

    Attacks aim at the grading, the sandbox, the tools and the host, on which decoys are laid out. Each is played beside an
    honest session, through the reference and through frameworks.
    """
    console = Console(quiet=quiet, as_json=as_json)
    made = begin_gauntlet(environment)
    named = adapter_names() if every else frameworks
    stacks = choose_stacks(named, release) if named or release != DEFAULT else []
    make_ready(stacks, console, build=build)
    for subject in [None, *map(subject_of, stacks)]:
        with console.progress() as show:
            try:
                made.verdicts += asyncio.run(
                    run_gauntlet(environment, subject=subject, names=names, on_progress=show)
                )
            except NoAttacksError as error:
                raise click.UsageError(str(error)) from error
    value = made.to_json()
    table = write_gauntlet(value)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in zip(RESULTS, (json.dumps(value, indent=1) + "\n", table), strict=True):
            (out / name).write_text(text, encoding="utf-8")
    console.result(table, value)
    if not made.held:
        sys.exit(FINDING)


COMMANDS = (gauntlet,)
