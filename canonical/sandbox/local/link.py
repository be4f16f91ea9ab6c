"""The host's end of one sandbox: calls go out as frames, and their answers come back as untrusted bytes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from canonical.sandbox.local.cgroups import Group
from canonical.sandbox.local.confinement import Confinement, Start
from canonical.sandbox.local.hub import Hub
from canonical.sandbox.local.inside import frames
from canonical.sandbox.local.program import opening
from canonical.sandbox.protocol import (
    BackendUnavailableError,
    CommandFailedError,
    Limit,
    LimitError,
    Limits,
    PathError,
    RefusedError,
    SandboxError,
    SandboxGoneError,
)

# Longer than any machine should need: a sandbox that takes it does not answer any more.
_START_S = 60.0
_ANSWER_S = 120.0
_END_S = 5.0
# What an answer may weigh besides what its limits speak of: names, numbers, lengths.
_SLACK = 64 << 20
_REASONS = frozenset(
    {"missing", "is a directory", "not a directory", "not a file", "changed", "denied", "loop"}
)


class Call:
    """Hold one call that waits for its answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: str) -> None:
        self.path = path
        self.answer: asyncio.Future[list[bytes]] = loop.create_future()
        self.parts: list[list[bytes]] = []
        self.idle = asyncio.Event()


