"""The benchmark of sandboxes: what a session, a call and a live sandbox cost, how many live at once, and what is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from bench.machine import Machine, Pressure, read_revision
from bench.progress import OnProgress, Progress, ignore_progress
from bench.records import Note
from bench.sandbox_records import (
    Action,
    Circumstances,
    Left,
    Rung,
    SandboxHeader,
    SandboxRunWriter,
    Throughput,
    Timing,
)
from bench.stacks import ROOT
from canonical.sandbox.protocol import Backend, Exec, Sandbox, SandboxError, Snapshot

_PROC = Path("/proc")
_KILOBYTE = b"x" * 1_000
_COMMANDS: dict[Action, list[str]] = {
    "true": ["true"],
    "bash": ["bash", "-c", "true"],
    "python": ["python3", "-c", "pass"],
}
_CALL_S = 60.0
_TICKS_HZ = os.sysconf("SC_CLK_TCK")


class SandboxPlan(BaseModel):
    """Say how much each part measures.

    Attributes:
        name: smoke or quick; `changed` is added when a value was given.
        warmup: Sessions, and calls of each kind, before those that count.
        opens: Sessions opened and closed one after the other.
        calls: Calls of each kind, in turn with the other kinds, in one session.
        live: Sandboxes alive at once on the last rung; each rung has twice as many as the one before.
        tried: Sandboxes of a rung that are asked to run `true`.
        sessions: Numbers of sessions that run `true` as fast as they can.
        seconds: How long each of them does.
        settle_s: Seconds of rest before memory is read, and before what is left is looked for.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    warmup: int = Field(ge=0)
    opens: int = Field(ge=1)
    calls: int = Field(ge=1)
    live: int = Field(ge=1)
    tried: int = Field(ge=1)
    sessions: tuple[int, ...]
    seconds: float = Field(gt=0)
    settle_s: float = Field(default=0.5, ge=0)


# The 99th percentile has an interval from 299 calls on.
SMOKE = SandboxPlan(
    name="smoke", warmup=2, opens=12, calls=60, live=16, tried=16, sessions=(1, 8), seconds=1.0
)
QUICK = SandboxPlan(
    name="quick", warmup=5, opens=320, calls=1_000, live=512, tried=64, sessions=(1, 8, 64), seconds=8.0
)
SANDBOX_PLANS = {plan.name: plan for plan in (SMOKE, QUICK)}


@dataclass(slots=True)
class _Measuring:
    backend: Backend
    plan: SandboxPlan
    writer: SandboxRunWriter
    on_progress: OnProgress
    token: str = field(default_factory=lambda: f"rosetta-bench-{secrets.token_hex(8)}")
    """The name of a file in every sandbox, which occurs nowhere else."""

    @asynccontextmanager
    async def part(self, name: str) -> AsyncIterator[None]:
        """Record how busy the machine was during a part."""
        before, own = Pressure.read(), _own_cpu_s()
        yield
        after = Pressure.read()
        used = max(0.0, _own_cpu_s() - own)
        self.writer.write(Circumstances(part=name, before=before, after=after, own_cpu_s=used))


async def run_sandbox_benchmark(
    backend: Backend,
    plan: SandboxPlan,
    folder: Path,
    *,
    arguments: tuple[str, ...] = (),
    on_progress: OnProgress = ignore_progress,
) -> None:
    """Measure a backend and write a run folder. Whatever stops it, what was measured until then stays there.

    Args:
        backend: What to measure; it is closed at the end.
        plan: How much.
        folder: Where the records go; it must not hold a run yet.
        arguments: The command as it was given, for the record.
        on_progress: Hears how far each part has come.

    Raises:
        canonical.sandbox.protocol.BackendUnavailableError: The backend cannot be used here.
        bench.records.RunError: The folder cannot be written, or holds a run already.
    """
    isolation = await backend.isolation()
    start = Pressure.read()
    now = datetime.now(UTC)
    revision = read_revision(ROOT)
    header = SandboxHeader(
        run_id=f"sandboxes-{backend.name}-{now:%Y%m%dT%H%M%SZ}",
        started=now,
        backend=backend.name,
        tool=isolation.tool,
        enforced=isolation.enforced,
        missing=dict(isolation.missing),
        ordinary_user=os.geteuid() != 0,
        machine=Machine.read(),
        pressure=start,
        commit=revision.commit if revision else None,
        dirty=revision.dirty if revision else None,
        args_passed=arguments,
        plan=plan.model_dump(mode="json"),
    )
    with SandboxRunWriter(folder, header) as writer:
        measuring = _Measuring(backend, plan, writer, on_progress)
        before = _traces(measuring.token)
        try:
            async with measuring.part("sessions"):
                await _time_sessions(measuring)
            async with measuring.part("calls"):
                await _time_calls(measuring)
            await _climb(measuring)
            for sessions in plan.sessions:
                async with measuring.part(f"throughput with {sessions}"):
                    await _run_flat_out(measuring, sessions)
        finally:
            await backend.aclose()
        await asyncio.sleep(plan.settle_s)
        writer.write(_left(before, _traces(measuring.token)))


