"""Trials: sessions played against a server once, by either engine, as a cell with its samples and the server's side."""

from __future__ import annotations

import asyncio
import shutil
import threading
from typing import NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa

from bench import protocol
from bench.arrival import CLOSED, Arrival
from bench.ceiling import Abort, Trial, judge_generator
from bench.client import WorkerDied, WorkerError
from bench.load.engine import LoadFailed, LoadResult, run_load
from bench.load.plan import Call, LoadPlan, Script
from bench.load.progress import LoadProgress
from bench.machine import Pressure
from bench.progress import Progress
from bench.recording import Recording, shorten
from bench.records import SAMPLES_SCHEMA, End, Generator, samples_table
from bench.samples import Phase, SampleColumns
from bench.server import Server, reading
from bench.stats import population
from bench.workloads import NANOSECONDS, Workload

_SLOWEST_RAMP_PER_S = 50
_SESSION_CAPS = ("max_concurrent_envs", "max_sessions")
"""Names of server settings that say how many sessions are admitted."""


class Played(NamedTuple):
    """Hold what became of a trial."""

    trial: Trial
    outcome: LoadResult | None
    """What the generator measured; None when the server died."""
    is_clean: bool
    """Whether the server lives and has freed everything."""


async def play_trial(
    recording: Recording,
    server: Server,
    cell: str,
    *,
    sessions: int,
    workload: Workload,
    part: str,
    arrival: Arrival | None = None,
    repetition: int = 0,
) -> Played:
    """Play sessions once with the load engine, and record the cell.

    Args:
        recording: Where the cell, its end and its samples go.
        server: The server to load.
        cell: Id of the cell.
        sessions: How many.
        workload: Shape of their episodes; the server's tools take as long as it says already.
        part: What this is, for the progress.
        arrival: Lets sessions arrive by themselves. Without it all of them are held open at the same time.
        repetition: Tells this trial from others of the same kind.

    Raises:
        WorkerError: The load generator broke down.
    """
    recording.begin(
        cell,
        server=server,
        workload=workload,
        engine="locust",
        sessions=sessions,
        repetition=repetition,
        arrival=arrival,
    )
    before, server_before = Pressure.read(), await server.read()
    own = await recording.own_cpu_s(server)
    outcome: LoadResult | None = None
    server_after: protocol.Observed | None = None
    death: str | None = None
    try:
        async with server.watch():
            outcome = await _generate(
                recording, server, sessions=sessions, workload=workload, arrival=arrival, part=part
            )
        recording.writer.write_samples(cell, *outcome.samples)
        server_after = await server.settle(server_before.open_sessions, recording.plan.settle_s)
    except LoadFailed as error:
        # Without a server there is nothing to load; with one, it is the generator that broke.
        if not server.worker.has_died:
            raise WorkerError(f"the load generator failed: {error}") from error
        death = str(error)
    except WorkerDied as error:
        death = str(error)
    after = Pressure.read()
    generator = None if outcome is None else _generator(workload, outcome)
    recording.writer.write(
        End(
            cell=cell,
            status=recording.status if death is None else "failed",
            reason=recording.reason if death is None else death,
            pressure_before=before,
            pressure_after=after,
            own_cpu_s=max(0.0, await recording.own_cpu_s(server) - own),
            server_before=reading(server_before),
            server_peak=server.peak,
            server_after=reading(server_after) if server_after else None,
            generator=generator,
            peak_open=outcome.peak_open if outcome else None,
            mean_open=outcome.summary.mean_open if outcome and arrival else None,
            opened=outcome.opened if outcome else None,
            succeeded=outcome.succeeded if outcome else None,
            throughput_steps_per_s=outcome.steps_per_s() if outcome else None,
        )
    )
    table = outcome.table() if outcome else SAMPLES_SCHEMA.empty_table()
    is_open_loop = arrival is not None
    aborted: Abort | None = None
    reason = death or ""
    if death is not None:
        aborted = "server_died"
    elif outcome is not None and not is_open_loop:
        reason = _cap_in_the_way(server, sessions, outcome)
        aborted = "limit" if reason else None
    trial = Trial(
        cell=cell,
        sessions=sessions,
        succeeded=outcome.succeeded if outcome else 0,
        peak_open=outcome.peak_open if outcome else None,
        server_open=_grown(server.peak.open_sessions, server_before) if outcome else None,
        left=_grown(server_after.open_sessions, server_before) if server_after else None,
        is_held=not is_open_loop,
        wait_ns=workload.tool_ns,
        connect=population(table, Phase.CONNECT, response=is_open_loop),
        reset=population(table, Phase.RESET, response=is_open_loop),
        step=population(table, Phase.STEP, response=is_open_loop),
        generator=generator,
        errors=outcome.errors if outcome else {},
        aborted=aborted,
        abort_reason=reason,
    )
    return Played(trial, outcome, trial.left == 0)


class ClientPlayed(NamedTuple):
    """Hold what became of a cell that the framework's own client played."""

    loaded: protocol.Loaded | None
    """What it counted; None when the server died."""
    samples: pa.Table
    server_open: int
    """Most sessions open at the same time by the server's own count, without those of before."""


