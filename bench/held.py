"""Held sessions: more and more of them open at the same time, until a criterion fails and the ceiling is bracketed."""

from __future__ import annotations

import asyncio
import resource
import shutil
import threading
import time
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

from bench import protocol
from bench.ceiling import Ask, Search, Trial, evaluate, evaluate_success_only, judge_generator
from bench.client import WorkerDied, WorkerError
from bench.load.engine import LoadFailed, LoadResult, run_load
from bench.load.plan import Call, LoadPlan, Script
from bench.load.progress import LoadProgress
from bench.machine import Pressure, preflight
from bench.progress import Progress
from bench.recording import Recording, shorten, workload_record
from bench.records import SAMPLES_SCHEMA, Ceiling, End, Generator, Note
from bench.samples import Phase
from bench.server import Server, reading, start_server
from bench.stats import population
from bench.workloads import NANOSECONDS

_SLOWEST_RAMP_PER_S = 50


async def search_ceiling(recording: Recording) -> None:
    """Search the largest number of sessions that can be held, and record every trial on the way.

    Does nothing for frameworks that run in process. A server that dies is a finding; the search goes on with a new one.

    Raises:
        WorkerError: The load generator broke down, or a server cannot be started.
    """
    if recording.request.stack.facts.kind != "server":
        return
    plan = recording.plan
    for obstacle in preflight(plan.cap):
        recording.writer.write(Note(text=obstacle.sentence))
    search = Search(
        start=min(plan.start, plan.cap),
        cap=plan.cap,
        tolerance=plan.tolerance,
        trials=plan.trials,
        confirmations=plan.confirmations,
    )
    trials: list[Trial] = []
    settings: dict[str, Any] = {}
    try:
        async with AsyncExitStack() as running:
            server: Server | None = None
            while (ask := search.ask) is not None:
                if server is None or ask.fresh_server:
                    await running.aclose()
                    server = await running.enter_async_context(
                        start_server(
                            recording.request.stack,
                            recording.request.environment,
                            client=recording.driver,
                            workload=plan.held,
                        )
                    )
                    settings = server.settings
                trial, is_clean = await hold(recording, ask, server, len(trials))
                trials.append(trial)
                verdict = evaluate(trial)
                recording.writer.write(verdict)
                search.tell(verdict)
                if not is_clean:
                    # The next trial must not pay for what this one left behind.
                    server = None
    finally:
        if trials:
            _write_ceilings(recording, search, trials, settings)


async def hold(recording: Recording, ask: Ask, server: Server, number: int) -> tuple[Trial, bool]:
    """Hold sessions once; return the trial, and whether the server lives and has freed everything.

    Args:
        recording: Where the cell, its end and its samples go.
        ask: How many sessions, and for which stage of a search.
        server: The server to load.
        number: Tells this trial from the others of the run.

    Raises:
        WorkerError: The load generator broke down.
    """
    workload = recording.plan.held
    cell = f"held-{ask.sessions:05d}-{number:02d}"
    recording.begin(
        cell, server=server, workload=workload, engine="locust", sessions=ask.sessions, repetition=number
    )
    before, server_before = Pressure.read(), await server.read()
    own = _own_cpu_s(server_before)
    outcome: LoadResult | None = None
    server_after: protocol.Observed | None = None
    death: str | None = None
    try:
        async with server.watch():
            outcome = await _generate(recording, ask, server)
        recording.writer.write_samples(cell, *outcome.samples)
        server_after = await server.settle(server_before.open_sessions)
    except LoadFailed as error:
        # Without a server there is nothing to load; with one, it is the generator that broke.
        if not server.worker.has_died:
            raise WorkerError(f"the load generator failed: {error}") from error
        death = str(error)
    except WorkerDied as error:
        death = str(error)
    after = Pressure.read()
    generator = None if outcome is None else _generator(recording, outcome)
    if outcome is not None and server_after is not None:
        recording.note_pressure(before, after, _own_cpu_s(server_after) - own)
    recording.writer.write(
        End(
            cell=cell,
            status=recording.status if death is None else "failed",
            reason=recording.reason if death is None else death,
            pressure_before=before,
            pressure_after=after,
            server_before=reading(server_before),
            server_peak=server.peak,
            server_after=reading(server_after) if server_after else None,
            generator=generator,
            peak_open=outcome.peak_open if outcome else None,
            opened=outcome.opened if outcome else None,
            succeeded=outcome.succeeded if outcome else None,
            throughput_steps_per_s=outcome.steps_per_s() if outcome else None,
        )
    )
    table = outcome.table() if outcome else SAMPLES_SCHEMA.empty_table()
    is_clean = server_after is not None and server_after.open_sessions <= server_before.open_sessions
    trial = Trial(
        cell=cell,
        sessions=ask.sessions,
        succeeded=outcome.succeeded if outcome else 0,
        peak_open=outcome.peak_open if outcome else None,
        wait_ns=workload.tool_ns,
        connect=population(table, Phase.CONNECT),
        reset=population(table, Phase.RESET),
        step=population(table, Phase.STEP),
        generator=generator,
        aborted=None if death is None else "server_died",
        abort_reason=death or "",
        errors=outcome.errors if outcome else {},
    )
    return trial, is_clean


