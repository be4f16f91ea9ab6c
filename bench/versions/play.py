"""Play cells: install a release in a stack of its own, run conformance there, and say what came of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bench.client import WorkerError, start_both
from bench.conformance import ConformanceResult, Divergence, run_conformance
from bench.machine import read_revision
from bench.progress import OnProgress, Progress, ignore_progress
from bench.stacks import ROOT, Stack, StackError, build_stack, find_python
from bench.stone.wire import UnreadableStreamError
from bench.versions.cells import Cell, Finding, Frame, Outcome, SymbolState
from bench.versions.frames import record_frames
from bench.versions.kept import CellStore, cell_key
from bench.versions.known import judge, known_failures
from bench.versions.symbols import states, symbols_of
from canonical.adapter import SessionError

_GRACE_S = 0.05
"""What ended a process of ours may be about to end this one, too, in which case the release is not to blame."""


@dataclass(frozen=True, slots=True)
class Conformed:
    """Hold what a release showed: conformance, the symbols in use, and an episode on the wire."""

    result: ConformanceResult
    symbols: tuple[SymbolState, ...]
    frames: tuple[Frame, ...] = ()
    unrecorded: str = ""


async def play_cells(
    stacks: Sequence[Stack],
    *,
    environment: str,
    episodes: int,
    seed: int,
    store: CellStore,
    jobs: int = 1,
    fresh: bool = False,
    on_progress: OnProgress = ignore_progress,
    on_cell: Callable[[Cell, bool], None] = lambda _cell, _kept: None,
) -> list[Cell]:
    """Return the cell of every stack, in their order; what was kept is not played again.

    Args:
        stacks: Releases, one for each target where a release has several.
        environment: Name or path of the environment.
        episodes: At least how many episodes each plays in it.
        seed: Seed of the fuzzer.
        store: Where cells are kept.
        jobs: How many are played at the same time.
        fresh: Whether all are played, whatever was kept.
        on_progress: Told how many are done, and of each how many episodes.
        on_cell: Called with each cell as it is known, and whether it was kept from before.
    """
    free, done = asyncio.Semaphore(jobs), 0
    found: dict[int, Cell] = {}

    async def one(number: int, stack: Stack) -> None:
        nonlocal done
        key = cell_key(stack, environment, episodes=episodes, seed=seed)
        cell = None if fresh else store.read(stack.label, key)
        is_kept = cell is not None
        if cell is None:
            async with free:
                cell = await play_cell(
                    stack,
                    environment=environment,
                    episodes=episodes,
                    seed=seed,
                    key=key,
                    on_progress=on_progress,
                )
            store.write(cell)
        found[number] = cell
        done += 1
        on_cell(cell, is_kept)
        on_progress(Progress("releases", done, len(stacks), stack.label))

    async with asyncio.TaskGroup() as group:
        for number, stack in enumerate(stacks):
            group.create_task(one(number, stack))
    return [found[number] for number in range(len(stacks))]


async def play_cell(
    stack: Stack,
    *,
    environment: str,
    episodes: int,
    seed: int,
    key: str = "",
    on_progress: OnProgress = ignore_progress,
) -> Cell:
    """Install a release, run conformance, and return what came of it.

    Args:
        stack: The release.
        environment: Name or path of the environment.
        episodes: At least how many episodes to play in it.
        seed: Seed of the fuzzer.
        key: The hash to keep the cell under; made when left out.
        on_progress: Told how many episodes were played.
    """
    started, revision = time.monotonic(), read_revision(ROOT)

    def cell(outcome: Outcome, **further: Any) -> Cell:
        return Cell(
            framework=stack.adapter,
            title=stack.facts.title,
            stack=stack.label,
            package=stack.release.package,
            version=stack.release.version,
            python=stack.release.python,
            environment=environment,
            key=key or cell_key(stack, environment, episodes=episodes, seed=seed),
            outcome=outcome,
            seconds=round(time.monotonic() - started, 1),
            played=datetime.now(UTC).replace(microsecond=0),
            commit=None if revision is None else revision.commit,
            **further,
        )

    python = stack.release.python
    if find_python(python) is None:
        return cell(
            Outcome.NO_INTERPRETER,
            reason=f"it needs Python {python}, which is not here; get it with 'uv python install {python}'",
        )
    try:
        await asyncio.to_thread(build_stack, stack, imports=False)
    except StackError as error:
        await asyncio.sleep(_GRACE_S)
        return cell(Outcome.NOT_INSTALLABLE, reason=str(error))
    try:
        seen = await conform(stack, environment, episodes, seed, on_progress)
    except WorkerError as error:
        await asyncio.sleep(_GRACE_S)
        finding = Finding(promise="the adapter works with the release", difference=str(error))
        return cell(Outcome.FAILS, findings=(finding,))
    result = seen.result
    findings = _findings(result.divergences)
    new, known = judge(findings, known_failures(stack))
    outcome = Outcome.FAILS if new or not result.episodes else Outcome.KNOWN if known else Outcome.PASSES
    return cell(
        outcome,
        findings=(*new, *known),
        episodes=result.episodes,
        steps=result.steps,
        digest=result.digest,
        features={
            proof.feature.value: proof.declared.level.value
            for proof in result.features
            if proof.declared is not None and proof.problem is None
        },
        symbols=seen.symbols,
        frames=seen.frames,
        unrecorded=seen.unrecorded,
    )


async def conform(
    stack: Stack, environment: str, episodes: int, seed: int, on_progress: OnProgress
) -> Conformed:
    """Run conformance in a stack, which must be built, and look at what else a cell holds.

    Raises:
        WorkerError: The adapter does not work with the release.
    """
    async with start_both(stack) as (host, driver):
        result = await run_conformance(
            host, driver, source=environment, episodes=episodes, seed=seed,
            on_progress=lambda done, of: on_progress(Progress(stack.label, done, of, "episodes")),
        )  # fmt: skip
        symbols = await states(driver, symbols_of(stack))
        if stack.facts.kind == "in_process":
            return Conformed(result, symbols)
        try:
            return Conformed(result, symbols, await record_frames(host, driver))
        except (SessionError, UnreadableStreamError, WorkerError) as error:
            return Conformed(result, symbols, unrecorded=str(error))


def _findings(divergences: Sequence[Divergence]) -> tuple[Finding, ...]:
    """Return the first divergence of each promise."""
    first: dict[str, Divergence] = {}
    for one in divergences:
        first.setdefault(one.scenario, one)
    return tuple(Finding(promise=promise, difference=one.render()) for promise, one in first.items())
