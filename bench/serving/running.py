"""A running proxy: its configuration validated by itself, one process or several that share the port, started anew when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import time
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.serving.plan import FleetPlan
from bench.serving.proxies import ProxyError, find_binary
from bench.serving.proxies.protocol import Proxy, Variant
from bench.serving.replicas import MOST_DEATHS, WITHIN_S, OnEvent
from bench.worker.host import raise_file_limit

_START_S = 15.0
_POLL_S = 0.05
_STOP_S = 5.0
_PAUSE_S = 0.25
_LOG = "proxy.log"
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class RunningProxy:
    """Be the processes of a proxy. Create it with `start_proxy`."""

    def __init__(
        self, proxy: Proxy, plan: FleetPlan, folder: Path, variant: Variant, on_event: OnEvent
    ) -> None:
        self.proxy, self.plan, self.variant = proxy, plan, variant
        self.deaths = 0
        count = plan.processes if proxy.shares_port and variant == "derived" else 1
        self.folders = [folder / f"{proxy.name}-{number}" for number in range(1, count + 1)]
        self.processes: dict[Path, asyncio.subprocess.Process] = {}
        self._binary = find_binary(proxy)
        self._on_event = on_event
        self._is_draining = False

    async def prepare(self) -> None:
        """Write the configuration, and let the proxy validate it.

        Raises:
            ProxyError: It refuses; the text holds its own words.
        """
        for folder in self.folders:
            write_configuration(self.proxy, self.plan, folder, self.variant)
            await validate(self.proxy, self._binary, folder)

    async def start(self, folder: Path) -> None:
        """Start one process and wait until it takes connections.

        Raises:
            ProxyError: It ended, or takes none.
        """
        raise_file_limit()
        with (folder / _LOG).open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self.proxy.run(self._binary, folder, self.plan, self.variant),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                # Nothing is left running, not even when this process is killed.
                preexec_fn=_end_with_parent,
            )
        self.processes[folder] = process
        patience = time.monotonic() + _START_S
        while time.monotonic() < patience:
            if process.returncode is not None:
                raise ProxyError(
                    f"{self.proxy.title} ended with exit code {process.returncode}{self._tail(folder)}"
                )
            with contextlib.suppress(OSError):
                await self.proxy.counters(folder)
                return
            await asyncio.sleep(_POLL_S)
        raise ProxyError(f"{self.proxy.title} does not answer after {_START_S:g} s{self._tail(folder)}")

    async def keep(self, folder: Path) -> None:
        """Start a process anew whenever it dies.

        Raises:
            ProxyError: It keeps dying, or does not start anew.
        """
        died: deque[float] = deque(maxlen=MOST_DEATHS)
        while True:
            code = await self.processes[folder].wait()
            # Workers that outlive their master would go on serving its port, and hear nobody any more.
            _kill_group(self.processes[folder].pid)
            self.deaths += 1
            died.append(time.monotonic())
            self._on_event(
                f"{self.proxy.title} died ({_how(code)}) and is started anew; its connections are lost"
            )
            if len(died) == MOST_DEATHS and died[-1] - died[0] < WITHIN_S:
                raise ProxyError(
                    f"{self.proxy.title} died {MOST_DEATHS} times within {WITHIN_S:g} s{self._tail(folder)}"
                )
            await asyncio.sleep(_PAUSE_S)
            _remove_sockets(folder)
            await self.start(folder)
            if self._is_draining:
                await self.proxy.drain(self.plan, self._binary, folder)

    async def drain(self) -> None:
        """Let it refuse new sessions from now on.

        Raises:
            OSError: It does not listen to this any more.
        """
        self._is_draining = True
        for folder in self.folders:
            await self.proxy.drain(self.plan, self._binary, folder)

    async def rest(self, *names: str) -> None:
        """Give new sessions to no replica that is named; all others, and all when none is, take them.

        Raises:
            OSError: It does not listen to this.
        """
        for folder in self.folders:
            await self.proxy.rest(self.plan, self._binary, folder, frozenset(names))

    async def counters(self) -> dict[str, int]:
        """Return its own statistics, summed over its processes.

        Raises:
            OSError: A process does not answer.
        """
        total: Counter[str] = Counter()
        for folder in self.folders:
            found = await self.proxy.counters(folder)
            for name, value in found.items():
                total[name] += value
        return dict(total)

    def cpu_s(self) -> float:
        """Return the CPU seconds that its living processes have used, with their workers; 0 where that is not told."""
        return sum(_cpu_s(process.pid) for process in self.processes.values() if process.returncode is None)

    def rss_bytes(self) -> int:
        """Return the resident memory of its living processes, with their workers; 0 where that is not told."""
        pages = sum(
            _pages(pid)
            for process in self.processes.values()
            if process.returncode is None
            for pid in _family(process.pid)
        )
        return pages * os.sysconf("SC_PAGESIZE")

    async def stop(self) -> None:
        """End its processes, by force where they linger."""
        for process in self.processes.values():
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                async with asyncio.timeout(_STOP_S):
                    await process.wait()
            except TimeoutError:
                pass
            finally:
                _kill_group(process.pid)
                await process.wait()

    def _tail(self, folder: Path) -> str:
        said = "\n".join(
            path.read_text(encoding="utf-8", errors="replace")
            for path in (folder / _LOG, folder / "error.log")
            if path.is_file()
        )
        lines = [line for line in said.splitlines() if line.strip()][-8:]
        return "".join(f"\n    {line}" for line in ["; its last words:", *lines]) if lines else ""


def write_configuration(proxy: Proxy, plan: FleetPlan, folder: Path, variant: Variant) -> None:
    """Write what a proxy needs into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in proxy.render(plan, folder, variant).items():
        (folder / name).write_text(text, encoding="utf-8")