class Link(asyncio.Protocol):
    """Talk to the program in one sandbox. Everything but `end_now` and `forget` runs on the hub's loop."""

    def __init__(self, hub: Hub, confinement: Confinement, limits: Limits) -> None:
        self.confinement = confinement
        self._hub, self._limits = hub, limits
        # Only an unconfined sandbox has a folder of the host; it removes it itself, unless it is killed.
        self._root: str | None = None
        self._inbox = frames.Inbox((1 << 20) + 2 * limits.output_bytes)
        self._most = max(limits.disk_bytes, limits.file_bytes) + _SLACK
        self._held = 0
        self._calls: dict[int, Call] = {}
        self._last = 0
        self._socket: socket.socket | None = None
        self._transport: asyncio.Transport | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._group: Group | None = None
        self._oom_kills = 0
        self._gone: str | None = None
        self._ready: asyncio.Future[None] = hub.loop.create_future()
        self._closed: asyncio.Task[None] | None = None

    # Life

    @staticmethod
    async def start(hub: Hub, confinement: Confinement, limits: Limits) -> Link:
        """Start a sandbox and wait until its program answers.

        Raises:
            BackendUnavailableError: It does not start; the text says why.
        """
        async with hub.starts:
            link = Link(hub, confinement, limits)
            hub.live.add(link)
            try:
                await link._launch()
            except OSError as error:
                await link.close()
                raise BackendUnavailableError(f"a sandbox cannot be started: {error}") from error
            except BaseException:
                await link.close()
                raise
            return link

    async def _launch(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs, open(os.memfd_create("errors", os.MFD_CLOEXEC), "rb") as errors:  # noqa: ASYNC230, PTH123 - memory
            spawning = self._hub.loop.run_in_executor(
                self._hub.starter, self._spawn, theirs.fileno(), errors.fileno()
            )
            try:
                self._process, first = await asyncio.shield(spawning)
            except asyncio.CancelledError:
                # A thread cannot be interrupted; what it starts must be known, or nobody would end it.
                self._process, _ = await spawning
                raise
            theirs.close()
            self._socket.setblocking(False)
            transport, _ = await self._hub.loop.create_unix_connection(lambda: self, sock=self._socket)
            transport.write(first)
            try:
                async with asyncio.timeout(_START_S):
                    await self._ready
            except (SandboxGoneError, TimeoutError) as error:
                said = (
                    os.pread(errors.fileno(), 4000, 0).decode("utf-8", "replace").strip().rpartition("\n")[2]
                )
                raise BackendUnavailableError(
                    f"a sandbox does not start: {said or str(error) or 'it does not answer'}"
                ) from None

    def _spawn(self, theirs: int, errors: int) -> tuple[subprocess.Popen[bytes], bytes]:
        start = self.confinement.start(self._limits)
        if not self.confinement.isolated:
            self._root = start.settings[b"root"].decode()
        try:
            first = opening(start.python, start.settings)
            if self._hub.cgroups is None or not self.confinement.isolated:
                return self._popen(start, theirs, errors), first
            with self._hub.cgroups.inside(self._limits) as group:
                process = self._popen(start, theirs, errors)
            self._group = group
        except OSError as error:
            raise BackendUnavailableError(f"a sandbox cannot be started: {error}") from error
        finally:
            for fd in start.fds:
                os.close(fd)
        return process, first

    @staticmethod
    def _popen(start: Start, theirs: int, errors: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            start.argv,
            executable=start.executable,
            stdin=theirs,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=start.environment,
            cwd="/",
            pass_fds=start.fds,
            start_new_session=True,
            user=start.drop_to,
            group=start.drop_to,
            extra_groups=None if start.drop_to is None else [],
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail every call that waits, and clear up."""
        self._fail("the sandbox has died" if exc is None else f"the sandbox has died: {exc}")
        if self._closed is None:
            self._closed = self._hub.loop.create_task(self._reap())

    def _fail(self, reason: str) -> None:
        if self._gone is None:
            self._gone = reason
        for call in self._calls.values():
            if not call.answer.done():
                call.answer.set_exception(SandboxGoneError(self._gone))
        self._calls.clear()
        if not self._ready.done():
            self._ready.set_exception(SandboxGoneError(self._gone))
            # Nobody may be waiting for it any more.
            self._ready.exception()

    async def close(self) -> None:
        """End the sandbox, and return when nothing of it is left."""
        self._fail("the sandbox is closed")
        if self._transport is not None:
            self._transport.abort()
        elif self._socket is not None:
            self._socket.close()
        if self._closed is None:
            self._closed = self._hub.loop.create_task(self._reap())
        await asyncio.shield(self._closed)

    async def _reap(self) -> None:
        process = self._process
        if process is not None:
            last, pause = time.monotonic() + _END_S, 0.001
            while process.poll() is None:
                if time.monotonic() > last:
                    process.kill()
                await asyncio.sleep(pause)
                pause = min(2 * pause, 0.05)
        await self._remove_group()
        if self._root is not None:
            # The program inside does this itself, unless it was killed.
            remove = ["rm", "-rf", "--", str(Path(self._root).parent)]
            await self._hub.loop.run_in_executor(None, lambda: subprocess.run(remove, check=False))
        self._hub.live.discard(self)

    async def _remove_group(self) -> None:
        for _ in range(100):
            # The kernel lets go of the last process a moment after it is gone.
            if self._group is None or self._group.remove():
                return
            await asyncio.sleep(0.01)

    def was_out_of_memory(self) -> bool:
        """Say whether the kernel has killed a process since the last question because the sandbox held too much."""
        kills = 0 if self._group is None else self._group.oom_kills()
        before, self._oom_kills = self._oom_kills, kills
        return kills > before

    def end_now(self) -> None:
        """End the sandbox from any thread, at the end of the process."""
        if self._process is not None:
            if self._root is None:
                self._process.kill()
            elif self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)
            if self._group is not None:
                self._group.remove()

    def forget(self) -> None:
        """Close the copy of the socket: the sandbox must see when its own process has ended."""
        if self._socket is not None and self._socket.fileno() >= 0:
            # Detached first, or the number would be closed again when it means something else.
            os.close(self._socket.detach())
        if self._process is not None:
            self._process.returncode = 0

    # Frames

    def data_received(self, data: bytes) -> None:
        """Take what the sandbox sends; anything that is not as agreed ends it."""
        try:
            for call, kind, fields in self._inbox.feed(data):
                self._frame(call, kind, fields)
        except (frames.FrameError, ValueError, IndexError) as error:
            self._fail(f"the sandbox was ended because it sent something that it must not: {error}")
            if self._transport is not None:
                self._transport.abort()

    def _frame(self, number: int, kind: int, fields: list[bytes]) -> None:
        if kind == frames.READY:
            if not self._ready.done():
                self._ready.set_result(None)
            return
        call = self._calls.get(number)
        if call is None:
            return
        if kind == frames.IDLE:
            call.idle.set()
        elif kind == frames.PART:
            self._held += sum(map(len, fields))
            if self._held > self._most:
                raise frames.FrameError("an answer is larger than the sandbox")
            call.parts.append(fields)
        elif kind in {frames.DONE, frames.ERROR}:
            error = _error(fields, call.path) if kind == frames.ERROR else None
            del self._calls[number]
            self._held -= sum(len(field) for part in call.parts for field in part)
            if call.answer.done():
                return
            if error is None:
                call.answer.set_result(fields)
            else:
                call.answer.set_exception(error)
        else:
            raise frames.FrameError(f"a frame of the unknown kind {kind}")

    async def call(
        self, kind: int, fields: Sequence[bytes], path: str = "", *, within_s: float = _ANSWER_S
    ) -> tuple[list[bytes], list[list[bytes]]]:
        """Send a call, and return the fields of its answer and of the parts before it.

        Raises:
            SandboxError: The sandbox says why it cannot do it, or is gone.
        """
        call, _ = self._begin(kind, fields, path)
        return await self._await(call, within_s)

    async def command(
        self, fields: Sequence[bytes], timeout_s: float
    ) -> tuple[list[bytes], list[list[bytes]]]:
        """Run a command when it is its turn, and return the fields of its answer.

        A command that does nothing, because it sleeps or waits, lets the next one begin.

        Raises:
            SandboxError: The command could not be started, or the sandbox is gone.
        """
        await self._hub.commands.acquire()
        held = True
        try:
            call, number = self._begin(frames.EXEC, fields, "")
            answer = asyncio.ensure_future(self._await(call, timeout_s + _ANSWER_S))
            idle = asyncio.ensure_future(call.idle.wait())
            try:
                await asyncio.wait({answer, idle}, return_when=asyncio.FIRST_COMPLETED)
                if not answer.done():
                    self._hub.commands.release()
                    held = False
                return await answer
            finally:
                idle.cancel()
                answer.cancel()
                self._cancel(number)
        finally:
            if held:
                self._hub.commands.release()

    def _begin(self, kind: int, fields: Sequence[bytes], path: str) -> tuple[Call, int]:
        if self._gone is not None or self._transport is None:
            raise SandboxGoneError(self._gone or "the sandbox is closed")
        self._last += 1
        call = Call(self._hub.loop, path)
        self._calls[self._last] = call
        self._transport.write(frames.pack(self._last, kind, fields))
        return call, self._last

    async def _await(self, call: Call, within_s: float) -> tuple[list[bytes], list[list[bytes]]]:
        try:
            async with asyncio.timeout(within_s):
                fields = await call.answer
        except TimeoutError:
            self._fail("the sandbox was ended because it did not answer")
            await self.close()
            raise SandboxGoneError(self._gone or "") from None
        return fields, call.parts

    def _cancel(self, number: int) -> None:
        """End a command whose answer nobody waits for any more."""
        if self._gone is None and self._transport is not None and number in self._calls:
            self._transport.write(frames.pack(0, frames.CANCEL, [frames.number(number)]))
            self._calls.pop(number, None)


def _error(fields: Sequence[bytes], path: str) -> SandboxError:
    code, detail, text = (field[:2000].decode("utf-8", "replace") for field in fields)
    if code == "path" and detail in _REASONS:
        return PathError(path, detail)  # type: ignore[arg-type] # it is one of the reasons
    if code == "limit" and detail in set(Limit):
        return LimitError(Limit(detail), text)
    if code == "command":
        return CommandFailedError(text)
    if code == "refused":
        return RefusedError(f"{path:.200}: {text}" if path else text)
    raise frames.FrameError("an error of an unknown kind")
