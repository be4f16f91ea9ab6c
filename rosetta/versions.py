"""Verbs about releases of frameworks: versions and bisect."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from bench.machine import read_revision
from bench.stacks import ROOT, Stack, all_stacks, find_stack, releases_of
from bench.versions.bisection import BisectionError, Trial, between, bisect, state_of_promise, state_of_symbol
from bench.versions.candidates import CandidateError, candidate_stack, released_versions
from bench.versions.cells import Cell
from bench.versions.kept import CellStore
from bench.versions.matrix import MATRIX_FILE, Matrix, in_order
from bench.versions.play import play_cells
from canonical.catalogue import load_environment
from reports.page import markdown, page
from reports.versions import matrix_report, matrix_text
from rosetta.authorship import pointing_to_author
from rosetta.console import FINDING, Console, output_options
from rosetta.options import out_folder_option

KEPT = ROOT / "runs" / "versions"
PAGES = ("report.md", "index.html")


@click.command()
@click.argument("frameworks", nargs=-1)
@click.option("--environment", default="wordle", show_default=True, help="Name or path of the environment.")
@click.option(
    "--episodes", type=click.IntRange(min=1), default=100, show_default=True,
    help="At least how many episodes each release plays; a quarter as many of the touchstone come on top.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, help="Seed of the fuzzer.  [default: 0]")
@click.option(
    "--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="How many are played at once."
)
@click.option(
    "--release", "releases", multiple=True,
    help="A release by its version or label, and no other; may be repeated. All that are supported when left out.",
)  # fmt: skip
@click.option("--fresh", is_flag=True, help="Play every release, also those of which the outcome is kept.")
@click.option(
    "--candidate", "candidates", multiple=True,
    help="Play this instead: package==version, or the path of a wheel. May be repeated.",
)  # fmt: skip
@out_folder_option("Folder for the matrix and its report; runs/versions when left out.", MATRIX_FILE, *PAGES)
@output_options
@pointing_to_author
def versions(
    frameworks: tuple[str, ...],
    *,
    environment: str,
    episodes: int,
    seed: int,
    jobs: int,
    releases: tuple[str, ...],
    fresh: bool,
    candidates: tuple[str, ...],
    out: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Play every supported release of FRAMEWORKS, or of all, and say which shows what the reference shows.

    Outcomes are kept under runs/versions: a second run plays only those of which the adapter, the environment, the pins or
    the suite has changed. With --candidate, releases are played that nobody supports yet. The exit code is 1 when one breaks
    a promise, unless the adapter's known_failures.toml says so.
    """
    console = Console(quiet=quiet, as_json=as_json)
    load_environment(environment)
    if candidates and (frameworks or releases):
        raise click.UsageError("a candidate says itself which framework and release is meant; name no other")
    stacks = _candidates(candidates) if candidates else _stacks(frameworks, releases)

    def tell(cell: Cell, is_kept: bool) -> None:
        console.say(
            f"{cell.stack}: {cell.outcome}{', kept from before' if is_kept else f', {cell.seconds:.0f} s'}"
        )

    with console.progress() as show:
        cells = asyncio.run(
            play_cells(
                stacks,
                environment=environment,
                episodes=episodes,
                seed=seed,
                store=CellStore(KEPT / "cells"),
                jobs=jobs,
                fresh=fresh,
                on_progress=show,
                on_cell=tell,
            )
        )
    revision = read_revision(ROOT)
    matrix = Matrix(
        environment=environment,
        episodes=episodes,
        seed=seed,
        written=datetime.now(UTC).replace(microsecond=0),
        commit=None if revision is None else revision.commit,
        dirty=None if revision is None else revision.dirty,
        cells=in_order(cells),
    )
    folder = out or KEPT
    write_matrix(folder, matrix)
    console.result(
        f"{matrix_text(matrix)}\n\n{folder / PAGES[0]}\n{folder / PAGES[1]}",
        {**matrix.model_dump(mode="json"), "pages": [str(folder / name) for name in PAGES]},
    )
    if not all(cell.outcome.good for cell in cells):
        sys.exit(FINDING)


