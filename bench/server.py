"""A served subject: a fresh server process, and the readings taken from it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from bench import protocol
from bench.client import Worker, WorkerError, start_worker
from bench.records import ServerReading
from bench.session import serve
from bench.stacks import Stack
from bench.workloads import Workload
from canonical.server_settings import ServerSettings

_OBSERVE_EVERY_S = 0.5
SETTLE_S = 15.0


@dataclass(slots=True)
class Server:
    """Hold a running server.

    Attributes:
        worker: The process that serves.
        url: Where; None for a framework that runs in process.
        settings: The settings in force, for the record.
        peak: The largest readings since `watch` began.
    """

    worker: Worker
    url: str | None
    settings: dict[str, Any]
    peak: ServerReading = field(default_factory=ServerReading)

    async def read(self) -> protocol.Observed:
        """Take a reading and let it count for the peak.

        Raises:
            WorkerDied: The server has died.
        """
        seen = await self.worker.observe()
        names = ("rss_bytes", "fds", "threads", "open_sessions", "loop_lag_p99_ns", "cpu_ns")
        largest = {name: max(getattr(self.peak, name) or 0, getattr(seen, name) or 0) for name in names}
        # Sessions and their memory come and go between two readings; the server's own ticks see them.
        largest["open_sessions"] = max(largest["open_sessions"], seen.most_sessions or 0)
        largest["rss_bytes"] = max(largest["rss_bytes"], seen.most_rss_bytes or 0)
        self.peak = ServerReading(**largest)
        return seen

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[None]:
        """Take readings twice a second as long as the context lasts; the peak starts anew."""
        self.peak = ServerReading()
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self) -> None:
        # A server that dies is noticed by whoever uses it; here it only ends the watch.
        with contextlib.suppress(WorkerError):
            while True:
                await self.read()
                await asyncio.sleep(_OBSERVE_EVERY_S)

    async def settle(self, open_before: int, patience_s: float = SETTLE_S) -> protocol.Observed:
        """Wait until the server has freed what a trial held, and return the reading after that.

        Args:
            open_before: Sessions that were open before the trial.
            patience_s: After how many seconds it is read all the same.

        Raises:
            WorkerDied: The server has died.
        """
        patience = time.monotonic() + patience_s
        while True:
            seen = await self.read()
            if seen.open_sessions <= open_before or time.monotonic() > patience:
                return seen
            await asyncio.sleep(_OBSERVE_EVERY_S / 2)


def reading(seen: protocol.Observed) -> ServerReading:
    """Return an observation as it goes into a record."""
    return ServerReading(
        rss_bytes=seen.rss_bytes,
        fds=seen.fds,
        threads=seen.threads,
        open_sessions=seen.open_sessions,
        loop_lag_p99_ns=seen.loop_lag_p99_ns,
        cpu_ns=seen.cpu_ns,
    )


@asynccontextmanager
async def start_server(
    stack: Stack,
    environment: str,
    *,
    client: Worker,
    module: str | None = None,
    workload: Workload | None = None,
    settings: ServerSettings | None = None,
) -> AsyncIterator[Server]:
    """Start a server process for an environment; leaving the context ends it.

    For a framework that runs in process, its sessions live in the client, so the client itself is what is observed.

    Args:
        stack: The framework release.
        environment: Name or path of the environment.
        client: The worker that will play.
        module: Another module with an `ADAPTER` than the stack's own adapter.
        workload: How long its tools take.
        settings: What a server is to have that differs from its defaults.

    Raises:
        WorkerError: It does not start.
    """
    if stack.facts.kind == "in_process":
        serving = await serve(client, environment, workload=workload)
        yield Server(client, None, serving.settings)
        return
    async with start_worker(
        stack.python, module or stack.worker, label=f"the {stack.label} server"
    ) as worker:
        serving = await serve(worker, environment, workload=workload, settings=settings)
        yield Server(worker, serving.url, serving.settings)