def _own_cpu_s(server: protocol.Observed) -> float:
    # The generator has ended by the time this is asked, so it is among the children that were waited for.
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime + server.cpu_ns / NANOSECONDS


async def _generate(recording: Recording, ask: Ask, server: Server) -> LoadResult:
    workload = recording.plan.held
    address = urlsplit(server.url or "")
    folder = recording.writer.folder / "load"
    episode_s = workload.turns * (workload.tool_ns + workload.think_ns) / NANOSECONDS
    plan = LoadPlan(
        adapter=recording.request.stack.adapter,
        addresses=(address.hostname or "127.0.0.1",),
        ports=(address.port or 80,),
        sessions=ask.sessions,
        scripts=tuple(_load_script(script) for script in shorten(recording.scripts, workload.turns)),
        turns=workload.turns,
        spread_s=workload.spread_ns / NANOSECONDS,
        think_s=workload.think_ns / NANOSECONDS,
        time_limit_s=60 + 10 * episode_s + ask.sessions / _SLOWEST_RAMP_PER_S,
        out=folder,
    )
    loop = asyncio.get_running_loop()
    stop = threading.Event()

    def on_progress(progress: LoadProgress) -> None:
        operations = 2 * progress.sessions + progress.steps_planned
        done = progress.opened + progress.failed + progress.steps + progress.ended
        news = Progress(f"holding {ask.sessions:,} sessions ({ask.stage})", done, operations, progress.stage)
        loop.call_soon_threadsafe(recording.on_progress, news)

    try:
        return await asyncio.to_thread(run_load, plan, on_progress=on_progress, stop=stop)
    finally:
        # Only matters when this task is cancelled: the thread must not outlive the benchmark.
        stop.set()
        shutil.rmtree(folder, ignore_errors=True)


def _load_script(script: protocol.Script) -> Script:
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


def _generator(recording: Recording, outcome: LoadResult) -> Generator | None:
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
        wait_ns=recording.plan.held.tool_ns,
    )


def _write_ceilings(
    recording: Recording, search: Search, trials: list[Trial], settings: dict[str, Any]
) -> None:
    bracket = search.bracket()
    common: dict[str, Any] = {
        "adapter": recording.request.stack.adapter,
        "subject": "compiled",
        "workload": workload_record(recording.plan.held),
        "configured_caps": {
            key: value for key, value in settings.items() if key.startswith("max_") or key == "backlog"
        },
    }
    recording.writer.write(
        Ceiling(
            criterion="slo",
            lower=bracket.lower,
            upper=bracket.upper,
            stopped_by=bracket.stopped_by,
            censored=bracket.censored,
            confirmed=bracket.confirmed,
            trials=bracket.trials,
            **common,
        )
    )
    by_sessions: dict[int, list[Trial]] = {}
    for trial in trials:
        by_sessions.setdefault(trial.sessions, []).append(trial)
    passed = {sessions: evaluate_success_only(group).passed for sessions, group in by_sessions.items()}
    upper = min((sessions for sessions, is_passed in passed.items() if not is_passed), default=None)
    below = [
        sessions
        for sessions, is_passed in passed.items()
        if is_passed and (upper is None or sessions < upper)
    ]
    unfailing = "limit" if search.ask is None else "interrupted"
    recording.writer.write(
        Ceiling(
            criterion="success_only",
            lower=max(below, default=0),
            upper=upper,
            stopped_by="success" if upper is not None else unfailing,
            censored=upper is None,
            trials=len(trials),
            **common,
        )
    )
