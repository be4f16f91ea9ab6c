"""A sandbox in name only: processes in a temporary folder, cut off from nothing. For tests of what stands above it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from canonical.sandbox.protocol import (
    CommandFailedError,
    CommandTimeoutError,
    Entry,
    Exec,
    Isolation,
    Limit,
    LimitError,
    Limits,
    PathError,
    RefusedError,
    SandboxGoneError,
    Snapshot,
)


class BareSandbox:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.root = Path(tempfile.mkdtemp(prefix="bare-")).resolve()
        self.is_gone = False
        self.groups: set[int] = set()

    def place(self, path: str) -> Path:
        if self.is_gone:
            raise SandboxGoneError("the sandbox is closed")
        if "\0" in path:
            raise RefusedError("a path holds no null byte")
        place = self.root / path
        if not place.resolve().is_relative_to(self.root):
            raise RefusedError(f"{path} leads out of the workspace")
        return place

    async def exec(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: bytes = b"",
        cwd: str = ".",
        env: Mapping[str, str] | None = None,
        keep_background: bool = False,
    ) -> Exec:
        folder = self.place(cwd)
        if not folder.is_dir():
            raise CommandFailedError(f"{cwd}: no such folder")
        environment = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(self.root),
            **(env or {}),
        }
        try:
            process = await asyncio.create_subprocess_exec(
                *argv, cwd=folder, env=environment, start_new_session=True,
                stdin=-1, stdout=-1, stderr=-1,
            )  # fmt: skip
        except OSError as error:
            raise CommandFailedError(f"{argv[0]}: {error.strerror}") from None
        self.groups.add(process.pid)
        communicate = asyncio.ensure_future(process.communicate(stdin))
        done, _ = await asyncio.wait({communicate}, timeout=timeout_s)
        if not done:
            self._kill(process.pid)
            out, err = await communicate
            raise CommandTimeoutError(timeout_s, self._result(-9, out, err))
        out, err = communicate.result()
        if not keep_background:
            self._kill(process.pid)
        return self._result(process.returncode or 0, out, err)

    def _result(self, code: int, out: bytes, err: bytes) -> Exec:
        (stdout, a), (stderr, b) = self._cut(out), self._cut(err)
        return Exec(exit_code=code, stdout=stdout, stderr=stderr, stdout_dropped=a, stderr_dropped=b)

    def _cut(self, data: bytes) -> tuple[bytes, int]:
        most = self.limits.output_bytes
        if len(data) <= most:
            return data, 0
        return data[: most // 2] + data[len(data) - (most - most // 2) :], len(data) - most

    def _kill(self, group: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
        self.groups.discard(group)

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        place = self.place(path)
        try:
            data = place.read_bytes()
        except OSError as error:
            raise PathError(path, "is a directory" if place.is_dir() else "missing") from error
        return data[offset:] if limit is None else data[offset : offset + limit]

    async def write(
        self, path: str, data: bytes, *, replacing: bytes | None = None, executable: bool | None = None
    ) -> None:
        place = self.place(path)
        if place.is_dir():
            raise PathError(path, "is a directory")
        if len(data) > self.limits.file_bytes:
            raise LimitError(Limit.FILE_SIZE, "the file is too large")
        if replacing is not None and (not place.is_file() or place.read_bytes() != replacing):
            raise PathError(path, "changed")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        except OSError:
            raise PathError(path, "not a directory") from None
        if executable is not None:
            place.chmod(0o755 if executable else 0o644)

    async def list(self, path: str = ".", *, recursive: bool = False) -> tuple[Entry, ...]:
        place = self.place(path)
        if not place.is_dir():
            raise PathError(path, "not a directory" if place.exists() else "missing")
        found = place.rglob("*") if recursive else place.iterdir()
        return tuple(sorted((self._entry(one) for one in found), key=lambda entry: entry.path))

    def _entry(self, place: Path) -> Entry:
        path = place.relative_to(self.root).as_posix()
        if place.is_symlink():
            return Entry(path, "link")
        if place.is_dir():
            return Entry(path, "directory")
        return Entry(path, "file", place.stat().st_size) if place.is_file() else Entry(path, "other")

    async def snapshot(self) -> Snapshot:
        entries = [e for e in await self.list(recursive=True) if e.kind == "file"]
        files = {e.path: (self.root / e.path).read_bytes() for e in entries}
        return Snapshot(
            files,
            frozenset(
                p
                for p in files
                if os.access(self.root / p, os.X_OK) and (self.root / p).stat().st_mode & 0o100
            ),
        )

    async def stop_processes(self) -> None:
        self.place(".")
        for group in list(self.groups):
            self._kill(group)

    async def close(self) -> None:
        for group in list(self.groups):
            self._kill(group)
        self.is_gone = True
        shutil.rmtree(self.root, ignore_errors=True)


class BareBackend:
    name = "bare"

    def __init__(self) -> None:
        self.opened: list[BareSandbox] = []

    async def isolation(self) -> Isolation:
        return Isolation("bare", "none", ())

    async def open(self, start: Snapshot | None = None, *, limits: Limits | None = None) -> BareSandbox:
        sandbox = BareSandbox(limits or Limits())
        given = start or Snapshot({})
        for path, data in given.files.items():
            await sandbox.write(path, data, executable=path in given.executable)
        self.opened.append(sandbox)
        return sandbox

    async def aclose(self) -> None:
        for sandbox in self.opened:
            await sandbox.close()
