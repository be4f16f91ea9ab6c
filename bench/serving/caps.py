"""How many sessions a proxy lets through: its own defaults against the derived limits, with its own counters."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from bench import protocol
from bench.load.engine import LoadResult, run_load
from bench.load.plan import LoadPlan
from bench.machine import Machine, Pressure, preflight, read_revision
from bench.plan import SMOKE
from bench.progress import OnProgress, Progress
from bench.recording import make_scripts
from bench.samples import Phase, Status
from bench.serving.fleet import Fleet, FleetRequest, serve_fleet
from bench.serving.proxies import find_binary
from bench.serving.proxies.protocol import Proxy, Variant
from bench.serving.records import SCHEMA, ProxyHeader, ProxyRunWriter, ProxyTrial
from bench.stacks import ROOT, Stack
from bench.trials import load_script
from bench.workloads import NANOSECONDS, Workload
from canonical.catalogue import load_environment

VARIANTS: tuple[Variant, ...] = ("default", "derived")
_WATCH_EVERY_S = 0.5
_SCRIPTS = 16
_RAMP_PER_S = 50


@dataclass(frozen=True, slots=True)
class CapsRequest:
    """Say what is measured.

    Attributes:
        stack: The framework release.
        environment: Name or path of the environment.
        proxies: The proxies, one after the other.
        variants: The derived limits, their own defaults, or both.
        sessions: Sessions that are to be held at the same time.
        replicas: Server processes behind each.
        turns: Steps of each session.
        tool_s: How long its tool works, in seconds.
        connect_timeout_s: Patience for a connection: a proxy that queues what it does not let through never answers.
        processes: Generator processes.
        folder: Where the records go.
        arguments: The command as it was given.
    """

    stack: Stack
    environment: str
    proxies: Sequence[Proxy]
    variants: Sequence[Variant]
    sessions: int
    replicas: int
    turns: int
    tool_s: float
    folder: Path
    connect_timeout_s: float = 15.0
    processes: int = 1
    arguments: tuple[str, ...] = ()

    @property
    def workload(self) -> Workload:
        """The shape of the episodes."""
        tool_ns = round(self.tool_s * NANOSECONDS)
        return Workload(turns=self.turns, tool_ns=tool_ns, tool_kind="async", spread_ns=tool_ns)


def header_of(request: CapsRequest, *stacks: Stack) -> ProxyHeader:
    """Return the first record of a run of one stack, or of several."""
    revision = read_revision(ROOT)
    started = datetime.now(UTC)
    return ProxyHeader(
        run_id=f"{started:%Y%m%d-%H%M%S}-proxies",
        started=started,
        stack=", ".join(stack.label for stack in stacks or (request.stack,)),
        environment=load_environment(request.environment).name,
        replicas=request.replicas,
        turns=request.turns,
        tool_s=request.tool_s,
        machine=Machine.read(),
        pressure=Pressure.read(),
        commit=revision.commit if revision else None,
        dirty=revision.dirty if revision else None,
        args_passed=request.arguments,
        schema=SCHEMA,
    )


async def measure_caps(
    request: CapsRequest, *, on_progress: OnProgress, on_event: Callable[[str], None]
) -> None:
    """Hold sessions through each proxy in each variant, in fresh processes, and write what came through.

    Raises:
        bench.serving.proxies.ProxyError: A proxy is missing or does not start.
        bench.client.WorkerError: A replica does not start.
        bench.load.engine.LoadFailed: The load generator broke down.
    """
    for proxy in request.proxies:
        find_binary(proxy)
    for obstacle in preflight(
        request.sessions, server_processes=request.replicas, generator_processes=request.processes
    ):
        on_event(obstacle.sentence)
    scripts = await load_scripts(request.environment, request.workload)
    total = len(request.proxies) * len(request.variants)
    done = 0
    with ProxyRunWriter(request.folder, header_of(request)) as writer:
        for proxy in request.proxies:
            for variant in request.variants:
                on_progress(Progress("proxies", done, total, f"{proxy.title}, {variant}"))
                writer.write(await _trial(request, proxy, variant, scripts, on_event))
                done += 1
        on_progress(Progress("proxies", done, total, ""))


async def load_scripts(environment: str, workload: Workload) -> list[protocol.Script]:
    """Return what the sessions of a workload play, with the reference's answers."""
    plan = SMOKE.model_copy(update={"held": workload, "latency_turns": workload.turns, "scripts": _SCRIPTS})
    return await make_scripts(load_environment(environment), plan)


