"""A fleet: replicas behind a proxy, as one thing that can be asked, drained and stopped."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.serving.plan import DEFAULT_TARGET, HEALTH_EVERY_S, FleetPlan, Replica, read_affinity
from bench.serving.proxies import ProxyError, load_proxy
from bench.serving.proxies.protocol import Proxy, Variant
from bench.serving.replicas import OnEvent, Replicas, start_replicas
from bench.serving.running import RunningProxy, start_proxy
from bench.stacks import Stack
from bench.workloads import Workload

_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class FleetRequest:
    """Say what a fleet shall be.

    Attributes:
        stack: The framework release.
        environment: Name or path of the environment.
        replicas: How many server processes.
        proxy: The proxy before them.
        host: Where the proxy listens.
        port: On which port; 0 picks a free one.
        target_sessions: Sessions that are to be held at the same time.
        workload: How long the environment's tools take.
        variant: The derived limits, or the proxy's own defaults.
        session_ttl_s: After how many idle seconds a server frees a session, where that can be set; its own value when left out.
    """

    stack: Stack
    environment: str
    replicas: int
    proxy: Proxy
    host: str = "127.0.0.1"
    port: int = 0
    target_sessions: int = DEFAULT_TARGET
    workload: Workload | None = None
    variant: Variant = "derived"
    session_ttl_s: float | None = None


@dataclass(slots=True)
class Fleet:
    """Be a running fleet. Create it with `serve_fleet`.

    Attributes:
        plan: What stands behind which address, and every limit.
        replicas: The server processes.
        proxy: The proxy.
        failure: Ends with an error when a part of the fleet has to be given up.
    """

    plan: FleetPlan
    replicas: Replicas
    proxy: RunningProxy
    failure: asyncio.Task[None]

    @property
    def url(self) -> str:
        """Where clients find it."""
        host = self.plan.host
        return f"http://[{host}]:{self.plan.port}" if ":" in host else f"http://{host}:{self.plan.port}"

    async def drain(self, limit_s: float) -> dict[str, int]:
        """Refuse new sessions, wait until the present ones are over, and return what is left after the limit.

        Args:
            limit_s: How long to wait, in seconds.

        Returns:
            Sessions that are still open, by replica; empty when all have ended.
        """
        await self.proxy.drain()
        return await wait_until_over(self.replicas.open_sessions, limit_s)

    async def renew(self, limit_s: float) -> dict[str, int]:
        """Start every replica anew, one after the other, each when its sessions have ended.

        Where a header binds sessions nobody can keep new ones away from one replica, so none is waited for.

        Args:
            limit_s: How long to wait for the sessions of one replica, in seconds.

        Returns:
            Sessions that were lost, by replica.
        """
        lost = {}
        for state in self.replicas.states:
            if self.plan.affinity != "header":
                await self.proxy.rest(state.name)
                patience = time.monotonic() + limit_s
                while time.monotonic() < patience:
                    if not (await self.replicas.open_sessions()).get(state.name):
                        break
                    await asyncio.sleep(_POLL_S)
            try:
                lost[state.name] = await self.replicas.renew(state)
            finally:
                if self.plan.affinity != "header":
                    await self.proxy.rest()
            # Until health checks have seen it: the next one is not to rest before.
            await asyncio.sleep(2 * HEALTH_EVERY_S)
        return {name: count for name, count in lost.items() if count}


async def wait_until_over(count: Callable[[], Awaitable[dict[str, int]]], limit_s: float) -> dict[str, int]:
    """Wait until no sessions are open any more, and return what is left after the limit.

    Args:
        count: Tells how many sessions each server process holds.
        limit_s: How long to wait, in seconds.
    """
    patience = time.monotonic() + limit_s
    while True:
        left = {name: held for name, held in (await count()).items() if held}
        if not left or time.monotonic() >= patience:
            return left
        await asyncio.sleep(min(_POLL_S, max(0.0, patience - time.monotonic())))


def plan_fleet(
    stack: Stack, replicas: tuple[Replica, ...], *, host: str, port: int, target_sessions: int
) -> FleetPlan:
    """Return the plan of a fleet on this machine.

    Raises:
        ProxyError: The adapter does not say what binds the requests of a session together.
    """
    if stack.facts.affinity is None:
        raise ProxyError(
            f"adapter.toml of {stack.adapter} has no 'affinity'; without it nobody knows which requests belong together"
        )
    affinity, header = read_affinity(stack.facts.affinity)
    return FleetPlan(
        host=host,
        port=port,
        replicas=replicas,
        affinity=affinity,
        header=header,
        health=stack.facts.health,
        target_sessions=target_sessions,
        cores=max(1, len(os.sched_getaffinity(0))),
        nofile=min(1_000_000, max(1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1])),
    )


@asynccontextmanager
async def serve_fleet(request: FleetRequest, *, on_event: OnEvent = lambda _: None) -> AsyncIterator[Fleet]:
    """Start replicas and the proxy before them; leaving the context ends all of it at once.

    Args:
        request: What it shall be.
        on_event: Hears what happens to its parts, in sentences.

    Raises:
        ProxyError: The proxy is missing, refuses its configuration or does not start.
        WorkerError: A replica does not start.
        OSError: The port is in use or not allowed.
    """
    port = request.port or free_port(request.host)
    # Sockets have short names only, so the folder is not below whatever TMPDIR says.
    async with AsyncExitStack() as running:
        folder = Path(
            running.enter_context(tempfile.TemporaryDirectory(prefix="rosetta-", dir=_short_folder()))
        )
        check_port(request.host, port)
        replicas, keeping_replicas = await running.enter_async_context(
            start_replicas(
                request.stack,
                request.environment,
                request.replicas,
                workload=request.workload,
                session_ttl_s=request.session_ttl_s,
                on_event=on_event,
            )
        )
        plan = plan_fleet(
            request.stack,
            replicas.replicas,
            host=request.host,
            port=port,
            target_sessions=request.target_sessions,
        )
        for sentence in plan.shortages():
            on_event(sentence)
        proxy, keeping_proxy = await running.enter_async_context(
            start_proxy(request.proxy, plan, folder, variant=request.variant, on_event=on_event)
        )
        failure = asyncio.create_task(_first_failure(keeping_replicas, keeping_proxy))
        try:
            yield Fleet(plan, replicas, proxy, failure)
        finally:
            failure.cancel()
            await asyncio.gather(failure, return_exceptions=True)


async def _first_failure(*tasks: asyncio.Task[None]) -> None:
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        await task


def free_port(host: str) -> int:
    """Return a port that nobody uses at this moment."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def check_port(host: str, port: int) -> None:
    """Make sure that a port can be had: proxies share ports, and would share one with a stranger without a word.

    Raises:
        OSError: Somebody has it, or it is not allowed.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise OSError(
                error.errno,
                f"cannot serve on {host}, port {port}: {reason}; choose another port, or 0 for a free one",
            ) from error


def _short_folder() -> str | None:
    return "/tmp" if Path("/tmp").is_dir() else None  # noqa: S108 - the folder inside it is made safely


__all__ = ["Fleet", "FleetRequest", "check_port", "free_port", "load_proxy", "plan_fleet", "serve_fleet"]
