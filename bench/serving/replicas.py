"""Replicas: single-worker server processes that are started side by side, watched, and started anew when they die."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from bench.client import Worker, WorkerError, start_worker
from bench.serving.plan import Replica
from bench.session import serve
from bench.stacks import Stack
from bench.workloads import NANOSECONDS, Workload

MOST_DEATHS, WITHIN_S = 5, 60.0
"""A replica that dies more often than so is given up: it would only die again."""
_PAUSE_S = 0.25

OnEvent = Callable[[str], None]


class ReplicaGivenUp(WorkerError):  # noqa: N818 - it is what happened
    """Report a replica that keeps dying."""


@dataclass(slots=True)
class ReplicaState:
    """Hold what is known of one replica.

    Attributes:
        name: Its name.
        port: Where it listens, and will listen again after it was started anew.
        worker: Its process; None while there is none.
        settings: The server's settings.
        deaths: How often it has died.
        is_renewed: Whether it is ended on purpose at this moment.
        lost_sessions: How many sessions it held, the last time that it was asked, when it died; summed up.
        open_sessions: How many it held the last time that it was asked.
    """

    name: str
    port: int = 0
    worker: Worker | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    deaths: int = 0
    is_renewed: bool = False
    lost_sessions: int = 0
    open_sessions: int = 0


class Replicas:
    """Keep the server processes of a fleet alive. Create it with `start_replicas`."""

    def __init__(
        self,
        stack: Stack,
        environment: str,
        count: int,
        *,
        host: str,
        workload: Workload | None,
        first_port: int,
        session_ttl_s: float | None,
        on_event: OnEvent,
    ) -> None:
        self.states = [
            ReplicaState(f"r{number}", first_port + number - 1 if first_port else 0)
            for number in range(1, count + 1)
        ]
        self._stack, self._environment, self._host, self._workload = stack, environment, host, workload
        self._session_ttl_s = session_ttl_s
        self._on_event = on_event
        self._ready = [asyncio.Event() for _ in self.states]

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """Where they listen."""
        return tuple(Replica(name=state.name, host=self._host, port=state.port) for state in self.states)

    async def open_sessions(self) -> dict[str, int]:
        """Ask every living replica how many sessions it holds."""
        found = {}
        for state in self.states:
            if state.worker is not None:
                with contextlib.suppress(WorkerError):
                    state.open_sessions = (await state.worker.observe()).open_sessions
                    found[state.name] = state.open_sessions
        return found

    async def cpu_s(self) -> float:
        """Return the CPU seconds that the living replicas have used."""
        used = 0.0
        for state in self.states:
            if state.worker is not None:
                with contextlib.suppress(WorkerError):
                    used += (await state.worker.observe()).cpu_ns / NANOSECONDS
        return used

    async def renew(self, state: ReplicaState) -> int:
        """End a replica and start it anew, and return how many sessions it still held.

        Raises:
            asyncio.CancelledError: Whoever waits for it is stopped.
        """
        if state.worker is None:
            return 0
        with contextlib.suppress(WorkerError):
            state.open_sessions = (await state.worker.observe()).open_sessions
        held, state.is_renewed = state.open_sessions, True
        # In order: a server that is told to stop says goodbye to those that are still there.
        with contextlib.suppress(ProcessLookupError):
            os.kill(state.worker.pid, signal.SIGTERM)
        while state.is_renewed:  # noqa: ASYNC110 - it may die and start several times in between
            await asyncio.sleep(_PAUSE_S / 2)
        return held

    async def all_ready(self) -> None:
        """Wait until every replica serves."""
        for event in self._ready:
            await event.wait()

    async def keep(self, index: int) -> None:
        """Keep one replica alive for ever.

        Raises:
            ReplicaGivenUp: It keeps dying.
            WorkerError: It did not start the first time.
        """
        state = self.states[index]
        died: deque[float] = deque(maxlen=MOST_DEATHS)
        while True:
            try:
                await self._live(index, state)
            except WorkerError as error:
                is_first = not self._ready[index].is_set() and not state.deaths
                state.worker = None
                self._ready[index].clear()
                if is_first:
                    raise
                state.lost_sessions += state.open_sessions
                if state.is_renewed:
                    state.open_sessions = 0
                    continue
                state.deaths += 1
                self._on_event(
                    f"{state.name} died with {state.open_sessions} sessions, as last counted, and is started anew: {error}"
                )
                state.open_sessions = 0
                died.append(time.monotonic())
                if len(died) == MOST_DEATHS and died[-1] - died[0] < WITHIN_S:
                    raise ReplicaGivenUp(
                        f"{state.name} died {MOST_DEATHS} times within {WITHIN_S:g} s; the last time: {error}"
                    ) from error
                await asyncio.sleep(_PAUSE_S)

    async def _live(self, index: int, state: ReplicaState) -> None:
        label = f"the {self._stack.label} server {state.name}"
        async with start_worker(self._stack.python, self._stack.worker, label=label) as worker:
            serving = await serve(
                worker, self._environment, workload=self._workload, host=self._host, port=state.port,
                session_ttl_s=self._session_ttl_s,
            )  # fmt: skip
            state.port = urlsplit(serving.url or "").port or state.port
            state.settings = serving.settings
            state.worker = worker
            self._ready[index].set()
            if state.deaths or state.is_renewed:
                self._on_event(f"{state.name} serves again")
            state.is_renewed = False
            await worker.wait()


@asynccontextmanager
async def start_replicas(
    stack: Stack,
    environment: str,
    count: int,
    *,
    host: str = "127.0.0.1",
    workload: Workload | None = None,
    first_port: int = 0,
    session_ttl_s: float | None = None,
    on_event: OnEvent = lambda _: None,
) -> AsyncIterator[tuple[Replicas, asyncio.Task[None]]]:
    """Start replicas and keep them alive; leaving the context ends them.

    Args:
        stack: The framework release.
        environment: Name or path of the environment.
        count: How many.
        host: Where they listen.
        workload: How long the environment's tools take.
        first_port: The port of the first, the others follow; 0 picks free ones. A replica that is started anew has the
            port that it had.
        session_ttl_s: After how many idle seconds a session is freed, where that can be set.
        on_event: Hears what happens to them, in sentences.

    Yields:
        The replicas, all of which serve, and the task that ends with an error when one has to be given up.

    Raises:
        WorkerError: One does not start.
    """
    replicas = Replicas(
        stack,
        environment,
        count,
        host=host,
        workload=workload,
        first_port=first_port,
        session_ttl_s=session_ttl_s,
        on_event=on_event,
    )
    keeping = asyncio.create_task(_keep_all(replicas))
    try:
        ready = asyncio.create_task(replicas.all_ready())
        await asyncio.wait({ready, keeping}, return_when=asyncio.FIRST_COMPLETED)
        if keeping.done():
            ready.cancel()
            await keeping
        yield replicas, keeping
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def _keep_all(replicas: Replicas) -> None:
    async with asyncio.TaskGroup() as group:
        for index in range(len(replicas.states)):
            group.create_task(replicas.keep(index))