async def _trial(
    request: CapsRequest,
    proxy: Proxy,
    variant: Variant,
    scripts: Sequence[protocol.Script],
    on_event: Callable[[str], None],
) -> ProxyTrial:
    version = await read_version(proxy)
    fleet_request = FleetRequest(
        stack=request.stack, environment=request.environment, replicas=request.replicas, proxy=proxy,
        target_sessions=request.sessions, workload=request.workload, variant=variant,
    )  # fmt: skip
    async with serve_fleet(fleet_request, on_event=on_event) as fleet:
        before, own, idle = Pressure.read(), await own_cpu_s(fleet), fleet.proxy.rss_bytes()
        cpu_before = fleet.proxy.cpu_s()
        async with watch(fleet) as seen:
            outcome = await hold(
                fleet, request.stack, scripts, sessions=request.sessions, workload=request.workload,
                connect_timeout_s=request.connect_timeout_s, processes=request.processes,
            )  # fmt: skip
        counters = await fleet.proxy.counters()
        table = outcome.table()
        return ProxyTrial(
            proxy=proxy.name, title=proxy.title, version=version, variant=variant,
            plan=fleet.plan.model_dump(mode="json", exclude_none=True), processes=len(fleet.proxy.folders),
            sessions=request.sessions, opened=outcome.opened, peak_open=outcome.peak_open,
            peak_on_replicas=dict(seen.sessions), succeeded=outcome.succeeded, errors=dict(outcome.errors),
            connect_ns=_right(table, Phase.CONNECT), step_ns=_right(table, Phase.STEP),
            step_failures=pc.sum(pc.equal(table["phase"], Phase.STEP.value)).as_py() - len(_right(table, Phase.STEP)),
            generator_utilisation=outcome.summary.utilisation,
            generator_lag_p99_ns=outcome.summary.loop_lag_p99_ns, counters=counters,
            most={name: max(seen.most.get(name, 0), value) for name, value in counters.items()},
            proxy_cpu_s=max(0.0, fleet.proxy.cpu_s() - cpu_before), proxy_rss_idle_bytes=idle,
            proxy_rss_bytes=max(idle, seen.rss_bytes), pressure_before=before, pressure_after=Pressure.read(),
            own_cpu_s=max(0.0, await own_cpu_s(fleet) - own),
        )  # fmt: skip


async def own_cpu_s(fleet: Fleet) -> float:
    """Return the CPU seconds that this process, all that it has started and ended, and a fleet have used until now."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = time.process_time() + ended.ru_utime + ended.ru_stime
    return own + fleet.proxy.cpu_s() + await fleet.replicas.cpu_s()


async def hold(
    fleet: Fleet,
    stack: Stack,
    scripts: Sequence[protocol.Script],
    *,
    sessions: int,
    workload: Workload,
    connect_timeout_s: float = 15.0,
    reply_timeout_s: float = 60.0,
    processes: int = 1,
) -> LoadResult:
    """Hold sessions through the proxy of a fleet once, and return what became of them.

    Raises:
        bench.load.engine.LoadFailed: The load generator broke down, or nobody was reached.
    """
    episode_s = workload.turns * (workload.tool_ns + workload.think_ns) / NANOSECONDS
    stop = threading.Event()
    with tempfile.TemporaryDirectory(prefix="rosetta-load-") as folder:
        plan = LoadPlan(
            adapter=stack.adapter,
            wire_module=stack.wire,
            addresses=(fleet.plan.host,),
            ports=(fleet.plan.port,),
            sessions=sessions,
            scripts=tuple(map(load_script, scripts)),
            turns=workload.turns,
            spread_s=workload.spread_ns / NANOSECONDS,
            think_s=workload.think_ns / NANOSECONDS,
            connect_timeout_s=connect_timeout_s,
            reply_timeout_s=reply_timeout_s + workload.tool_ns / NANOSECONDS,
            time_limit_s=60 + 10 * episode_s + 4 * connect_timeout_s + sessions / _RAMP_PER_S,
            processes=processes,
            out=Path(folder),
        )
        try:
            return await asyncio.to_thread(run_load, plan, stop=stop)
        finally:
            # Only matters when this task is cancelled: the thread must not outlive it.
            stop.set()


@dataclass(slots=True)
class Seen:
    """Hold the largest of what was seen of a fleet.

    Attributes:
        sessions: Sessions by replica.
        most: The proxy's counters.
        rss_bytes: Memory of the proxy.
    """

    sessions: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    rss_bytes: int = 0


@asynccontextmanager
async def watch(fleet: Fleet) -> AsyncIterator[Seen]:
    """Look at a fleet twice a second as long as the context lasts."""
    seen = Seen()

    async def look() -> None:
        while True:
            for name, count in (await fleet.replicas.open_sessions()).items():
                seen.sessions[name] = max(seen.sessions[name], count)
            with contextlib.suppress(OSError):
                for name, value in (await fleet.proxy.counters()).items():
                    seen.most[name] = max(seen.most[name], value)
            seen.rss_bytes = max(seen.rss_bytes, fleet.proxy.rss_bytes())
            await asyncio.sleep(_WATCH_EVERY_S)

    looking = asyncio.create_task(look())
    try:
        yield seen
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


async def read_version(proxy: Proxy) -> str:
    """Return what the program of a proxy says of its version."""
    process = await asyncio.create_subprocess_exec(
        str(find_binary(proxy)), proxy.version_option,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await process.communicate()
    lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
    # Envoy names its path first.
    return next((line.rpartition("version: ")[2] for line in lines), "unknown")


def _right(table: pa.Table, phase: Phase) -> tuple[int, ...]:
    rows = table.filter(
        pc.and_(pc.equal(table["phase"], phase.value), pc.equal(table["status"], Status.OK.value))
    )
    return tuple(rows["ns"].to_pylist())
