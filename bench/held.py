"""Held sessions: more and more of them open at the same time, until a criterion fails and the ceiling is bracketed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

from bench.ceiling import Ask, Search, Trial, evaluate, evaluate_success_only
from bench.client import WorkerDied
from bench.machine import preflight
from bench.recording import Recording, workload_record
from bench.records import Ceiling, Note
from bench.server import Server, start_server
from bench.trials import play_trial

Prelude: TypeAlias = Callable[[Recording, Server], Awaitable[object]]
"""What is done with a server before its ceiling is searched."""


async def search_ceiling(recording: Recording, *preludes: Prelude) -> None:
    """Search the largest number of sessions that can be held, and record every trial on the way.

    Does nothing for frameworks that run in process. A server that dies is a finding; the search goes on with a new one.

    Args:
        recording: Where everything goes.
        preludes: Done with the first server, before the search begins in it.

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
    preluded = False
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
                if not preluded:
                    preluded = True
                    for prelude in preludes:
                        if not server.worker.has_died:
                            await prelude(recording, server)
                    if not await _is_clean(server):
                        server = None
                        continue
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


async def _is_clean(server: Server) -> bool:
    try:
        return (await server.read()).open_sessions == 0
    except WorkerDied:
        return False


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
    played = await play_trial(
        recording,
        server,
        f"held-{ask.sessions:05d}-{number:02d}",
        sessions=ask.sessions,
        workload=recording.plan.held,
        part=f"holding {ask.sessions:,} sessions ({ask.stage})",
        repetition=number,
    )
    return played.trial, played.is_clean


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
