"""Host: serve an environment with the framework's own server, and report what the process uses."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import itertools
import os
import resource
import threading
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import protocol
from bench.worker.compiled import CompiledEnvironments
from canonical.adapter import Adapter, Endpoint, SessionTtl
from canonical.content import JSON
from canonical.server_settings import ServerSettings, SettableServer

GC_THRESHOLDS = (700, 10, 10)
"""Thresholds of the garbage collector of a process that serves; Python's own."""

_TICK_S = 0.01
_WEIGH_EVERY = 5
"""Ticks from one reading of the memory to the next: often enough that what short cells need at most is seen."""


class Host:
    """Serve environments and observe the process that does it."""

    def __init__(self, adapter: Adapter[Any], compiled: CompiledEnvironments) -> None:
        self._adapter = adapter
        self._compiled = compiled
        self._endpoints: list[Endpoint] = []
        self._ticking: asyncio.Task[None] | None = None
        self._lags: list[int] = []
        self._most_sessions = 0
        self._most_rss = 0

    async def serve(self, request: protocol.Serve, cleanup: AsyncExitStack) -> Endpoint:
        """Start serving; the server stops when the worker does.

        Raises:
            OSError: The port is in use or not allowed.
        """
        raise_file_limit()
        compiled = self._compiled.get(request.environment, request.workload)
        adapter = self._adapter
        if request.session_ttl_s is not None and isinstance(adapter, SessionTtl):
            adapter = adapter.with_session_ttl(request.session_ttl_s)
        if request.settings is not None and isinstance(adapter, SettableServer):
            adapter = adapter.with_settings(request.settings)
        serving = adapter.serve(compiled, host=request.host, port=request.port)
        endpoint = await cleanup.enter_async_context(serving)
        self._endpoints.append(endpoint)
        if self._ticking is None:
            self._ticking = asyncio.create_task(self._tick())
            cleanup.callback(self._ticking.cancel)
        collector = _set_collector(request.settings or ServerSettings())
        return replace(endpoint, settings={**endpoint.settings, **collector})

    def shut(self) -> None:
        """Let no new session begin in what is served."""
        for endpoint in self._endpoints:
            endpoint.shut()

    async def _tick(self) -> None:
        for number in itertools.count():
            before = time.perf_counter_ns()
            await asyncio.sleep(_TICK_S)
            if number % _WEIGH_EVERY == 0:
                self._most_rss = max(self._most_rss, _rss_bytes())
            self._lags.append(max(0, time.perf_counter_ns() - before - int(_TICK_S * 1e9)))
            self._most_sessions = max(self._most_sessions, self._open_sessions())

    def _open_sessions(self) -> int:
        return sum(endpoint.open_sessions() for endpoint in self._endpoints)

    def observe(self, seq: int, *, collect: bool = False) -> protocol.Observed:
        """Report memory, CPU time, threads, descriptors, sessions and loop lag; lags and the largest count start anew.

        Args:
            seq: Number of the request.
            collect: Free what is unreachable first, and give what the allocator holds in reserve back to the system.
        """
        if collect:
            gc.collect()
            trim()
        lags, self._lags = sorted(self._lags), []
        open_sessions = self._open_sessions()
        most, self._most_sessions = max(self._most_sessions, open_sessions), open_sessions
        rss = _rss_bytes()
        most_rss, self._most_rss = max(self._most_rss, rss), rss
        return protocol.Observed(
            seq=seq,
            rss_bytes=rss,
            most_rss_bytes=most_rss,
            uss_bytes=read_uss() if collect else None,
            cpu_ns=time.process_time_ns(),
            threads=threading.active_count(),
            fds=len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0,
            open_sessions=open_sessions,
            most_sessions=most,
            loop_lag_p99_ns=lags[min(len(lags) - 1, len(lags) * 99 // 100)] if lags else None,
        )


def _set_collector(settings: ServerSettings) -> dict[str, JSON]:
    """Set the garbage collector of a process that serves; return what is in force, as it goes into a record."""
    is_frozen = settings.gc_freeze is not False
    if is_frozen:
        # What is alive now lives as long as the server; scanning it again and again is what makes many sessions slow.
        gc.collect()
        gc.freeze()
    gc.set_threshold(*(settings.gc_thresholds or GC_THRESHOLDS))
    return {"gc_freeze": is_frozen, "gc_thresholds": list(gc.get_threshold())}


def raise_file_limit() -> None:
    """Allow this process as many open files as the system lets it have without asking."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _rss_bytes() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        # Without /proc only the peak is known; it is in KiB on Linux and in bytes on macOS.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if os.uname().sysname == "Darwin" else peak * 1024
    return pages * os.sysconf("SC_PAGESIZE")


def trim() -> None:
    """Give what the allocator holds in reserve back to the system, where it can be asked to."""
    # glibc only; elsewhere readings show what the allocator keeps for later, too.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def read_uss() -> int | None:
    """Return the memory that this process shares with nobody, where the system tells it."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return 1024 * sum(
        int(line.split()[1]) for line in lines if line.startswith(("Private_Clean:", "Private_Dirty:"))
    )
