"""The concurrency probe: how many steps a server carries out at the same time, before anybody asks how many it holds.

A tool that blocks its thread takes a place in whatever executor the framework runs it in. With more of them at a time
than there are places, the rest waits for a second round, and every latency under load says more about the executor than
about the framework. So the width is named first: 1, 2, 4, ... steps are sent at the same time, in sessions that are
open already, until some of them come in the second round; those of the first round are the width.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

from bench.client import WorkerError
from bench.progress import Progress
from bench.recording import Recording, shorten
from bench.records import Note, Probe
from bench.server import Server, start_server
from bench.session import WorkerSession, connect_session
from bench.workloads import NANOSECONDS, Workload
from canonical.adapter import SessionError
from canonical.transcript import action_from_json

_FIRST_ROUND = 1.5
"""In how many times its own duration a step must be done to have been in the first round."""
_DEFAULT_NS = NANOSECONDS


async def probe_width(recording: Recording) -> Probe | None:
    """Look for the width of the executor with tools that block their thread, and record it.

    Does nothing for frameworks that run in process. A framework that fails under so few steps is a finding, too.

    Returns:
        What was recorded, or None.

    Raises:
        WorkerError: The client or the server cannot be started, or broke down.
    """
    request = recording.request
    if request.stack.facts.kind != "server":
        return None
    tool_ns = recording.plan.held.tool_ns or _DEFAULT_NS
    workload = Workload(turns=1, tool_ns=tool_ns, tool_kind="sync")
    points: list[tuple[int, int]] = []
    async with start_server(
        request.stack, request.environment, client=recording.driver, workload=workload
    ) as server:
        steps = 1
        while True:
            recording.on_progress(
                Progress("width of the executor", steps, recording.plan.probe, "steps at once")
            )
            try:
                points.append((steps, await _first_round(recording, server, steps, tool_ns)))
            except SessionError as error:
                recording.writer.write(
                    Note(text=f"The concurrency probe ended at {steps} steps at the same time: {error}")
                )
                break
            if points[-1][1] < steps or steps >= recording.plan.probe:
                break
            steps = min(2 * steps, recording.plan.probe)
    if not points:
        return None
    most, done = points[-1]
    found = Probe(
        tool_kind="sync",
        tool_ns=tool_ns,
        points=tuple(points),
        # No step at all in time: it is the machine that is slow, and no width is told.
        width=done if 0 < done < most else None,
        most=most,
    )
    recording.writer.write(found)
    return found


async def _first_round(recording: Recording, server: Server, steps: int, tool_ns: int) -> int:
    """Send so many steps at the same time; return how many were done before a second round could be."""
    scripts = shorten(recording.scripts, 1)
    environment = recording.request.environment
    async with AsyncExitStack() as held:
        sessions: list[WorkerSession] = []
        for number in range(steps):
            session = await held.enter_async_context(
                connect_session(recording.driver, environment, url=server.url)
            )
            script = scripts[number % len(scripts)]
            await session.open(script.task, script.seed)
            sessions.append(session)

        async def step(number: int) -> int:
            call = scripts[number % len(scripts)].calls[0]
            start = time.perf_counter_ns()
            await sessions[number].step(action_from_json(call))
            return time.perf_counter_ns() - start

        tasks = [asyncio.create_task(step(number)) for number in range(steps)]
        try:
            taken = await asyncio.gather(*tasks)
        except (SessionError, WorkerError):
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
    return sum(ns < _FIRST_ROUND * tool_ns for ns in taken)