class _Watch:
    """Collect the times of calls, and count those that fail."""

    def __init__(self) -> None:
        self.ns: list[int] = []
        self.failures = 0
        self.first_error: str | None = None

    async def time(self, call: Awaitable[object]) -> bool:
        """Time one call; a command must end with 0."""
        started = time.perf_counter_ns()
        try:
            answer = await call
        except SandboxError as error:
            self._fail(f"{type(error).__name__}: {error}")
            return False
        took = time.perf_counter_ns() - started
        if isinstance(answer, Exec) and answer.exit_code != 0:
            self._fail(f"exit code {answer.exit_code}: {answer.stderr[-200:].decode('utf-8', 'replace')}")
            return False
        self.ns.append(took)
        return True

    def _fail(self, reason: str) -> None:
        self.failures += 1
        self.first_error = self.first_error or reason


async def _open(measuring: _Measuring) -> Sandbox:
    return await measuring.backend.open(Snapshot({measuring.token: _KILOBYTE}))


async def _time_sessions(measuring: _Measuring) -> None:
    """Open and close sandboxes one after the other; a start counts until the first call is answered."""
    plan = measuring.plan
    opening, closing = _Watch(), _Watch()
    for number in range(plan.warmup + plan.opens):
        if number == plan.warmup:
            opening, closing = _Watch(), _Watch()
        opened: list[Sandbox] = []

        async def start(opened: list[Sandbox] = opened) -> None:
            opened.append(await _open(measuring))
            await opened[0].read(measuring.token)

        await opening.time(start())
        for sandbox in opened:
            await closing.time(sandbox.close())
        measuring.on_progress(Progress("session start and end", number + 1, plan.warmup + plan.opens))
    _write_timing(measuring, "open", opening)
    _write_timing(measuring, "close", closing)


async def _time_calls(measuring: _Measuring) -> None:
    """Time every kind of call in turn, so that whatever slows the machine slows all of them."""
    plan = measuring.plan
    sandbox = await _open(measuring)
    calls: dict[Action, Callable[[], Awaitable[object]]] = {"read": lambda: sandbox.read(measuring.token)}
    for action, argv in _COMMANDS.items():
        calls[action] = lambda argv=argv: sandbox.exec(argv, timeout_s=_CALL_S)  # type: ignore[misc]
    watches = {action: _Watch() for action in calls}
    try:
        for number in range(plan.warmup + plan.calls):
            if number == plan.warmup:
                watches = {action: _Watch() for action in calls}
            for action, call in calls.items():
                await watches[action].time(call())
            measuring.on_progress(Progress("calls", number + 1, plan.warmup + plan.calls))
    finally:
        await sandbox.close()
    for action, watch in watches.items():
        _write_timing(measuring, action, watch)


def _write_timing(measuring: _Measuring, action: Action, watch: _Watch) -> None:
    measuring.writer.write(
        Timing(action=action, ns=tuple(watch.ns), failures=watch.failures, first_error=watch.first_error)
    )


async def _climb(measuring: _Measuring) -> None:
    """Keep more and more sandboxes alive, and weigh them on every rung."""
    plan = measuring.plan
    rungs = [1 << power for power in range(plan.live.bit_length()) if 1 << power < plan.live] + [plan.live]
    live: list[Sandbox] = []
    try:
        for number, asked in enumerate(rungs):
            async with measuring.part(f"{asked} live"):
                await _hold(measuring, live, asked)
            measuring.on_progress(Progress("live sandboxes", number + 1, len(rungs), f"{len(live)} alive"))
            if len(live) < asked:
                measuring.writer.write(
                    Note(text=f"Only {len(live)} of {asked} sandboxes could be opened; the climb ends.")
                )
                break
    finally:
        await asyncio.gather(*(sandbox.close() for sandbox in live))


