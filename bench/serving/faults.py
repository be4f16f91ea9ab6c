"""Faults under load: things that are done to a fleet while it holds sessions, and what becomes of every one of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from bench import protocol
from bench.load.engine import LoadFailed, LoadResult
from bench.machine import Pressure
from bench.progress import OnProgress, Progress
from bench.serving.caps import CapsRequest, header_of, hold, load_scripts, own_cpu_s
from bench.serving.fleet import Fleet, FleetRequest, serve_fleet, wait_until_over
from bench.serving.proxies import find_binary
from bench.serving.proxies.protocol import Proxy
from bench.serving.records import Fault, ProxyRunWriter
from bench.stacks import Stack

_OPEN_PATIENCE_S = 60.0
_SETTLE_PATIENCE_S = 180.0
_SESSION_TTL_S = 60.0
"""After how long without a request a server frees a session, where that can be set: longer than sessions here ever rest."""
_REAPING_S = 60.0
_FLEETS = 10
"""Fleets that are there at the same time, most of which only wait."""
_WHOLE_PATIENCE_S = 60.0
_POLL_S = 0.2
_FRESH = 32
_SLOW_READERS = 32
_FLOOD_FRAMES = 200
_LOAD_PROCESS = b"bench/load/locustfile.py"


class FaultNotPossible(RuntimeError):  # noqa: N818 - it is what happened
    """Report a fault that cannot be done here, and what it takes."""


@dataclass(frozen=True, slots=True)
class Deed:
    """Name a fault.

    Attributes:
        title: What is done, in words.
        do: Does it to a fleet that holds sessions.
        generators: Load generator processes that it needs at least.
        obstacle: Says why it cannot be done here, or None.
    """

    title: str
    do: Callable[[Fleet], Awaitable[None]]
    generators: int = 1
    obstacle: Callable[[], str | None] = lambda: None


async def _kill_replica(fleet: Fleet) -> None:
    worker = fleet.replicas.states[0].worker
    if worker is not None:
        os.kill(worker.pid, signal.SIGKILL)


async def _kill_proxy(fleet: Fleet) -> None:
    process = next(iter(fleet.proxy.processes.values()))
    # With its workers: they would go on serving without their master.
    os.killpg(process.pid, signal.SIGKILL)


async def _kill_generator(_fleet: Fleet) -> None:
    os.kill(max(_load_processes()), signal.SIGKILL)


async def _kill_all_clients(_fleet: Fleet) -> None:
    for pid in sorted(_load_processes(), reverse=True):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def _restart_one_by_one(fleet: Fleet) -> None:
    for state in fleet.replicas.states:
        worker, deaths = state.worker, state.deaths
        if worker is None:
            continue
        os.kill(worker.pid, signal.SIGTERM)
        patience = time.monotonic() + _WHOLE_PATIENCE_S
        while time.monotonic() < patience:
            if state.deaths > deaths and state.worker is not None:
                break
            await asyncio.sleep(_POLL_S)


async def _vanish(fleet: Fleet) -> None:
    """Drop every packet between clients and proxy, kill the clients, and let packets pass again."""
    rules = f"""
        table inet {_table(fleet)} {{
            chain out {{
                type filter hook output priority 0;
                tcp dport {fleet.plan.port} drop
                tcp sport {fleet.plan.port} drop
            }}
        }}
    """
    await _nft("-f", "-", stdin=rules)
    await _kill_all_clients(fleet)
    # Long enough that the kernel of the clients has nothing more to say about connections that nobody owns.
    await asyncio.sleep(1.0)


def _table(fleet: Fleet) -> str:
    return f"rosetta{fleet.plan.port}"


def _why_packets_cannot_be_dropped() -> str | None:
    if len(socket.if_nameindex()) > 1:
        return (
            "packets are dropped in a network namespace of its own only; run the command as root inside: "
            "unshare --net sh -c 'ip link set lo up; rosetta bench-proxy --fault half-open ...'"
        )
    if shutil.which("nft") is None:
        return "nft, which drops the packets, is not installed; get it with: apt-get install nftables"
    return None


async def _nft(*arguments: str, stdin: str = "") -> None:
    process = await asyncio.create_subprocess_exec(
        "nft", *arguments, stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate(stdin.encode())
    if process.returncode:
        raise FaultNotPossible(f"nft refuses: {said.decode(errors='replace').strip()}")


async def _read_slowly(fleet: Fleet) -> None:
    """Ask for many answers and read none of them, on connections of our own, which are then cut."""
    request = f"GET {fleet.plan.health or '/'} HTTP/1.1\r\nHost: {fleet.plan.host}\r\n\r\n".encode("ascii")
    writers = []
    for _ in range(_SLOW_READERS):
        reader, writer = await asyncio.open_connection(fleet.plan.host, fleet.plan.port, limit=1)
        # The stream stops reading at its limit; from then on answers pile up at the proxy.
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        del reader
        writer.write(request * _FLOOD_FRAMES)
        writers.append(writer)
    await asyncio.sleep(3.0)
    for writer in writers:
        writer.transport.abort()


FAULTS: Mapping[str, Deed] = {
    "replica": Deed("kill -9 of a replica", _kill_replica),
    "proxy": Deed("kill -9 of the proxy", _kill_proxy),
    "generator": Deed("kill -9 of a load generator process", _kill_generator, generators=2),
    "restart": Deed("a restart of all replicas, one after the other", _restart_one_by_one),
    "slow": Deed(f"{_SLOW_READERS} clients that ask and do not read", _read_slowly),
    "half-open": Deed(
        "clients that vanish without a word (dropped packets)",
        _vanish,
        obstacle=_why_packets_cannot_be_dropped,
    ),
}
"""What can be done, by the name that the command line takes."""


async def play_faults(
    request: CapsRequest,
    stacks: Sequence[Stack],
    faults: Sequence[str],
    *,
    on_progress: OnProgress,
    on_event: Callable[[str], None],
) -> None:
    """Do each fault to each proxy's fleet of each framework in fresh processes, and write what became of all sessions.

    One fleet is loaded at a time. While it only waits until what its clients left behind is freed, the next has its turn.

    Args:
        request: What is played; its stack is replaced by each of the stacks.
        stacks: The framework releases.
        faults: Names of faults.
        on_progress: Hears how many are done.
        on_event: Hears what happens to the fleets, in sentences.

    Raises:
        FaultNotPossible: One of them cannot be done here.
        bench.serving.proxies.ProxyError: A proxy is missing or does not start.
        bench.client.WorkerError: A replica does not start.
    """
    for proxy in request.proxies:
        find_binary(proxy)
    for name in faults:
        if (obstacle := FAULTS[name].obstacle()) is not None:
            raise FaultNotPossible(f"the fault '{name}' cannot be done here: {obstacle}")
    scripts = await load_scripts(request.environment, request.workload)
    header = header_of(request, *stacks)
    wanted = [(stack, proxy, name) for stack in stacks for proxy in request.proxies for name in faults]
    turn, places, done = asyncio.Lock(), asyncio.Semaphore(_FLEETS), 0
    with ProxyRunWriter(request.folder, header) as writer:

        async def play(stack: Stack, proxy: Proxy, name: str) -> None:
            nonlocal done
            async with places:
                found = await play_fault(
                    replace(request, stack=stack), proxy, name, scripts, on_event=on_event, turn=turn
                )
            writer.write(found)
            done += 1
            on_progress(Progress("faults", done, len(wanted), f"{stack.label}, {proxy.title}: {name}"))

        on_progress(Progress("faults", 0, len(wanted), ""))
        try:
            async with asyncio.TaskGroup() as group:
                for one in wanted:
                    group.create_task(play(*one))
        except ExceptionGroup as several:
            # All are stopped by the first that cannot go on, which is what there is to say.
            raise several.exceptions[0] from None


async def play_fault(
    request: CapsRequest,
    proxy: Proxy,
    name: str,
    scripts: Sequence[protocol.Script],
    *,
    on_event: Callable[[str], None],
    turn: asyncio.Lock | None = None,
) -> Fault:
    """Hold sessions, do one fault, and account for every session.

    Args:
        request: What is played, and under what.
        proxy: The proxy before the replicas.
        name: The fault.
        scripts: What sessions play.
        on_event: Hears what happens to the fleet, in sentences.
        turn: Held while the fleet is started or loaded.

    Raises:
        FaultNotPossible: It cannot be done here.
    """
    deed, turn = FAULTS[name], turn or asyncio.Lock()
    events: list[str] = []

    def hear(sentence: str) -> None:
        # What a process printed before it died is for whoever watches; a record tells what happened.
        events.append(sentence.splitlines()[0])
        on_event(sentence)

    fleet_request = FleetRequest(
        stack=request.stack, environment=request.environment, replicas=request.replicas, proxy=proxy,
        target_sessions=request.sessions, workload=request.workload, session_ttl_s=_SESSION_TTL_S,
    )  # fmt: skip
    async with AsyncExitStack() as running:
        async with turn:
            fleet = await running.enter_async_context(serve_fleet(fleet_request, on_event=hear))
            before, own = Pressure.read(), await own_cpu_s(fleet)
            outcome, ended_by = await _suffer(request, fleet, deed, scripts)
            pressure, used = (before, Pressure.read()), max(0.0, await own_cpu_s(fleet) - own)
        left, settled_s = await _settle(fleet)
        if name == "half-open":
            await _nft("delete", "table", "inet", _table(fleet))
        await _whole(fleet)
        # No more than the proxy's limits were made for.
        fresh_sessions = min(_FRESH, request.sessions)
        async with turn:
            fresh = await hold(
                fleet, request.stack, scripts, sessions=fresh_sessions, workload=request.workload,
                connect_timeout_s=request.connect_timeout_s,
            )  # fmt: skip
        succeeded = outcome.succeeded if outcome else 0
        lost = lost_sessions(outcome.table()) if outcome else Counter({ended_by: request.sessions})
        return Fault(
            stack=request.stack.label, proxy=proxy.name, title=proxy.title, name=deed.title,
            sessions=request.sessions, opened=outcome.opened if outcome else request.sessions,
            succeeded=succeeded, lost=dict(lost),
            unaccounted=max(0, request.sessions - succeeded - sum(lost.values())), held_after=left,
            settled_s=round(settled_s, 1), idle_limit_s=_idle_limit_s(fleet), fresh_succeeded=fresh.succeeded,
            fresh_sessions=fresh_sessions, events=tuple(events), ended_by=ended_by,
            pressure_before=pressure[0], pressure_after=pressure[1], own_cpu_s=used,
        )  # fmt: skip


async def _suffer(
    request: CapsRequest, fleet: Fleet, deed: Deed, scripts: Sequence[protocol.Script]
) -> tuple[LoadResult | None, str]:
    """Hold sessions, do the deed when all are open, and return what became of them and how the load run ended."""
    playing = asyncio.create_task(
        hold(
            fleet, request.stack, scripts, sessions=request.sessions, workload=request.workload,
            connect_timeout_s=request.connect_timeout_s, processes=max(request.processes, deed.generators),
        )
    )  # fmt: skip
    try:
        await _all_open(fleet, request.sessions, playing)
        await deed.do(fleet)
        return await _end_of(playing)
    finally:
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)


def lost_sessions(samples: pa.Table) -> Counter[str]:
    """Count sessions by the first error that each was told: what follows in the same session follows from it."""
    failed = samples.filter(pc.is_valid(samples["error"])).sort_by(
        [("session", "ascending"), ("seq", "ascending")]
    )
    first: dict[int, str] = {}
    for session, error in zip(failed["session"].to_pylist(), failed["error"].to_pylist(), strict=True):
        first.setdefault(session, error)
    return Counter(first.values())


def _idle_limit_s(fleet: Fleet) -> float | None:
    """Return after how long without a request the servers free a session, where they say so."""
    told = [state.settings.get("session_ttl_seconds") for state in fleet.replicas.states]
    return max((float(one) for one in told if isinstance(one, int | float)), default=None)


async def _all_open(fleet: Fleet, sessions: int, playing: asyncio.Task[LoadResult]) -> None:
    """Wait until the replicas hold all sessions, or none comes any more."""
    patience = time.monotonic() + _OPEN_PATIENCE_S
    while time.monotonic() < patience and not playing.done():
        if sum((await fleet.replicas.open_sessions()).values()) >= sessions:
            return
        await asyncio.sleep(_POLL_S / 2)


async def _end_of(playing: asyncio.Task[LoadResult]) -> tuple[LoadResult | None, str]:
    try:
        outcome = await playing
    except LoadFailed as error:
        return None, f"the load run failed: {str(error).splitlines()[0]}"
    how = {"plan": "every session came to its end", "time_limit": "cut at its time limit"}
    return outcome, how.get(outcome.ended_by, outcome.ended_by)


async def _settle(fleet: Fleet) -> tuple[dict[str, int], float]:
    """Wait as long as the servers may take to free what nobody uses; return what is left, and the seconds that it took."""
    begun = time.monotonic()
    patience_s = max(_SETTLE_PATIENCE_S, (_idle_limit_s(fleet) or 0.0) + _REAPING_S)
    left = await wait_until_over(fleet.replicas.open_sessions, patience_s)
    return left, time.monotonic() - begun


async def _whole(fleet: Fleet) -> None:
    patience = time.monotonic() + _WHOLE_PATIENCE_S
    while time.monotonic() < patience:
        with contextlib.suppress(OSError):
            await fleet.proxy.counters()
            if all(state.worker is not None for state in fleet.replicas.states):
                break
        await asyncio.sleep(_POLL_S)
    # As long as health checks take to notice.
    await asyncio.sleep(3.0)


def _load_processes() -> list[int]:
    """Return the load generator's processes among the descendants of this one, its master first."""
    found = []
    parents = {os.getpid()}
    for pid in sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()):
        try:
            fields = (
                Path(f"/proc/{pid}/stat")
                .read_text(encoding="ascii", errors="replace")
                .rpartition(")")[2]
                .split()
            )
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) in parents and _LOAD_PROCESS in command:
            parents.add(pid)
            found.append(pid)
    return found
