"""The thread of a process that talks to all of its sandboxes.

A framework may run its tools in threads and event loops of its own, one after another. A sandbox outlives them, so its
socket belongs to none of them: it is served by one loop that lives as long as the process.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from canonical.sandbox.local.cgroups import Cgroups, NoCgroupsError
from canonical.sandbox.protocol import SandboxGoneError

ResultT = TypeVar("ResultT")


class Live(Protocol):
    """Be something that must end with the process."""

    def end_now(self) -> None:
        """End it, from any thread."""

    def forget(self) -> None:
        """Let go of its descriptors, in a copy of the process to which it does not belong."""


class Hub:
    """Run coroutines on the process's own loop, and hold what is alive on it."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.live: set[Live] = set()
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.loop = asyncio.SelectorEventLoop()
        # Twice the cores keeps them busy; more would only make every command slower than its clock allows.
        self.commands = asyncio.Semaphore(2 * cores)
        self.starts = asyncio.Semaphore(2 * cores)
        # The kernel ends a sandbox together with the thread that started it, so that thread must live on.
        self.starter = ThreadPoolExecutor(1, thread_name_prefix="sandbox-starter")
        self.cgroups: Cgroups | None = None
        self.no_cgroups = ""
        try:
            self.cgroups = Cgroups()
        except NoCgroupsError as error:
            self.no_cgroups = str(error)
        except OSError as error:
            self.no_cgroups = f"control groups cannot be found: {error}"
        self._thread = threading.Thread(target=self._run, name="sandboxes", daemon=True)
        self._thread.start()
        atexit.register(self._end)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    async def run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine on the loop of the process, from any other loop.

        Raises:
            SandboxGoneError: This is a copy of the process, made after the sandbox was opened.
        """
        if os.getpid() != self.pid:
            work.close()
            raise SandboxGoneError(
                "the sandbox was opened by another process, which this one was copied from"
            )
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    def forget(self) -> None:
        """Close every descriptor that was copied into this process."""
        atexit.unregister(self._end)
        for live in self.live:
            live.forget()
        if self.cgroups is not None:
            self.cgroups.forget()

    def _end(self) -> None:
        for live in list(self.live):
            live.end_now()
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(1)
        self.starter.shutdown(wait=False)
        if not self._thread.is_alive():
            self.loop.close()
        if self.cgroups is not None:
            self.cgroups.end()


_lock = threading.Lock()
_hub: Hub | None = None


def hub() -> Hub:
    """Return the hub of this process; the first call makes it."""
    global _hub  # noqa: PLW0603 - one per process is the point
    with _lock:
        if _hub is None:
            _hub = Hub()
        return _hub


def _after_fork() -> None:
    global _hub, _lock  # noqa: PLW0603
    _lock = threading.Lock()
    inherited, _hub = _hub, None
    if inherited is not None:
        inherited.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
