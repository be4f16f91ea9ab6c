"""The matrix of ports: every source that is tried, brought to every framework, and Wordle there and back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from bench.client import WorkerError
from bench.machine import read_revision
from bench.porting.port import EPISODES, Surveyed, describe_port, open_side, prove, survey
from bench.porting.records import MatrixSource, PortMatrix, PortRecord, RoundTrip, Unported
from bench.porting.round_trip import go_round
from bench.porting.sources import SourceRequest
from bench.porting.tried import TriedSource, tried_sources
from bench.progress import OnProgress, Progress
from bench.stacks import ROOT, ReleaseStack, Stack, adapter_names, find_stack, library_names
from canonical.adapter import SessionError
from canonical.bridge.source import LiftError


@dataclass(frozen=True, slots=True)
class MatrixRequest:
    """Hold which ports are made.

    Attributes:
        sources: The frameworks and libraries of tasks whose sources are tried.
        targets: The frameworks that they are ported to.
        baselines: Whether only the hand-written Wordle of each framework is ported.
        round_trips: Whether the hand-written ones go there and back, too.
        episodes: How many episodes with random actions each proof plays.
        seed: Decides them.
    """

    sources: Sequence[str]
    targets: Sequence[str]
    baselines: bool = False
    round_trips: bool = True
    episodes: int = EPISODES
    seed: int = 0

    def rows(self) -> list[tuple[str, TriedSource]]:
        """Return the sources that are tried, the hand-written ones first.

        Raises:
            TriedSourcesError: The list of a framework is malformed.
        """
        found = [(framework, one) for framework in self.sources for one in tried_sources(framework)]
        found.sort(key=lambda row: not row[1].baseline)
        return [row for row in found if row[1].baseline or not self.baselines]

    def stacks(self) -> list[ReleaseStack]:
        """Return every stack that is needed."""
        needed: list[ReleaseStack] = [one.request(framework).stack for framework, one in self.rows()]
        needed += [find_stack(framework) for framework in self.targets]
        return list({stack.label: stack for stack in needed}.values())


async def make_matrix(request: MatrixRequest, *, on_progress: OnProgress) -> PortMatrix:
    """Lift every source that is tried, port it to every framework, and prove each port.

    What cannot be ported is recorded with its reason; the others go on.

    Raises:
        TriedSourcesError: The list of a framework is malformed.
    """
    began = time.monotonic()
    rows = request.rows()
    ports: list[PortRecord] = []
    unported: list[Unported] = []
    trips: list[RoundTrip] = []
    for done, (framework, one) in enumerate(rows):
        source = one.request(framework)
        on_progress(Progress("sources", done, len(rows), source.name))
        try:
            async with survey(
                source, episodes=request.episodes, seed=request.seed, pool=one.pool()
            ) as surveyed:
                for target in request.targets:
                    on_progress(Progress("sources", done, len(rows), f"{source.name} to {target}"))
                    try:
                        ports.append(await _port(source, surveyed, find_stack(target)))
                    except (SessionError, WorkerError) as error:
                        unported.append(Unported(source=source.name, target=target, reason=str(error)))
                if one.baseline and request.round_trips:
                    for target in request.targets:
                        if target != framework:
                            on_progress(
                                Progress("sources", done, len(rows), f"{source.name} to {target} and back")
                            )
                            trips.append(
                                await go_round(source, surveyed, find_stack(framework), find_stack(target))
                            )
        except (LiftError, SessionError) as error:
            unported.append(Unported(source=source.name, reason=str(error)))
    on_progress(Progress("sources", len(rows), len(rows), ""))
    revision = read_revision(ROOT)
    return PortMatrix(
        written=datetime.now(UTC),
        commit=None if revision is None else revision.commit,
        dirty=None if revision is None else revision.dirty,
        sources=[
            MatrixSource(
                name=one.request(framework).name,
                what=one.what,
                framework=framework,
                baseline=one.baseline,
                library=framework in library_names(),
            )
            for framework, one in rows
        ],
        targets=list(request.targets),
        ports=ports,
        unported=unported,
        round_trips=trips,
        seconds=time.monotonic() - began,
    )


async def _port(source: SourceRequest, surveyed: Surveyed, target: Stack) -> PortRecord:
    async with open_side(target, surveyed.running.environment) as side:
        # In a matrix of what is lost, losing is no reason to stop.
        record = describe_port(source, surveyed, target, side)
        return await prove(record, surveyed, side)


def all_frameworks() -> list[str]:
    """Return the frameworks of the matrix, in the order of its columns."""
    return list(adapter_names())


def all_owners() -> list[str]:
    """Return whatever owns sources: the frameworks, and the libraries of tasks, in the order of the rows."""
    return [*adapter_names(), *library_names()]