async def validate(proxy: Proxy, binary: Path, folder: Path) -> None:
    """Let a proxy judge the configuration in a folder.

    Raises:
        ProxyError: It refuses; the text holds its own words.
    """
    process = await asyncio.create_subprocess_exec(
        *proxy.check(binary, folder),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    if process.returncode:
        lines = said.decode(errors="replace").strip().splitlines()[-8:]
        raise ProxyError(
            f"{proxy.title} refuses its configuration in {folder}:\n"
            + "\n".join(f"    {line}" for line in lines)
        )


@asynccontextmanager
async def start_proxy(
    proxy: Proxy,
    plan: FleetPlan,
    folder: Path,
    *,
    variant: Variant = "derived",
    on_event: OnEvent = lambda _: None,
) -> AsyncIterator[tuple[RunningProxy, asyncio.Task[None]]]:
    """Start a proxy whose configuration it has validated itself; leaving the context ends it.

    Yields:
        The proxy, which takes connections, and the task that ends with an error when it has to be given up.

    Raises:
        ProxyError: It is not installed, refuses its configuration, or does not start.
    """
    running = RunningProxy(proxy, plan, folder, variant, on_event)
    await running.prepare()
    keeping: asyncio.Task[None] | None = None
    try:
        for one in running.folders:
            await running.start(one)
        keeping = asyncio.create_task(_keep_all(running))
        yield running, keeping
    finally:
        if keeping is not None:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        await asyncio.shield(running.stop())


async def _keep_all(running: RunningProxy) -> None:
    async with asyncio.TaskGroup() as group:
        for folder in running.folders:
            group.create_task(running.keep(folder))


def _end_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _remove_sockets(folder: Path) -> None:
    for path in folder.glob("*.sock"):
        path.unlink(missing_ok=True)


def _how(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def _family(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return [pid]
    return [pid, *map(int, children)]


def _cpu_s(pid: int) -> float:
    ticks = 0
    for one in _family(pid):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{one}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _pages(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