def write_matrix(folder: Path, matrix: Matrix) -> None:
    """Write a matrix and its report into a folder, over one that is there."""
    folder.mkdir(parents=True, exist_ok=True)
    report = matrix_report(matrix)
    (folder / MATRIX_FILE).write_text(matrix.to_text(), encoding="utf-8", newline="\n")
    (folder / PAGES[0]).write_text(markdown(report), encoding="utf-8", newline="\n")
    (folder / PAGES[1]).write_text(page(report), encoding="utf-8", newline="\n")


def _stacks(frameworks: tuple[str, ...], releases: tuple[str, ...]) -> list[Stack]:
    named = [one for name in frameworks for one in releases_of(name, older=True)] or all_stacks(older=True)
    for wanted in releases:
        if not any(wanted in _names(one) for one in named):
            known = ", ".join(sorted({one.release.label for one in named}))
            raise click.BadParameter(f"there is no {wanted!r}; there are {known}", param_hint="'--release'")
    chosen = [one for one in named if not releases or _names(one) & set(releases)]
    return list({target.label: target for one in chosen for target in one.per_target()}.values())


def _names(stack: Stack) -> set[str]:
    return {stack.release.label, stack.release.version}


def _candidates(candidates: tuple[str, ...]) -> list[Stack]:
    try:
        return [candidate_stack(one, KEPT / "candidates") for one in candidates]
    except CandidateError as error:
        raise click.BadParameter(str(error), param_hint="'--candidate'") from error


@click.command(name="bisect")
@click.argument("framework")
@click.option(
    "--piece", default="",
    help="What changed: symbol:<module:name>, feature:<name>, or a text of a promise. Whether any promise is broken when left out.",
)  # fmt: skip
@click.option("--good", required=True, help="A release in which it is as it should be.")
@click.option("--bad", required=True, help="A release in which it is not; it may be the older of both.")
@click.option(
    "--package",
    help="The package, where the framework has several; that of its default release when left out.",
)
@click.option("--environment", default="wordle", show_default=True, help="Name or path of the environment.")
@click.option(
    "--episodes",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="At least how many episodes each plays.",
)
@click.option("--seed", type=int, default=0, help="Seed of the fuzzer.  [default: 0]")
@output_options
@pointing_to_author
def bisect_releases(
    framework: str,
    *,
    piece: str,
    good: str,
    bad: str,
    package: str | None,
    environment: str,
    episodes: int,
    seed: int,
    quiet: bool,
    as_json: bool,
) -> None:
    """Find the release of FRAMEWORK that changed a piece, between one that is good and one that is bad."""
    console = Console(quiet=quiet, as_json=as_json)
    load_environment(environment)
    name = package or find_stack(framework).release.package
    kind, _, symbol = piece.partition(":")
    pins = KEPT / "candidates"
    if kind == "symbol":
        state = state_of_symbol(name, symbol, pins)
    else:
        state = state_of_promise(name, piece, pins, environment=environment, episodes=episodes, seed=seed)
    try:
        chosen = between(released_versions(name), good, bad)
        console.say(f"{len(chosen)} releases of {name} from {good} to {bad}")

        def tell(trial: Trial) -> None:
            console.say(f"{name} {trial.version}: {trial.state}")

        turn = asyncio.run(bisect(chosen, state, tell))
    except BisectionError as error:
        raise click.UsageError(str(error)) from error
    text = (
        f"{name} {turn.first.version} changed it ({len(turn.trials)} of {len(chosen)} releases tried)\n"
        f"  {turn.last.version}: {turn.last.state}\n"
        f"  {turn.first.version}: {turn.first.state}"
    )
    console.result(
        text,
        {
            "package": name,
            "piece": piece,
            "last": {"version": turn.last.version, "state": turn.last.state},
            "first": {"version": turn.first.version, "state": turn.first.state},
            "trials": [{"version": one.version, "state": one.state} for one in turn.trials],
        },
    )


COMMANDS = (versions, bisect_releases)
