"""Latency across releases: connect and step of every release, in turns with the default release of its framework.

All releases of a framework run at the same time, and idle but for one: in each round every one of them has its turn, in random
order. What happens to the machine meanwhile happens to all of them, so that a ratio of two medians of one round is a ratio of
releases.
"""

from __future__ import annotations

import random
import resource
import statistics
import time
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby

from packaging.version import Version

from bench import protocol
from bench.client import Worker, WorkerError, start_worker
from bench.machine import Machine, Pressure, read_revision
from bench.plan import QUICK
from bench.progress import OnProgress, Progress, ignore_progress
from bench.recording import make_scripts, shorten
from bench.samples import Phase, SampleColumns, Status
from bench.server import Server, start_server
from bench.stacks import ROOT, Stack, StackError, build_stack, find_python
from bench.stats import Population, TooSmall, quantile, ratio
from bench.versions.latencies import Latencies, PhaseLatency, RatioToDefault, ReleaseLatency
from bench.workloads import Workload
from canonical.catalogue import load_environment

PHASES = (Phase.CONNECT, Phase.STEP)
ROUNDS = 24
SESSIONS = 6
"""Sessions that a release plays in its turn."""
TURNS = 5
"""Steps of each of them."""

_ANSWER_TIMEOUT_S = 30.0
_TURN_TIMEOUT_S = 120.0


@dataclass(slots=True)
class _Side:
    """One release while it is measured: what plays where, and the median of each round by phase."""

    stack: Stack
    client: Worker
    server: Server
    medians: dict[Phase, dict[int, float]] = field(default_factory=dict)
    ns: dict[Phase, list[int]] = field(default_factory=dict)
    failures: dict[Phase, int] = field(default_factory=dict)
    reason: str = ""


async def measure_latencies(
    stacks: Sequence[Stack],
    *,
    environment: str,
    rounds: int = ROUNDS,
    seed: int = 0,
    on_progress: OnProgress = ignore_progress,
) -> Latencies:
    """Measure releases, each in turns with the others of its framework, the default release always among them.

    Args:
        stacks: Releases, one for each target where a release has several.
        environment: Name or path of the environment.
        rounds: How many turns each has; another one before them only warms it up.
        seed: Of the order within the rounds.
        on_progress: Told how far each framework has come.

    Raises:
        WorkerError: The environment has no episodes as long as the plan needs them.
    """
    started, begun, before, own = datetime.now(UTC), time.monotonic(), Pressure.read(), _own_cpu_s()
    revision = read_revision(ROOT)
    scripts = shorten(await make_scripts(load_environment(environment), QUICK), TURNS)
    rng = random.Random(seed)  # noqa: S311 - the order must be reproducible
    releases: list[ReleaseLatency] = []
    for _, mine in groupby(_with_defaults(stacks), key=lambda one: one.adapter):
        releases += await _measure(list(mine), environment, scripts, rounds, rng, seed, on_progress)
    return Latencies(
        environment=environment,
        rounds=rounds,
        sessions=SESSIONS,
        turns=TURNS,
        seed=seed,
        started=started.replace(microsecond=0),
        seconds=round(time.monotonic() - begun, 1),
        machine=Machine.read(),
        before=before,
        after=Pressure.read(),
        own_cpu_s=max(0.0, _own_cpu_s() - own),
        commit=None if revision is None else revision.commit,
        dirty=None if revision is None else revision.dirty,
        releases=tuple(releases),
    )


def default_of(stack: Stack) -> Stack:
    """Return the default release of the framework of a stack, as the first thing that environments become there."""
    return Stack(stack.adapter, stack.facts, stack.facts.default_release).per_target()[0]


def _with_defaults(stacks: Iterable[Stack]) -> list[Stack]:
    found = {one.label: one for stack in stacks for one in (stack, default_of(stack))}
    return sorted(
        found.values(),
        key=lambda one: (one.adapter, one.release.package, Version(one.release.version), one.target),
    )


