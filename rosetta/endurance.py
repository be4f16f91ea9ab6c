"""The verb that wears frameworks out: endure."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import click

from bench.endurance import Endurance, Subject, run_endurance
from bench.stacks import Stack, adapter_names, build_stack, find_stack, require_stack
from canonical.catalogue import load_environment
from reports.endurance import write_endurance
from rosetta.console import FINDING, Console, output_options


@click.command()
@click.argument("environment", default="wordle")
@click.option(
    "--framework",
    "frameworks",
    multiple=True,
    help="A framework; all of them when left out. May be repeated.",
)
@click.option("--release", help="Version or label of a release; the default release when left out.")
@click.option(
    "--cycles",
    default=2000,
    show_default=True,
    type=click.IntRange(2, 1_000_000),
    help="How many sessions are opened and given up, one half politely.",
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
@click.option("--out", type=click.Path(path_type=Path), help="Folder for endurance.json and endurance.md.")
@click.option("--build", is_flag=True, help="Build the stacks first when they are not ready.")
@output_options
def endure(
    environment: str,
    *,
    frameworks: tuple[str, ...],
    release: str | None,
    cycles: int,
    sessions: int,
    patience: float,
    seed: int,
    out: Path | None,
    build: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Interleave sessions of ENVIRONMENT, open sessions and give them up by the thousand, and search for secrets.

    Counts episodes, descriptors, threads and memory before and after. Secrets are searched in every byte between client
    and server, in what clients are handed, and in what processes print.
    """
    console = Console(quiet=quiet, as_json=as_json)
    load_environment(environment)
    if release is not None and len(frameworks) != 1:
        raise click.UsageError("a release belongs to one framework: name it with --framework")
    stacks = [find_stack(framework, release) for framework in frameworks or adapter_names()]
    for one in stacks:
        if build:
            build_stack(one, on_progress=console.say)
        require_stack(one)
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
        (out / "endurance.json").write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
        (out / "endurance.md").write_text(table, encoding="utf-8")
    console.result(table, values)
    if not all(result.passed for result in results):
        sys.exit(FINDING)


def subject_of(stack: Stack) -> Subject:
    """Return a stack as `bench.endurance` takes it."""
    return Subject(stack.python, stack.worker, stack.facts.kind, stack.label)


COMMANDS = (endure,)
