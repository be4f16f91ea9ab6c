"""Verbs about environments of frameworks: lend, verify-port; and how a source is named."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from bench.porting.episodes import PortEpisode, read_episodes, write_episodes
from bench.porting.ledger import STATUSES, lost_pieces, status_of
from bench.porting.matrix import MatrixRequest, all_frameworks, all_owners, make_matrix
from bench.porting.port import (
    EPISODES,
    Surveyed,
    bridged,
    describe_port,
    open_side,
    prove,
    survey,
)
from bench.porting.records import (
    EPISODES_FILE,
    MATRIX_FILE,
    MATRIX_PAGE,
    PAGE_FILE,
    PortRecord,
    read_port,
    write_port,
)
from bench.porting.sources import SourceRequest, find_source, is_source, run_source
from bench.porting.verify import Side
from bench.progress import Progress
from bench.stacks import ROOT, Stack, find_owner, find_stack
from canonical.adapter import Loss
from canonical.bridge.source import LiftOptions
from canonical.catalogue import load_environment
from canonical.stone import PieceName
from canonical.transcript import Action, action_from_json
from reports.ports import render_matrix, render_mismatch, render_port
from rosetta.console import FINDING, Console, output_options
from rosetta.options import make_ready, out_folder_option
from rosetta.signals import hear_signals

Decorator = Callable[[Any], Any]


def _argument(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{one!r} is not NAME=VALUE")
        try:
            arguments[name] = json.loads(value)
        except ValueError:
            arguments[name] = value
    return arguments


_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--source-release", help="The release of the source's framework or library; its default when left out."
    ),
    click.option(
        "--tasks", default=LiftOptions().tasks, show_default=True, type=click.IntRange(1, 1_000_000),
        help="How many seeds become tasks, where the source has no tasks.",
    ),
    click.option(
        "--max-turns", default=LiftOptions().max_turns, show_default=True, type=click.IntRange(1, 100_000),
        help="How many actions an episode may take, where the source does not say it.",
    ),
    click.option(
        "--data", help="Rows, where the trainer owns them: a JSON Lines file, or MODULE:NAME of rows or of a function."
    ),
    click.option(
        "--import", "imports", multiple=True, help="A module or file to import first; may be repeated."
    ),
    click.option(
        "--argument", "arguments", multiple=True, callback=_argument, metavar="NAME=VALUE",
        help="A keyword argument of the source's constructor or loader, as JSON or as text; may be repeated.",
    ),
)  # fmt: skip


def source_options(command: Any) -> Any:
    """Add what may be said of a source to a command, which gets it as keyword arguments for `source_request`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def source_request(name: str, said: dict[str, Any]) -> SourceRequest:
    """Return what the options say of a source.

    Raises:
        LiftError: The name is of no source.
        bench.stacks.UnknownStackError: There is no such framework or release.
    """
    options = LiftOptions(
        tasks=said["tasks"],
        max_turns=said["max_turns"],
        data=said["data"],
        imports=tuple(said["imports"]),
        arguments=said["arguments"],
    )
    return find_source(name, release=said["source_release"], options=options)


def read_pool(path: Path | None) -> list[Action]:
    """Return the actions of a file, one JSON value or text per line.

    Raises:
        click.UsageError: A line is no action.
    """
    if path is None:
        return []
    actions: list[Action] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            actions.append(action_from_json(json.loads(line)))
        except ValueError as error:
            raise click.UsageError(
                f'{path}, line {number}: not an action: {error}; write a JSON text or {{"name": ..., "arguments": ...}}'
            ) from error
    return actions


@asynccontextmanager
async def playing(name: str, said: dict[str, Any], console: Console, *, build: bool) -> AsyncIterator[str]:
    """Yield the name of an environment that can be loaded anywhere: the one given, or that of a source that runs meanwhile.

    Args:
        name: An environment of ours, or a source.
        said: What the options of `source_options` hold.
        console: Where it is said what goes on.
        build: Whether to build the source's stack when it is not ready.

    Raises:
        LiftError: The source cannot be lifted.
        UnknownEnvironmentError: There is no such environment.
        BackendUnavailableError: The sandboxes of the environment cannot be used here.
    """
    if not is_source(name):
        load_environment(name).require()
        yield name
        return
    request = source_request(name, said)
    make_ready([request.stack], console, build=build)
    console.say(f"starting {request.name} in {request.stack.label}")
    async with run_source(request) as running:
        console.say(_changed(request.name, running.facts.losses))
        yield running.environment


def _changed(name: str, losses: Sequence[Loss]) -> str:
    told = [
        f"{status}: {', '.join(dict.fromkeys(loss.piece.value for loss in losses if loss.status == status))}"
        for status in STATUSES[1:]
        if any(loss.status == status for loss in losses)
    ]
    return f"what lifting changes of {name}: {'; '.join(told) or 'nothing'}; rosetta port writes the whole ledger"


