"""Gather: every table's facts, from every framework's default release, into one file's worth of facts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from bench import facts
from bench.facts import FACTS_FILE, Fact, Facts, read_facts
from bench.machine import Machine, read_revision
from bench.progress import OnProgress, Progress, ignore_progress
from bench.stacks import ROOT, Stack
from bench.stone import (
    bad_input,
    handwritten,
    loop,
    pieces,
    rewards,
    tasks,
    tools,
    transport,
    troubles,
    words,
)
from bench.stone.beginning import gather_beginning
from bench.stone.claims import gather_claims
from bench.stone.ecosystem import gather_ecosystem
from bench.stone.local import gather_local
from bench.stone.runs import PUBLISHED
from bench.stone.scaling import gather_scaling
from bench.stone.sharing import gather_sharing
from bench.stone.stages import gather_stages
from bench.stone.subject import take_in_hand

READ = (words.gather, handwritten.gather, pieces.gather)
"""What is read, of one framework at a time."""

PROBED = (
    tools.gather,
    rewards.gather,
    tasks.gather,
    troubles.gather,
    bad_input.gather,
    transport.gather,
    loop.gather,
)
"""What is tried through the framework."""


async def gather(
    stacks: Sequence[Stack], on_progress: OnProgress = ignore_progress, *, install: bool = True
) -> Facts:
    """Gather all facts about frameworks; their stacks must be ready.

    Args:
        stacks: The frameworks, in the order of the columns.
        on_progress: Told what is going on.
        install: Whether to install each of them afresh and to resolve them together, which takes minutes and a network.

    Raises:
        UnresolvedSymbols: An `adapter.toml` names a symbol that the release does not have.
        NoSuchPlace: An `adapter.toml` names a place that is not there.
        WorkerError: A worker broke down.
        StackError: uv is not installed, or a framework cannot be installed.
    """
    found: list[Fact] = []
    subjects: list[facts.Subject] = []
    for number, stack in enumerate(stacks):
        on_progress(Progress("gathering", number, len(stacks), stack.label))
        async with take_in_hand(stack) as subject:
            subjects.append(subject.described)
            found += [fact for table in READ for fact in table(subject)]
            found += [fact for table in PROBED for fact in await table(subject)]
    if install:
        for number, stack in enumerate(stacks):
            on_progress(Progress("installing", number, len(stacks), stack.label))
            for table in (gather_local, gather_beginning, gather_ecosystem):
                found += await asyncio.to_thread(table, stack)
        on_progress(Progress("installing", len(stacks), len(stacks), "which of them fit together"))
        found += await asyncio.to_thread(gather_sharing, stacks)
    for number, stack in enumerate(stacks):
        on_progress(Progress("asking releases", number, len(stacks), stack.label))
        found += await asyncio.to_thread(gather_stages, stack)
        found += gather_scaling(stack)
        found += await asyncio.to_thread(gather_claims, stack, [*_published(), *found])
    on_progress(Progress("gathering", len(stacks), len(stacks), ""))
    return facts.merge(_header(subjects), [found])


def _published() -> tuple[Fact, ...]:
    """Return what is published already, for claims about tables that are not gathered this time."""
    file = PUBLISHED / "rosetta" / FACTS_FILE
    return read_facts(file).facts if file.is_file() else ()


def _header(subjects: Sequence[facts.Subject]) -> facts.Header:
    revision, machine = read_revision(ROOT), Machine.read()
    parts = [
        machine.cpu_model or machine.architecture,
        f"{machine.cores} cores",
        machine.system,
        machine.kernel,
    ]
    return facts.Header(
        gathered=datetime.now(UTC).replace(microsecond=0),
        commit=None if revision is None else revision.commit,
        dirty=None if revision is None else revision.dirty,
        machine=", ".join(parts),
        subjects=tuple(subjects),
    )
