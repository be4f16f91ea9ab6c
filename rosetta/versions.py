"""Verbs about releases of frameworks: versions and bisect."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from bench.index import released_versions
from bench.machine import read_revision
from bench.stacks import ROOT, Stack, adapter_names, all_stacks, find_stack, releases_of
from bench.versions.bisection import (
    BisectionError,
    Trial,
    Turn,
    between,
    bisect,
    state_of_promise,
    state_of_symbol,
    state_of_trouble,
)
from bench.versions.candidates import CandidateError, UnresolvedError, candidate_stack
from bench.versions.cells import Cell, Outcome
from bench.versions.drift import drift_json
from bench.versions.kept import CellStore
from bench.versions.known import stray_failures
from bench.versions.latencies import LATENCY_FILE, Latencies
from bench.versions.matrix import MATRIX_FILE, Matrix, MatrixError, in_order, join_matrices
from bench.versions.newest import Offer, differences, newest_offers
from bench.versions.pieces import PieceError, check_piece
from bench.versions.play import play_cells
from canonical.catalogue import load_environment
from rosetta.authorship import pointing_to_author
from rosetta.console import CANNOT_RUN, FINDING, Console, output_options
from rosetta.options import out_folder_option

KEPT = ROOT / "runs" / "versions"
CELLS = KEPT / "cells"
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
    help="A release by its version or label, or one of its targets by the label that the matrix shows, and no other; may be repeated. All that are supported when left out.",
)  # fmt: skip
@click.option("--fresh", is_flag=True, help="Play every release, also those of which the outcome is kept.")
@click.option(
    "--candidate", "candidates", multiple=True,
    help="Play this instead: package==version, or the path of a wheel. May be repeated.",
)  # fmt: skip
@click.option(
    "--newest", is_flag=True,
    help="Play the newest release that the index offers of each package, where it is newer than what is supported, and say what differs.",
)  # fmt: skip
@click.option(
    "--join", "joined", multiple=True, type=click.Path(exists=True, path_type=Path),
    help="Play nothing: join what other runs have written into this folder or below it. May be repeated.",
)  # fmt: skip
@click.option(
    "--latency",
    is_flag=True,
    help="Measure connect and step of every release, too, in turns with the default release.",
)
@click.option(
    "--rounds", type=click.IntRange(6, 1_000), default=24, show_default=True,
    help="How many turns each release has when latencies are measured.",
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
    newest: bool,
    joined: tuple[Path, ...],
    latency: bool,
    rounds: int,
    out: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Play every supported release of FRAMEWORKS, or of all, and say which shows what the reference shows.

    Outcomes are kept under runs/versions: a second run plays only those of which the adapter, the environment, the pins or
    the suite has changed. With --candidate, releases are played that nobody supports yet. The exit code is 1 when one breaks
    a promise, unless the adapter's known_failures.toml says so, and when that speaks of a release that there is not; with
    --newest, when one is not as the newest supported one. It is 3 when a candidate could not be tried.
    """
    console = Console(quiet=quiet, as_json=as_json)
    load_environment(environment)
    if sum(map(bool, (candidates, newest, joined))) > 1:
        raise click.UsageError("--candidate, --newest and --join are three things to do; ask for one of them")
    if (candidates or joined) and (frameworks or releases):
        raise click.UsageError("a candidate or a folder says itself which releases are meant; name no other")
    if latency and (candidates or newest or joined):
        raise click.UsageError("latencies are measured of supported releases; leave the other option out")
    plan = _Plan(environment, episodes, seed, jobs, fresh)
    if newest:
        _tell_newest(console, _stacks(frameworks, releases), plan)
        return
    folder = out or KEPT
    if joined:
        matrix = _join(joined)
    else:
        stacks = _candidates(candidates) if candidates else _stacks(frameworks, releases)
        cells = _play(
            console, stacks, plan, CellStore(KEPT / "candidates" / "cells" if candidates else CELLS)
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
        if latency:
            failing = {cell.stack for cell in cells if cell.outcome is Outcome.FAILS}
            _measure(console, folder, [one for one in stacks if one.label not in failing], plan, rounds)
    missing = _missing(matrix) if joined else []
    stray = stray_failures({cell.framework for cell in matrix.cells} & set(adapter_names()))
    text = write_matrix(folder, matrix)
    console.result(
        "\n".join(
            [
                text,
                *(f"{one}: missing" for one in missing),
                *stray,
                "",
                *(str(folder / name) for name in PAGES),
            ]
        ),
        {
            **matrix.model_dump(mode="json"),
            "drift": drift_json(matrix.cells),
            "missing": missing,
            "stray_known_failures": stray,
            "pages": [str(folder / name) for name in PAGES],
        },
    )
    if missing or stray or not all(cell.outcome.good for cell in matrix.cells):
        sys.exit(FINDING)
    # A gate that could not look at what it guards is not passed.
    if candidates and not all(cell.outcome.tried for cell in matrix.cells):
        sys.exit(CANNOT_RUN)


def write_matrix(folder: Path, matrix: Matrix) -> str:
    """Write a matrix and its report into a folder, over one that is there, and return the matrix as text.

    Latencies that lie in the folder belong to the report.

    Raises:
        bench.versions.latencies.LatencyError: They cannot be read.
        reports.render.ReportNotWritten: The file system refuses.
    """
    # What draws figures takes seconds to import, which no other verb should pay.
    from reports.release_latency import latency_text  # noqa: PLC0415
    from reports.render import write_report  # noqa: PLC0415
    from reports.versions import matrix_text, render_matrix  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    (folder / MATRIX_FILE).write_text(matrix.to_text(), encoding="utf-8", newline="\n")
    file = folder / LATENCY_FILE
    latencies = Latencies.read(file) if file.is_file() else None
    write_report(render_matrix(matrix, latencies), folder)
    text = matrix_text(matrix)
    return text if latencies is None else f"{text}\n\n{latency_text(latencies)}"


@dataclass(frozen=True, slots=True)
class _Plan:
    environment: str
    episodes: int
    seed: int
    jobs: int
    fresh: bool


def _play(console: Console, stacks: list[Stack], plan: _Plan, store: CellStore) -> list[Cell]:
    def tell(cell: Cell, is_kept: bool) -> None:
        console.say(
            f"{cell.stack}: {cell.outcome}{', kept from before' if is_kept else f', {cell.seconds:.0f} s'}"
        )

    with console.progress() as show:
        return asyncio.run(
            play_cells(
                stacks,
                environment=plan.environment,
                episodes=plan.episodes,
                seed=plan.seed,
                store=store,
                jobs=plan.jobs,
                fresh=plan.fresh,
                on_progress=show,
                on_cell=tell,
            )
        )


def _measure(console: Console, folder: Path, stacks: list[Stack], plan: _Plan, rounds: int) -> None:
    from bench.versions.latency import measure_latencies  # noqa: PLC0415 - as in `write_matrix`

    if not stacks:
        raise click.UsageError(
            "every release breaks a promise; only latencies of the same behaviour can be compared"
        )
    with console.progress() as show:
        latencies = asyncio.run(
            measure_latencies(
                stacks, environment=plan.environment, rounds=rounds, seed=plan.seed, on_progress=show
            )
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LATENCY_FILE).write_text(latencies.to_text(), encoding="utf-8", newline="\n")


def _join(folders: tuple[Path, ...]) -> Matrix:
    files = [file for folder in folders for file in sorted(folder.rglob(MATRIX_FILE))]
    try:
        return join_matrices([Matrix.read(file) for file in files])
    except MatrixError as error:
        raise click.BadParameter(str(error), param_hint="'--join'") from error


def _missing(matrix: Matrix) -> list[str]:
    """Return the supported releases of which a matrix has no cell."""
    supported = [target.label for one in all_stacks(supported=True) for target in one.per_target()]
    return [label for label in supported if label not in {cell.stack for cell in matrix.cells}]


def _tell_newest(console: Console, stacks: list[Stack], plan: _Plan) -> None:
    """Say of each package whether there is a newer release, and what it shows otherwise than the newest supported one."""
    lines, values, is_found, is_tried = [], [], False, True
    for offer in newest_offers(stacks):
        name, supported = offer.package, offer.supported.release.version
        value: dict[str, Any] = {
            "package": name,
            "supported": supported,
            "offered": offer.version,
            "differences": [],
        }
        values.append(value)
        if not offer.is_newer:
            lines.append(f"{name}: the index offers nothing newer than {supported}, which is supported")
            continue
        found = _beside_supported(console, offer, plan, value)
        is_found = is_found or bool(found)
        is_tried = is_tried and value["outcome"] != Outcome.NO_INTERPRETER
        value["differences"] = found
        head = f"{name}: {offer.version} is newer than {supported}, the newest supported one"
        lines.append(f"{head}, and {'differs:' if found else 'nothing differs'}{value.get('note', '')}")
        lines += [f"  {line}" for one in found for line in one.splitlines()]
    console.result("\n".join(lines), values)
    if is_found:
        sys.exit(FINDING)
    if not is_tried:
        sys.exit(CANNOT_RUN)


def _beside_supported(console: Console, offer: Offer, plan: _Plan, value: dict[str, Any]) -> list[str]:
    try:
        candidate = candidate_stack(f"{offer.package}=={offer.version}", KEPT / "candidates")
    except UnresolvedError as error:
        value["outcome"] = str(Outcome.NOT_INSTALLABLE)
        return [str(error)]
    (after,) = _play(console, [candidate], plan, CellStore(KEPT / "candidates" / "cells"))
    value["outcome"] = str(after.outcome)
    if after.outcome is Outcome.NO_INTERPRETER:
        value["note"] = f" that could be seen here: {after.reason}"
        return []
    (before,) = _play(console, offer.supported.per_target()[:1], plan, CellStore(CELLS))
    return differences(before, after)


def _stacks(frameworks: tuple[str, ...], releases: tuple[str, ...]) -> list[Stack]:
    owned = [one for name in frameworks for one in releases_of(name, supported=True)] or all_stacks(
        supported=True
    )
    named = [target for one in owned for target in one.per_target()]
    for wanted in releases:
        if not any(wanted in _names(one) for one in named):
            known = ", ".join(sorted({name for one in named for name in (one.release.label, one.label)}))
            raise click.BadParameter(f"there is no {wanted!r}; there are {known}", param_hint="'--release'")
    return list({one.label: one for one in named if not releases or _names(one) & set(releases)}.values())


def _names(stack: Stack) -> set[str]:
    return {stack.label, stack.release.label, stack.release.version}


def _candidates(candidates: tuple[str, ...]) -> list[Stack]:
    try:
        return [candidate_stack(one, KEPT / "candidates") for one in candidates]
    except CandidateError as error:
        raise click.BadParameter(str(error), param_hint="'--candidate'") from error


@click.command(name="bisect")
@click.argument("framework")
@click.option(
    "--piece", default="",
    help="What changed: symbol:<module:name>, feature:<name>, trouble:<name>, or a text of a promise. Whether any promise is broken when left out.",
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
    stack = find_stack(framework)
    packages = {one.release.package for one in releases_of(framework, supported=True)}
    name = package or stack.release.package
    if name not in packages:
        known = ", ".join(sorted(packages))
        raise click.BadParameter(
            f"{name} is no package of {stack.facts.title}; there are {known}", param_hint="'--package'"
        )
    try:
        check_piece(piece, stack, environment)
    except PieceError as error:
        raise click.BadParameter(str(error), param_hint="'--piece'") from error
    kind, _, symbol = piece.partition(":")
    pins = KEPT / "candidates"
    if kind == "symbol":
        state = state_of_symbol(name, symbol, pins)
    elif kind == "trouble":
        state = state_of_trouble(name, symbol, pins)
    else:
        state = state_of_promise(name, piece, pins, environment=environment, episodes=episodes, seed=seed)
    try:
        chosen = between(released_versions(name), good, bad)
        console.say(f"{len(chosen)} releases of {name} from {good} to {bad}")

        def tell(trial: Trial) -> None:
            console.say(
                f"{name} {trial.version}: {trial.state if trial.tried else f'skipped, {trial.reason}'}"
            )

        begun = time.monotonic()
        turn = asyncio.run(bisect(chosen, state, tell))
    except BisectionError as error:
        raise click.UsageError(str(error)) from error
    seconds = time.monotonic() - begun
    tried = f"{len(turn.trials)} of {len(chosen)} releases tried, {seconds:.0f} s"
    console.result(
        turn_text(name, turn, tried),
        {
            "package": name,
            "piece": piece,
            "last": asdict(turn.last),
            "first": asdict(turn.first),
            "untried": [asdict(one) for one in turn.untried],
            "trials": [asdict(one) for one in turn.trials],
            "seconds": round(seconds, 1),
        },
    )
    if turn.untried:
        sys.exit(CANNOT_RUN)


def turn_text(package: str, turn: Turn, tried: str) -> str:
    """Write where a piece of a package changed, with how much was tried for it."""
    if turn.untried:
        among = f"between {turn.last.version} and {turn.first.version}"
        could_not = [f"{one.version} could not be tried ({one.reason})" for one in turn.untried]
        head = f"{package} changed it {among}: {'; '.join(could_not)} ({tried})"
    else:
        head = f"{package} {turn.first.version} changed it ({tried})"
    return "\n".join([head, *_told(turn.last), *_told(turn.first)])


def _told(trial: Trial) -> list[str]:
    return [f"  {trial.version}: {trial.state}", *(f"    {line}" for line in trial.detail.splitlines())]


COMMANDS = (versions, bisect_releases)