@click.command()
@click.argument("source")
@source_options
@click.option("--build", is_flag=True, help="Build the stack first when it is not ready.")
@output_options
def lend(source: str, *, build: bool, quiet: bool, as_json: bool, **said: Any) -> None:
    """Run SOURCE until interrupted, and print the name by which every other command can play it as an ENVIRONMENT.

    SOURCE is FRAMEWORK:REFERENCE, such as gem:game:Sudoku-v0-easy.
    """
    console = Console(quiet=quiet, as_json=as_json)
    request = source_request(source, said)
    make_ready([request.stack], console, build=build)
    asyncio.run(_lend(request, console))


async def _lend(request: SourceRequest, console: Console) -> None:
    stop = hear_signals()
    async with run_source(request) as running:
        facts = running.facts
        tasks = f"{len(facts.tasks):,} {'task' if len(facts.tasks) == 1 else 'tasks'}"
        console.result(
            f"{request.name} runs in {request.stack.label} ({tasks}; tools: "
            f"{', '.join(tool.name for tool in facts.tools)})\n{running.environment}\nis its name for other commands "
            "(Ctrl-C ends it)",
            {"environment": running.environment, "facts": facts.to_json()},
        )
        await stop.wait()


def port_source(
    request: SourceRequest,
    framework: str,
    out: Path,
    accepted: Sequence[PieceName],
    *,
    pool: Sequence[Action],
    build: bool,
    console: Console,
) -> int:
    """Port a source to a framework: write the ledger, the episodes and the proof into a folder.

    Returns:
        The exit code: 1 where a loss was not accepted, or where sides differ.

    Raises:
        LiftError: The source cannot be lifted.
        SessionError: The source refused, failed or is gone.
        WorkerError: The target's worker broke down.
    """
    target = find_stack(framework)
    make_ready([request.stack, target], console, build=build)
    if out.exists() and any(out.iterdir()):
        raise click.UsageError(f"{out} is not empty; choose another folder with --out")
    ported = asyncio.run(_port(request, target, accepted, pool, console))
    if ported is None:
        return FINDING
    record, episodes = ported
    out.mkdir(parents=True, exist_ok=True)
    write_episodes(episodes, out / EPISODES_FILE)
    return _written(record, out, console)


async def _port(
    request: SourceRequest,
    target: Stack,
    accepted: Sequence[PieceName],
    pool: Sequence[Action],
    console: Console,
) -> tuple[PortRecord, list[PortEpisode]] | None:
    async with (
        survey(request, pool=pool, on_step=console.say) as surveyed,
        open_side(target, surveyed.running.environment) as side,
    ):
        record = describe_port(request, surveyed, target, side, accepted)
        losses = [entry.loss() for entry in record.ledger]
        if lost := [piece for piece in lost_pieces(losses) if piece not in set(accepted)]:
            console.error(refusal(request.name, target.adapter, losses, lost))
            return None
        return await _proven(record, surveyed, side, console), surveyed.episodes


def refusal(name: str, framework: str, ledger: Sequence[Loss], lost: Sequence[PieceName]) -> str:
    """Return what is said to a person who has not accepted that pieces lose something, and how to accept it."""
    lines = [f"{name} loses something on the way to {framework}:"]
    lines += [
        f"  {loss.piece.value}: {loss.note}"
        for loss in ledger
        if loss.piece in lost and loss.status == "lost"
    ]
    flags = " ".join(f"--accept {flag_of(piece)}" for piece in lost)
    return "\n".join([*lines, f"Nothing was written. To port it all the same, add {flags}"])


def counted(ledger: Sequence[Loss]) -> str:
    """Return of how many pieces the ledger says what."""
    statuses = Counter(status_of(piece, ledger) for piece in PieceName)
    return "pieces: " + ", ".join(f"{statuses[status]} {status}" for status in STATUSES)


def flag_of(piece: PieceName) -> str:
    """Return a piece as it is written on a command line."""
    return piece.value.replace(" ", "-")


async def _proven(record: PortRecord, surveyed: Surveyed, side: Side, console: Console) -> PortRecord:
    total = len(surveyed.episodes)
    with console.progress() as show:
        return await prove(
            record, surveyed, side, on_episode=lambda done: show(Progress("episodes", done, total, ""))
        )


def _serve_command(record: PortRecord) -> str:
    words = ["rosetta", "serve", record.source.name, "--as", record.target.framework]
    if find_owner(record.source.framework).release.label != record.source.stack:
        words += ["--source-release", record.source.stack]
    given = LiftOptions(**record.source.options)
    usual = LiftOptions()
    words += ["--tasks", str(given.tasks)] if given.tasks != usual.tasks else []
    words += ["--max-turns", str(given.max_turns)] if given.max_turns != usual.max_turns else []
    words += ["--data", given.data] if given.data is not None else []
    words += [word for name in given.imports for word in ("--import", name)]
    words += [
        word
        for name, value in given.arguments.items()
        for word in ("--argument", f"{name}={json.dumps(value)}")
    ]
    return shlex.join(words)


