"""The backend `local`: sandboxes on this machine, without a service and without a container engine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Literal

from canonical.sandbox.local.confinement import Confinement
from canonical.sandbox.local.hub import Hub, hub
from canonical.sandbox.local.inside import frames
from canonical.sandbox.local.link import Link
from canonical.sandbox.local.self_test import self_test
from canonical.sandbox.protocol import (
    CommandTimeoutError,
    Entry,
    Exec,
    Isolation,
    Limit,
    LimitError,
    Limits,
    RefusedError,
    SandboxGoneError,
    Snapshot,
)

_NO_ENV: Mapping[str, str] = MappingProxyType({})
_BATCH = 8 << 20
# Spelled here because a class below has a method called `list`.
_Fields = list[bytes]
_KINDS: dict[bytes, Literal["file", "directory", "link", "other"]] = {
    b"file": "file",
    b"directory": "directory",
    b"link": "link",
    b"other": "other",
}


class LocalSandbox:
    """Be one sandbox on this machine. It may be used from any thread and event loop of the process that opened it."""

    def __init__(self, home: Hub, link: Link, limits: Limits) -> None:
        self._hub, self._link, self._limits = home, link, limits

    async def exec(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: bytes = b"",
        cwd: str = ".",
        env: Mapping[str, str] = _NO_ENV,
        keep_background: bool = False,
    ) -> Exec:
        """Run a command; see `canonical.sandbox.protocol.Sandbox.exec`."""
        if not argv or not argv[0]:
            raise RefusedError("a command needs a program")
        if not timeout_s >= 0:
            raise RefusedError(f"timeout_s must be a number of seconds, and it is {timeout_s}")
        words = [_bytes(word, "an argument") for word in argv]
        pairs = []
        for name, value in env.items():
            if not name or "=" in name:
                raise RefusedError(f"{name!r:.80} is no name for a variable")
            pairs += [_bytes(name, "a variable"), _bytes(value, "a variable")]
        fields = [
            repr(float(timeout_s)).encode(),
            b"1" if keep_background else b"0",
            _bytes(cwd, "a path"),
            stdin,
            frames.number(len(words)),
            *words,
            *pairs,
        ]
        answer, _ = await self._hub.run(self._link.command(fields, timeout_s))
        with _as_agreed():
            outcome, text, code, stdout, stderr, stdout_dropped, stderr_dropped = answer
            done = Exec(
                exit_code=frames.whole(code),
                stdout=stdout,
                stderr=stderr,
                stdout_dropped=frames.whole(stdout_dropped),
                stderr_dropped=frames.whole(stderr_dropped),
            )
            limit = None if outcome in {b"", b"timeout"} else Limit(outcome.decode())
        if outcome == b"timeout":
            raise CommandTimeoutError(timeout_s, done)
        if done.exit_code in {-9, 137} and limit is None and self._link.was_out_of_memory():
            raise LimitError(Limit.MEMORY, "the sandbox held more memory than it may", done)
        if limit is not None:
            raise LimitError(limit, text[:2000].decode("utf-8", "replace"), done)
        return done

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """Return the bytes of a file; see `canonical.sandbox.protocol.Sandbox.read`."""
        if offset < 0 or (limit is not None and limit < 0):
            raise RefusedError("offset and limit must not be negative")
        fields = [
            _bytes(path, "a path"),
            frames.number(offset),
            b"" if limit is None else frames.number(limit),
        ]
        _, parts = await self._hub.run(self._link.call(frames.READ, fields, path))
        return b"".join(piece for part in parts for piece in part)

    async def write(
        self, path: str, data: bytes, *, replacing: bytes | None = None, executable: bool | None = None
    ) -> None:
        """Make or replace a file; see `canonical.sandbox.protocol.Sandbox.write`."""
        self._check_size(path, data)
        fields = [
            _bytes(path, "a path"),
            data,
            b"0" if replacing is None else b"1",
            replacing or b"",
            b"" if executable is None else frames.number(int(executable)),
        ]
        await self._hub.run(self._link.call(frames.WRITE, fields, path))

    async def list(self, path: str = ".", *, recursive: bool = False) -> tuple[Entry, ...]:
        """Return what is in a folder; see `canonical.sandbox.protocol.Sandbox.list`."""
        fields = [_bytes(path, "a path"), b"1" if recursive else b"0"]
        _, parts = await self._hub.run(self._link.call(frames.LIST, fields, path))
        with _as_agreed():
            entries = [
                Entry(os.fsdecode(name), _KINDS.get(kind, "other"), frames.whole(size))
                for part in parts
                for name, kind, size in zip(part[::3], part[1::3], part[2::3], strict=True)
            ]
        return tuple(sorted(entries, key=lambda entry: entry.path))

    async def snapshot(self) -> Snapshot:
        """Return every file of the workspace; see `canonical.sandbox.protocol.Sandbox.snapshot`."""
        _, parts = await self._hub.run(self._link.call(frames.SNAPSHOT, []))
        pieces: dict[str, _Fields] = {}
        executable = set()
        with _as_agreed():
            for name, runs, piece in parts:
                path = os.fsdecode(name)
                pieces.setdefault(path, []).append(piece)
                if runs == b"1":
                    executable.add(path)
        return Snapshot({path: b"".join(pieces[path]) for path in sorted(pieces)}, frozenset(executable))

    async def stop_processes(self) -> None:
        """Kill every process that a command left running."""
        await self._hub.run(self._link.call(frames.STOP, []))

    async def close(self) -> None:
        """Kill everything and leave nothing behind. Closing twice is harmless."""
        if os.getpid() == self._hub.pid:
            await self._hub.run(self._link.close())

    async def load(self, start: Snapshot) -> None:
        """Write the files of a snapshot.

        Raises:
            RefusedError: A path leads out of the workspace.
            LimitError: The files do not fit.
        """
        for batch in self._batches(start):
            await self._hub.run(self._link.call(frames.LOAD, batch))

    def _batches(self, start: Snapshot) -> Iterator[_Fields]:
        batch: _Fields = []
        size = 0
        for path, data in start.files.items():
            self._check_size(path, data)
            batch += [_bytes(path, "a path"), data, b"1" if path in start.executable else b"0"]
            size += len(data) + len(path)
            if size > _BATCH:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _check_size(self, path: str, data: bytes) -> None:
        most = self._limits.file_bytes
        if len(data) > most:
            raise LimitError(
                Limit.FILE_SIZE, f"{path}: a file may hold {most} bytes, and this has {len(data)}"
            )


class LocalBackend:
    """Make sandboxes on this machine.

    Args:
        name: What records call it.
        confinement: How the program of a sandbox is started.
    """

    def __init__(self, name: str, confinement: Confinement) -> None:
        self.name = name
        self._confinement = confinement
        self._tested: asyncio.Task[Isolation] | None = None
        self._hub: Hub | None = None

    async def isolation(self) -> Isolation:
        """Try what is enforced here, once per process, and remember it. What failed is tried again.

        Raises:
            BackendUnavailableError: There is no bubblewrap or no Python, sandboxes do not start here, or one of them
                could reach the network, the host's files, its environment or its processes.
        """
        home = hub()
        return await home.run(self._isolation(home))

    async def _isolation(self, home: Hub) -> Isolation:
        failed = self._tested is not None and self._tested.done() and self._tested.exception() is not None
        if self._hub is not home or self._tested is None or failed:
            self._hub = home
            self._tested = home.loop.create_task(self_test(self.name, home, self._confinement, self._start))
        return await asyncio.shield(self._tested)

    async def _start(self, home: Hub, limits: Limits) -> LocalSandbox:
        return LocalSandbox(home, await Link.start(home, self._confinement, limits), limits)

    async def open(self, start: Snapshot | None = None, *, limits: Limits | None = None) -> LocalSandbox:
        """Start a sandbox whose workspace holds the files of a snapshot.

        Raises:
            BackendUnavailableError: See `isolation`, which the first call of a process waits for.
            LimitError: The files do not fit.
        """
        home = hub()
        await home.run(self._isolation(home))
        sandbox = await home.run(self._start(home, limits or Limits()))
        try:
            if start is not None:
                await sandbox.load(start)
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    async def aclose(self) -> None:
        """Close every sandbox that is still open."""
        home = hub()
        await home.run(_close_all(home, self._confinement))


async def _close_all(home: Hub, confinement: Confinement) -> None:
    links = [link for link in home.live if isinstance(link, Link) and link.confinement is confinement]
    await asyncio.gather(*(link.close() for link in links))


def _bytes(text: str, what: str) -> bytes:
    try:
        data = os.fsencode(text)
    except UnicodeEncodeError:
        raise RefusedError(f"{what} holds characters that cannot be written: {text!r:.80}") from None
    if b"\0" in data:
        raise RefusedError(f"{what} holds a null byte: {text!r:.80}")
    return data


@contextmanager
def _as_agreed() -> Iterator[None]:
    """Take an answer apart, which a program that was taken over may have written."""
    try:
        yield
    except ValueError:
        raise SandboxGoneError("the sandbox sent an answer that makes no sense") from None
