"""The comparison: the compiled and the hand-written environment in interleaved, randomised pairs, as a ratio."""

from __future__ import annotations

import statistics
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from bench import protocol
from bench.client import Worker, start_worker
from bench.machine import Pressure
from bench.progress import Progress
from bench.recording import Recording
from bench.records import End, Note, Ratio, Subject
from bench.samples import Phase, SampleColumns, Status
from bench.server import Server, reading, start_server
from bench.stats import TooSmall, ratio
from bench.workloads import Workload

_PHASES = (Phase.CONNECT, Phase.RESET, Phase.STEP)


@dataclass(slots=True)
class _Side:
    """One side of the comparison: what is played where, and the median of each pair by phase."""

    subject: Subject
    server: Server
    client: Worker
    before: Pressure
    own_cpu_s: float
    server_before: protocol.Observed
    batches: list[SampleColumns] = field(default_factory=list)
    medians: dict[Phase, dict[int, float]] = field(default_factory=dict)
    counted: Counter[Phase] = field(default_factory=Counter)

    @property
    def cell(self) -> str:
        return f"pairs-{self.subject}"


async def compare(recording: Recording, server: Server) -> None:
    """Play pairs of both subjects, in random order within each pair, and record the ratio of their medians.

    Does nothing when the framework has no hand-written environment of this name.

    Raises:
        WorkerError: A worker broke down.
    """
    module = recording.baseline_module
    if module is None or recording.plan.pairs == 0:
        return
    stack, environment = recording.request.stack, recording.request.environment
    workload = Workload(turns=recording.plan.latency_turns)
    async with AsyncExitStack() as running:
        label = "the hand-written environment's client"
        other = await running.enter_async_context(start_worker(stack.python, module, label=label))
        theirs = await running.enter_async_context(
            start_server(stack, environment, client=other, module=module)
        )
        ours = (server, theirs, other)
        sides = [
            await _begin(recording, "compiled", server, recording.driver, workload, ours),
            await _begin(recording, "baseline", theirs, other, workload, ours),
        ]
        try:
            for pair in range(recording.plan.pairs + 1):
                recording.rng.shuffle(sides)
                for side in sides:
                    await _play(recording, side, workload, pair)
                recording.on_progress(
                    Progress("compiled against hand-written", pair, recording.plan.pairs, "pairs")
                )
        finally:
            for side in sides:
                recording.writer.write_samples(side.cell, *side.batches)
        for side in sides:
            await _end(recording, side, ours)
    by_subject = {side.subject: side for side in sides}
    for phase in _PHASES:
        recording.writer.write(
            _ratio(phase, by_subject["compiled"], by_subject["baseline"], recording.request.seed)
        )


async def _begin(  # noqa: PLR0917 - made in one place
    recording: Recording,
    subject: Subject,
    server: Server,
    client: Worker,
    workload: Workload,
    ours: tuple[Server | Worker, ...],
) -> _Side:
    before, own = Pressure.read(), await recording.own_cpu_s(*ours)
    side = _Side(subject, server, client, before, own, await server.read())
    recording.begin(side.cell, server=server, workload=workload, engine="client", subject=subject)
    return side


async def _play(recording: Recording, side: _Side, workload: Workload, pair: int) -> None:
    sessions = recording.plan.pair_sessions
    batches: list[SampleColumns] = []
    await recording.load(
        side.server,
        workload,
        batches.append,
        client=side.client,
        sessions=sessions,
        first=pair * sessions,
        # The first pair only warms both sides up.
        warmup=sessions if pair == 0 else 0,
        # What is written by hand has words of its own; only its speed is compared.
        is_checked=side.subject == "compiled",
    )
    side.batches.extend(batches)
    rows = [row for columns in batches for row in columns]
    for phase in _PHASES:
        taken = [row for row in rows if row.phase is phase]
        if pair and taken and all(row.status is Status.OK for row in taken):
            side.medians.setdefault(phase, {})[pair] = statistics.median(row.ns for row in taken)
            side.counted[phase] += len(taken)


async def _end(recording: Recording, side: _Side, ours: tuple[Server | Worker, ...]) -> None:
    after = await side.server.settle(side.server_before.open_sessions)
    recording.writer.write(
        End(
            cell=side.cell,
            status=recording.status,
            reason=recording.reason,
            pressure_before=side.before,
            pressure_after=Pressure.read(),
            # Both sides ran in the same stretch of time, in turns.
            own_cpu_s=max(0.0, await recording.own_cpu_s(*ours) - side.own_cpu_s),
            server_before=reading(side.server_before),
            server_after=reading(after),
        )
    )


def _ratio(phase: Phase, mine: _Side, theirs: _Side, seed: int) -> Ratio | Note:
    name = f"compiled/baseline {phase}"
    above, below = mine.medians.get(phase, {}), theirs.medians.get(phase, {})
    pairs = sorted(above.keys() & below.keys())
    result = ratio([above[pair] for pair in pairs], [below[pair] for pair in pairs], seed=seed)
    if isinstance(result, TooSmall):
        return Note(text=f"The ratio {name} is missing: {len(pairs)} pairs came through whole, {result}.")
    return Ratio(
        name=name,
        phase=phase,
        pairs=len(pairs),
        ratio=result.value,
        low=result.low,
        high=result.high,
        n=mine.counted[phase] + theirs.counted[phase],
    )