def _written(record: PortRecord, folder: Path, console: Console) -> int:
    write_port(record, folder)
    (folder / PAGE_FILE).write_text(render_port(record), encoding="utf-8")
    proof = record.proof
    assert proof is not None  # noqa: S101 - it has just been made
    played = f"{proof.episodes} episodes, {proof.steps:,} actions on all sides"
    lines = [
        f"{record.source.name} under {record.target.stack}: {played}, {len(proof.mismatches)} differences",
        counted([entry.loss() for entry in record.ledger]),
        *(render_mismatch(one) for one in proof.mismatches[:5]),
        f"ledger: {folder / PAGE_FILE}",
    ]
    if find_stack(record.target.framework).facts.kind == "server":
        lines.append(f"to use it: {_serve_command(record)}")
    console.result("\n".join(lines), record.model_dump(mode="json"))
    return FINDING if proof.mismatches else 0


@click.command("verify-port")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--build", is_flag=True, help="Build the stacks first when they are not ready.")
@output_options
def verify_port(folder: Path, *, build: bool, quiet: bool, as_json: bool) -> None:
    """Play the recorded episodes of a port in FOLDER again, on the source and on the target, and compare.

    What the ledger does not call lost must be equal. The result is written into the folder; exit code 1 where sides differ.
    """
    console = Console(quiet=quiet, as_json=as_json)
    record = read_port(folder)
    episodes = read_episodes(folder / EPISODES_FILE)
    given = record.source.options
    options = LiftOptions(**{**given, "imports": tuple(given.get("imports", ()))})
    stack = find_owner(record.source.framework, record.source.stack)
    request = SourceRequest(record.source.framework, record.source.name.partition(":")[2], stack, options)
    target = find_stack(record.target.framework, record.target.stack)
    make_ready([stack, target], console, build=build)

    async def run() -> int:
        console.say(f"starting {request.name} in {stack.label}")
        async with (
            run_source(request) as running,
            open_side(target, running.environment) as side,
        ):
            surveyed = Surveyed(running, bridged(running), [], episodes)
            return _written(await _proven(record, surveyed, side, console), folder, console)

    raise SystemExit(asyncio.run(run()))


@click.command()
@click.option(
    "--from",
    "sources",
    multiple=True,
    type=click.Choice(all_owners()),
    help="A framework or library of tasks whose sources are ported; may be repeated. All of them when left out.",
)
@click.option(
    "--to",
    "targets",
    multiple=True,
    type=click.Choice(all_frameworks()),
    help="A framework that they are ported to; may be repeated. All of them when left out.",
)
@click.option(
    "--baselines", is_flag=True, help="Port only the Wordle that was written by hand for each framework."
)
@click.option(
    "--episodes",
    default=EPISODES,
    show_default=True,
    type=click.IntRange(2, 10_000),
    help="How many episodes with random actions each proof plays; half as many have adversarial ones.",
)
@click.option("--seed", default=0, show_default=True, help="Decides the actions.")
@click.option("--build", is_flag=True, help="Build the stacks first when they are not ready.")
@out_folder_option("Folder for the matrix; a new one under runs/ when left out.", MATRIX_FILE, MATRIX_PAGE)
@output_options
def ports(
    *,
    sources: tuple[str, ...],
    targets: tuple[str, ...],
    baselines: bool,
    episodes: int,
    seed: int,
    build: bool,
    out: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Port every source that a sources.toml names to every framework, prove each port, and write the matrix.

    The Wordles that were written by hand go there and back, too. Exit code 1 where a port differs from its source, or could
    not be made.
    """  # fmt: skip
    console = Console(quiet=quiet, as_json=as_json)
    request = MatrixRequest(
        sources=sources or all_owners(),
        targets=targets or all_frameworks(),
        baselines=baselines,
        episodes=episodes,
        seed=seed,
    )
    make_ready(request.stacks(), console, build=build)
    with console.progress() as show:
        matrix = asyncio.run(make_matrix(request, on_progress=show))
    folder = out or ROOT / "runs" / "ports" / f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MATRIX_FILE).write_text(matrix.model_dump_json(indent=1) + "\n", encoding="utf-8")
    page = render_matrix(matrix)
    (folder / MATRIX_PAGE).write_text(page, encoding="utf-8")
    summary = page.split("\n\n")[1]
    console.result(f"{summary}\n{folder / MATRIX_PAGE}", matrix.model_dump(mode="json"))
    if not matrix.holds:
        raise SystemExit(FINDING)


COMMANDS = (lend, ports, verify_port)