async def _measure(  # noqa: PLR0917 - called in one place
    stacks: Sequence[Stack],
    environment: str,
    scripts: list[protocol.Script],
    rounds: int,
    rng: random.Random,
    seed: int,
    on_progress: OnProgress,
) -> list[ReleaseLatency]:
    """Measure the releases of one framework, and return them in their order."""
    reasons: dict[str, str] = {}
    sides: list[_Side] = []
    title = stacks[0].facts.title
    async with AsyncExitStack() as running:
        for number, stack in enumerate(stacks):
            on_progress(Progress(f"{title}, starting", number, len(stacks), stack.label))
            if find_python(stack.release.python) is None:
                reasons[stack.label] = f"it needs Python {stack.release.python}, which is not here"
                continue
            try:
                build_stack(stack)
                client = await running.enter_async_context(
                    start_worker(stack.python, stack.worker, label=f"the {stack.label} client")
                )
                server = await running.enter_async_context(start_server(stack, environment, client=client))
            except (StackError, WorkerError) as error:
                reasons[stack.label] = str(error)
                continue
            sides.append(_Side(stack, client, server))
        on_progress(Progress(f"{title}, starting", len(stacks), len(stacks)))
        for number in range(rounds + 1):
            order = [side for side in sides if not side.reason]
            rng.shuffle(order)
            for side in order:
                await _turn(side, environment, scripts, number)
            on_progress(Progress(title, number, rounds, "rounds"))
    by_label = {side.stack.label: side for side in sides}
    default = by_label.get(default_of(stacks[0]).label)
    return [
        _release(stack, by_label.get(stack.label), default, reasons.get(stack.label, ""), seed)
        for stack in stacks
    ]


async def _turn(side: _Side, environment: str, scripts: list[protocol.Script], number: int) -> None:
    batches: list[SampleColumns] = []
    workload = Workload(turns=TURNS)
    try:
        await side.client.request(
            protocol.Loaded,
            lambda seq: protocol.Load(
                seq=seq,
                environment=environment,
                url=side.server.url,
                workload=workload,
                sessions=SESSIONS,
                first=number * SESSIONS,
                concurrency=1,
                # The first round only warms everything up.
                warmup=0 if number else SESSIONS,
                scripts=scripts,
                timeout_s=_ANSWER_TIMEOUT_S,
            ),
            timeout_s=_TURN_TIMEOUT_S,
            on_samples=batches.append,
        )
    except WorkerError as error:
        side.reason = str(error)
        return
    rows = [row for columns in batches for row in columns]
    wrong = next((row for row in rows if row.status is not Status.OK), None)
    if wrong is not None:
        side.reason = f"{wrong.phase}: {wrong.status}: {wrong.error}"
    if not number:
        return
    for phase in PHASES:
        taken = [row for row in rows if row.phase is phase]
        good = [row.ns for row in taken if row.status is Status.OK]
        side.ns.setdefault(phase, []).extend(good)
        side.failures[phase] = side.failures.get(phase, 0) + len(taken) - len(good)
        if good and len(good) == len(taken):
            side.medians.setdefault(phase, {})[number] = statistics.median(good)


def _release(
    stack: Stack, side: _Side | None, default: _Side | None, reason: str, seed: int
) -> ReleaseLatency:
    phases = [] if side is None else [_phase(phase, side, default, seed) for phase in PHASES]
    return ReleaseLatency(
        framework=stack.adapter,
        title=stack.facts.title,
        stack=stack.label,
        package=stack.release.package,
        version=stack.release.version,
        python=stack.release.python,
        is_default=stack.label == default_of(stack).label,
        phases=tuple(one for one in phases if one is not None),
        reason=reason or ("" if side is None else side.reason),
    )


def _phase(phase: Phase, side: _Side, default: _Side | None, seed: int) -> PhaseLatency | None:
    # What took no time on this clock has no ratio, and counts as one of its ticks.
    population = Population([max(1, ns) for ns in side.ns.get(phase, [])], side.failures.get(phase, 0))
    median = quantile(population, 0.5)
    if isinstance(median, TooSmall) or not population.ok.size or median.high == float("inf"):
        return None
    return PhaseLatency(
        phase=phase,
        median_ns=median.value,
        low_ns=median.low,
        high_ns=median.high,
        n=population.n,
        ratio=None if default is None or side is default else _ratio(phase, side, default, seed),
    )


def _ratio(phase: Phase, side: _Side, default: _Side, seed: int) -> RatioToDefault | None:
    above, below = side.medians.get(phase, {}), default.medians.get(phase, {})
    rounds = sorted(above.keys() & below.keys())
    found = ratio(
        [max(1.0, above[one]) for one in rounds], [max(1.0, below[one]) for one in rounds], seed=seed
    )
    if isinstance(found, TooSmall):
        return None
    return RatioToDefault(value=found.value, low=found.low, high=found.high, pairs=found.pairs)


def _own_cpu_s() -> float:
    """Return the CPU seconds that this process and every process of ours that has ended have used."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime
