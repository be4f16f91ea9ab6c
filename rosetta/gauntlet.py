"""The verb that attacks: gauntlet."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import click

from bench.gauntlet import NoAttacksError, Verdict, run_gauntlet
from bench.stacks import adapter_names, build_stack, find_stack, require_stack
from canonical.catalogue import load_environment
from reports.gauntlet import write_gauntlet
from rosetta.console import FINDING, Console, output_options
from rosetta.endurance import subject_of


@click.command()
@click.argument("environment", default="coding_agent")
@click.option("--as", "frameworks", multiple=True, help="Through this framework too; may be repeated.")
@click.option("--all", "every", is_flag=True, help="Through every framework too.")
@click.option("--attack", "names", multiple=True, help="Only this attack; may be repeated.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for gauntlet.json and gauntlet.md.")
@click.option("--build", is_flag=True, help="Build the stacks first when they are not ready.")
@output_options
def gauntlet(
    environment: str,
    *,
    frameworks: tuple[str, ...],
    every: bool,
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
    load_environment(environment)
    stacks = [find_stack(name) for name in (adapter_names() if every else frameworks)]
    for one in stacks:
        if build:
            build_stack(one, on_progress=console.say)
        require_stack(one)
    verdicts: list[Verdict] = []
    for subject in [None, *map(subject_of, stacks)]:
        with console.progress() as show:
            try:
                verdicts += asyncio.run(
                    run_gauntlet(environment, subject=subject, names=names, on_progress=show)
                )
            except NoAttacksError as error:
                raise click.UsageError(str(error)) from error
    values = [verdict.to_json() for verdict in verdicts]
    table = write_gauntlet(values)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "gauntlet.json").write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
        (out / "gauntlet.md").write_text(table, encoding="utf-8")
    console.result(table, values)
    if not all(verdict.held for verdict in verdicts):
        sys.exit(FINDING)


COMMANDS = (gauntlet,)
