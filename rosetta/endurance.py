"""The verb that wears frameworks out: endure."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import click

from bench.endurance import Subject, run_endurance
from bench.endurance_records import Endurance
from bench.stacks import Stack
from canonical.catalogue import load_environment
from reports.endurance import write_endurance
from rosetta.authorship import pointing_to_author
from rosetta.console import FINDING, Console, output_options
from rosetta.options import (
    DEFAULT,
    choose_stacks,
    frameworks_option,
    make_ready,
    out_folder_option,
    releases_option,
)

RESULTS = ("endurance.json", "endurance.md")


@click.command()
@click.argument("environment", default="wordle")
@frameworks_option("All of them")
@releases_option(DEFAULT)
@click.option(
    "--cycles",
    default=2000,
    show_default=True,
    type=click.IntRange(2, 1_000_000),
    help="How many sessions are opened and given up: one half closed, one half dropped.",
)
@click.option(
    "--sessions",
    default=64,
    show_default=True,
    type=click.IntRange(2, 4096),
    help="How many sessions are interleaved, and held when their client is killed.",
)
@click.option(
    "--patience",
    default=120.0,
    show_default=True,
    type=click.FloatRange(0.0),
    help="How long a server may take to free what was given up, in seconds.",
)
@click.option("--seed", default=0, show_default=True, help="Decides the order and the actions.")
@out_folder_option(f"Folder for {' and '.join(RESULTS)}.", *RESULTS)
@click.option("--build", is_flag=True, help="Build the stacks first when they are not ready.")
@output_options
@pointing_to_author
def endure(
    environment: str,
    *,
    frameworks: tuple[str, ...],
    release: str,
    cycles: int,
    sessions: int,
    patience: float,
    seed: int,
    out: Path | None,
    build: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Interleave sessions of ENVIRONMENT, open many and give them up, and search for secrets.

    As many sessions as --cycles says are opened and given up, and under a server as many as --sessions says are killed
    with their client; before that, a fifth as many warm the processes up. Counts episodes, descriptors, threads and
    memory before and after. Secrets are searched in every byte between client and server, in what clients are handed,
    and in what processes print; they are those of a built-in environment, the canary, whatever ENVIRONMENT is.
    """
    console = Console(quiet=quiet, as_json=as_json)
    load_environment(environment)
    stacks = choose_stacks(frameworks, release)
    make_ready(stacks, console, build=build)
    results: list[Endurance] = []
    for one in stacks:
        with console.progress() as show:
            results.append(
                asyncio.run(
                    run_endurance(
                        subject_of(one),
                        source=environment,
                        sessions=sessions,
                        cycles=cycles,
                        patience_s=patience,
                        seed=seed,
                        on_progress=show,
                    )
                )
            )
    values = [result.to_json() for result in results]
    table = write_endurance(values)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in zip(RESULTS, (json.dumps(values, indent=1) + "\n", table), strict=True):
            (out / name).write_text(text, encoding="utf-8")
    console.result(table, values)
    if not all(result.passed for result in results):
        sys.exit(FINDING)


def subject_of(stack: Stack) -> Subject:
    """Return a stack as `bench.endurance` takes it."""
    return Subject(stack.python, stack.worker, stack.facts.kind, stack.label)


COMMANDS = (endure,)