async def play_client(
    recording: Recording,
    server: Server,
    cell: str,
    *,
    sessions: int,
    workload: Workload,
    arrival: str | None = None,
    repetition: int = 0,
    is_checked: bool = True,
) -> ClientPlayed:
    """Play sessions with the framework's own client, all of them started at once, and record the cell.

    Args:
        recording: Where the cell, its end and its samples go.
        server: The server to load.
        cell: Id of the cell.
        sessions: How many.
        workload: Shape of their episodes; the server's tools take as long as it says already.
        arrival: What the record calls it; a closed loop when left out.
        repetition: Tells this cell from others of the same kind.
        is_checked: Whether each answer must equal the reference's.

    Raises:
        WorkerDied: The server had died before.
        WorkerError: The client broke down.
    """
    before, own, server_before = Pressure.read(), await recording.own_cpu_s(server), await server.read()
    recording.begin(
        cell,
        server=server,
        workload=workload,
        engine="client",
        sessions=sessions,
        repetition=repetition,
        arrival=arrival,
    )
    batches: list[SampleColumns] = []
    loaded = server_after = death = None
    try:
        async with server.watch():
            loaded = await recording.load(
                server,
                workload,
                batches.append,
                sessions=sessions,
                concurrency=sessions,
                is_checked=is_checked,
                timeout_s=recording.plan.patience_s,
            )
        server_after = await server.settle(server_before.open_sessions, recording.plan.settle_s)
    except WorkerDied as error:
        if recording.driver.has_died:
            raise
        death = str(error)
    finally:
        recording.writer.write_samples(cell, *batches)
    recording.writer.write(
        End(
            cell=cell,
            status=recording.status if death is None else "failed",
            reason=recording.reason if death is None else death,
            pressure_before=before,
            pressure_after=Pressure.read(),
            own_cpu_s=max(0.0, await recording.own_cpu_s(server) - own),
            server_before=reading(server_before),
            server_peak=server.peak,
            server_after=reading(server_after) if server_after else None,
            peak_open=loaded.peak_open if loaded else None,
            opened=loaded.opened if loaded else None,
            succeeded=loaded.succeeded if loaded else None,
        )
    )
    parts = [samples_table(batch) for batch in batches] or [SAMPLES_SCHEMA.empty_table()]
    samples = pa.concat_tables(parts).unify_dictionaries().combine_chunks()
    return ClientPlayed(loaded, samples, _grown(server.peak.open_sessions, server_before))


def _grown(counted: int | None, before: protocol.Observed) -> int:
    return max(0, (counted or 0) - before.open_sessions)


def _cap_in_the_way(server: Server, sessions: int, outcome: LoadResult) -> str:
    """Say which declared cap a trial met, whose failures then say nothing about the system; empty when it met none."""
    for name in _SESSION_CAPS:
        cap = server.settings.get(name)
        if isinstance(cap, int) and cap < sessions and outcome.succeeded < sessions:
            return f"the server is configured to admit {cap:,} sessions ({name}), {sessions:,} came"
    return ""


async def _generate(
    recording: Recording,
    server: Server,
    *,
    sessions: int,
    workload: Workload,
    arrival: Arrival | None,
    part: str,
) -> LoadResult:
    address = urlsplit(server.url or "")
    folder = recording.writer.folder / "load"
    episode_s = workload.turns * (workload.tool_ns + workload.think_ns) / NANOSECONDS
    arriving_s = arrival.times_s(sessions)[-1] if arrival else sessions / _SLOWEST_RAMP_PER_S
    patience_s = recording.plan.patience_s
    plan = LoadPlan(
        adapter=recording.request.stack.adapter,
        wire_module=recording.request.stack.wire,
        addresses=(address.hostname or "127.0.0.1",),
        ports=(address.port or 80,),
        sessions=sessions,
        scripts=tuple(load_script(script) for script in shorten(recording.scripts, workload.turns)),
        turns=workload.turns,
        spread_s=0.0 if arrival else workload.spread_ns / NANOSECONDS,
        think_s=workload.think_ns / NANOSECONDS,
        tool_s=workload.tool_ns / NANOSECONDS,
        arrival=arrival or CLOSED,
        connect_timeout_s=min(60.0, patience_s),
        reply_timeout_s=patience_s,
        time_limit_s=60 + 10 * episode_s + arriving_s,
        out=folder,
    )
    loop = asyncio.get_running_loop()
    stop = threading.Event()

    def on_progress(progress: LoadProgress) -> None:
        operations = 2 * progress.sessions + progress.steps_planned
        done = progress.opened + progress.failed + progress.steps + progress.ended
        news = Progress(part, done, operations, progress.stage)
        loop.call_soon_threadsafe(recording.on_progress, news)

    try:
        return await asyncio.to_thread(run_load, plan, on_progress=on_progress, stop=stop)
    finally:
        # Only matters when this task is cancelled: the thread must not outlive the benchmark.
        stop.set()
        shutil.rmtree(folder, ignore_errors=True)


def load_script(script: protocol.Script) -> Script:
    """Return a script as the load engine plays it."""
    return Script(
        task=script.task,
        seed=script.seed,
        calls=tuple(
            Call(
                name=call["name"],
                arguments=call["arguments"],
                text=seen.text,
                reward=seen.reward,
                ended=seen.ended,
            )
            for call, seen in zip(script.calls, script.expected or [], strict=True)
        ),
        # Held sessions are left after their last call, and a framework that scores them then says this.
        total=script.expected[-1].total if script.expected else None,
    )


def _generator(workload: Workload, outcome: LoadResult) -> Generator | None:
    summary = outcome.summary
    if summary.wall_s <= 0:
        return None
    # What counts is whether it kept up while the sessions played; before the barrier it only connects, as fast as it can.
    held = [share for share in summary.shares if share.held_cpu_s is not None and share.held_wall_s]
    return judge_generator(
        cpu_s=sum(share.held_cpu_s or 0.0 for share in held) if held else summary.cpu_s,
        wall_s=max(share.held_wall_s or 0.0 for share in held) if held else summary.wall_s,
        cores=max(1, summary.cores),
        loop_lag_p99_ns=summary.loop_lag_p99_ns,
        wait_ns=workload.tool_ns,
    )
