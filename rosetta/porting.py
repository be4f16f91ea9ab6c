"""The verb that brings an environment to a framework: port."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bench.porting.ledger import lost_pieces
from bench.porting.packaging import package_ledger, packaged_frameworks, write_package
from bench.porting.sources import is_source
from canonical.catalogue import load_environment
from canonical.stone import PieceName
from rosetta.console import FINDING, Console, output_options
from rosetta.options import out_folder_option
from rosetta.sources import (
    counted,
    flag_of,
    port_source,
    read_pool,
    refusal,
    source_options,
    source_request,
)


@click.command()
@click.argument("environment")
@click.option(
    "--to", "framework", required=True,
    help=f"The framework: {', '.join(packaged_frameworks())}.",
)  # fmt: skip
@out_folder_option("The folder to write; new, or empty.", required=True)
@click.option(
    "--accept", "accepted", multiple=True, type=click.Choice([flag_of(piece) for piece in PieceName]),
    help="A piece of which something may be lost; may be repeated.",
)  # fmt: skip
@click.option(
    "--actions", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Actions that make sense in the source, a line of JSON each; the proof plays mostly those.",
)  # fmt: skip
@source_options
@click.option("--build", is_flag=True, help="Build the stacks first when they are not ready.")
@output_options
def port(
    environment: str,
    *,
    framework: str,
    out: Path,
    accepted: tuple[str, ...],
    actions: Path | None,
    build: bool,
    quiet: bool,
    as_json: bool,
    **said: Any,
) -> None:
    """Bring ENVIRONMENT to a framework. What is lost on the way has to be accepted.

    ENVIRONMENT is a name of the catalogue, or the path of an environment's file or folder: then a package of the framework is
    written that installs and runs without this project, with the tasks, hidden ones too, a README and the ledger.

    Or it is one of another framework, FRAMEWORK:REFERENCE, such as gem:game:Sudoku-v0-easy: then it is played to find out what
    is lost on the way, its episodes are played on both sides and compared, and the folder gets the ledger and the episodes.
    It goes on living in its own stack; `rosetta serve FRAMEWORK:REFERENCE --as ...` brings it there.
    """
    console = Console(quiet=quiet, as_json=as_json)
    pieces = [piece for piece in PieceName if flag_of(piece) in accepted]
    if is_source(environment):
        request = source_request(environment, said)
        raise SystemExit(
            port_source(
                request, framework, out, pieces, pool=read_pool(actions), build=build, console=console
            )
        )
    load_environment(environment)
    ledger = package_ledger(framework)
    if lost := [piece for piece in lost_pieces(ledger) if piece not in pieces]:
        console.error(refusal(environment, framework, ledger, lost))
        raise SystemExit(FINDING)
    console.say(f"writing {environment} as a package of {framework}")
    written = write_package(environment, framework, out)
    console.result(
        f"{written.folder}: {written.distribution}, a package of {framework} in {len(written.files)} files, "
        f"made for {written.release}\n{counted(written.ledger)}\n"
        "README.md in it says how to install and use it, PORT.md what becomes of each piece.",
        written.to_json(),
    )


COMMANDS = (port,)