async def _hold(measuring: _Measuring, live: list[Sandbox], asked: int) -> None:
    started = time.perf_counter()
    opening = await asyncio.gather(
        *(_open(measuring) for _ in range(asked - len(live))), return_exceptions=True
    )
    took = time.perf_counter() - started
    live += [one for one in opening if not isinstance(one, BaseException)]
    failed = [one for one in opening if isinstance(one, BaseException)]
    for error in failed:
        if not isinstance(error, SandboxError):
            raise error
    await asyncio.sleep(measuring.plan.settle_s)
    available, pss = _available_bytes(), _pss_bytes()
    watch = _Watch()
    tried = live[:: max(1, len(live) // measuring.plan.tried)][: measuring.plan.tried]
    for sandbox in tried:
        await watch.time(sandbox.exec(["true"], timeout_s=_CALL_S))
    measuring.writer.write(
        Rung(
            asked=asked,
            live=len(live),
            answering=len(watch.ns),
            tried=len(tried),
            open_s=took,
            available_bytes=available,
            pss_bytes=pss,
            ns=tuple(watch.ns),
            first_error=str(failed[0]) if failed else watch.first_error,
        )
    )


async def _run_flat_out(measuring: _Measuring, sessions: int) -> None:
    part = f"throughput, {sessions} sessions"
    measuring.on_progress(Progress(part, 0, 1))
    boxes = await asyncio.gather(*(_open(measuring) for _ in range(sessions)))
    watch = _Watch()
    try:
        await asyncio.gather(*(box.exec(["true"], timeout_s=_CALL_S) for box in boxes))
        started = time.perf_counter()

        async def loop(box: Sandbox) -> None:
            while time.perf_counter() - started < measuring.plan.seconds:
                await watch.time(box.exec(["true"], timeout_s=_CALL_S))

        await asyncio.gather(*(loop(box) for box in boxes))
        took = time.perf_counter() - started
    finally:
        await asyncio.gather(*(box.close() for box in boxes))
    measuring.writer.write(
        Throughput(
            sessions=sessions,
            seconds=took,
            ns=tuple(watch.ns),
            failures=watch.failures,
            first_error=watch.first_error,
        )
    )
    measuring.on_progress(Progress(part, 1, 1))


# What the machine shows


@dataclass(frozen=True, slots=True)
class _Traces:
    processes: frozenset[int]
    mounts: frozenset[str]
    files: frozenset[str]
    descriptors: int


def _traces(token: str) -> _Traces:
    mounts = (_PROC / "self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    return _Traces(
        processes=frozenset(_family()),
        mounts=frozenset(line.split()[4] for line in mounts),
        files=frozenset(_files_named(token)),
        descriptors=len(list((_PROC / "self/fd").iterdir())),
    )


def _files_named(token: str) -> Iterator[str]:
    """Look for files of sandboxes in the folders for temporary files, not deeper than sandboxes lie."""
    for place in {tempfile.gettempdir(), "/dev/shm", "/var/tmp"}:  # noqa: S108 - looked into, never written
        for folder, folders, names in os.walk(place):
            if folder.count("/") - place.count("/") >= 4:
                folders.clear()
            yield from (f"{folder}/{name}" for name in (*folders, *names) if token in name)


def _left(before: _Traces, after: _Traces) -> Left:
    names = []
    for pid in sorted(after.processes - before.processes):
        with contextlib.suppress(OSError):
            names.append((_PROC / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip())
    return Left(
        processes=tuple(names),
        mounts=tuple(sorted(after.mounts - before.mounts)),
        files=tuple(sorted(after.files - before.files)),
        descriptors=after.descriptors - before.descriptors,
    )


def _family() -> list[int]:
    """Return the processes that this one has started, and theirs."""
    parents: dict[int, list[int]] = {}
    for folder in _PROC.glob("[0-9]*"):
        fields = _stat(int(folder.name))
        if fields:
            parents.setdefault(int(fields[1]), []).append(int(folder.name))
    found, todo = [], [os.getpid()]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


def _stat(pid: int) -> list[str]:
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _own_cpu_s() -> float:
    """Return the processor seconds of this process, of all sandboxes, and of whatever of them has ended."""
    ticks = 0
    for pid in (os.getpid(), *_family()):
        fields = _stat(pid)
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / _TICKS_HZ


def _available_bytes() -> int | None:
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = (_PROC / "meminfo").read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) * 1024
    return None


def _pss_bytes() -> int | None:
    """Sum the proportional memory of the processes of all sandboxes; nothing when one of them cannot be read."""
    total = 0
    for pid in _family():
        try:
            lines = (
                (_PROC / str(pid) / "smaps_rollup").read_text(encoding="ascii", errors="replace").splitlines()
            )
        except FileNotFoundError:
            continue
        except OSError:
            return None
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total
