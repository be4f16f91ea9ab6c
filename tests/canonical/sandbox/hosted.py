"""A backend that runs commands directly on this machine: honest in everything that needs no isolation.

It is what lies are told on top of, and no sandbox at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Mapping, Sequence
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
    Sandbox,
    SandboxGoneError,
    Snapshot,
)

MARK = "ROSETTA_HOSTED"
PR_SET_CHILD_SUBREAPER = 36


class Hosted:
    """Make sandboxes that are folders."""

    name = "hosted"

    def __init__(self) -> None:
        self.sandbox: type[HostedSandbox] = HostedSandbox
        self.opened: list[HostedSandbox] = []

    async def isolation(self) -> Isolation:
        return Isolation(backend=self.name, tool="none", enforced=("environment",))

    async def open(self, start: Snapshot | None = None, *, limits: Limits | None = None) -> Sandbox:
        sandbox = self.sandbox(limits or Limits())
        self.opened.append(sandbox)
        for path, data in (start.files if start else {}).items():
            await sandbox.write(path, data, executable=path in start.executable)
        return sandbox

    async def aclose(self) -> None:
        for sandbox in self.opened:
            if not sandbox.closed:
                await sandbox.close()


class HostedSandbox:
    """Be a folder of this machine in which commands run."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.root = Path(tempfile.mkdtemp(prefix="hosted-"))
        self.closed = False
        self.mark = f"{os.getpid()}-{id(self)}"
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)

    def _check(self) -> None:
        if self.closed:
            raise SandboxGoneError("the sandbox is closed")

    def _path(self, path: str) -> Path:
        self._check()
        if (
            "\0" in path
            or any(len(part.encode("utf-8", "replace")) > 255 for part in path.split("/"))
            or len(path) > 4000
        ):
            raise RefusedError(f"{path[:40]!r} is no path")
        try:
            path.encode()
        except UnicodeEncodeError:
            raise RefusedError("no path") from None
        full = Path(os.path.normpath(self.root / path))
        real = Path(os.path.realpath(full))
        if not all(one == self.root or one.is_relative_to(self.root) for one in (full, real)):
            raise RefusedError(f"{path} leads out of the workspace")
        return full

    def environment(self, env: Mapping[str, str], call: str) -> dict[str, str]:
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.root),
            "TMPDIR": str(self.root),
            MARK: self.mark,
            "ROSETTA_CALL": call,
            **env,
        }

    def keep(self, data: bytes) -> tuple[bytes, int]:
        limit = self.limits.output_bytes
        if len(data) <= limit:
            return data, 0
        head = limit // 2
        return data[:head] + data[len(data) - (limit - head) :], len(data) - limit

    async def exec(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: bytes = b"",
        cwd: str = ".",
        env: Mapping[str, str] = {},
        keep_background: bool = False,
    ) -> Exec:
        self._check()
        call = os.urandom(6).hex()
        with (
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
            tempfile.TemporaryFile() as into,
        ):
            into.write(stdin)
            into.seek(0)
            try:
                process = await asyncio.create_subprocess_exec(
                    *argv, stdin=into, stdout=out, stderr=err, cwd=self.root / cwd,
                    env=self.environment(env, call), start_new_session=True,
                )  # fmt: skip
            except (OSError, ValueError, TypeError) as error:
                raise CommandFailedError(str(error)) from error
            timed_out = False
            try:
                await asyncio.wait_for(process.wait(), timeout_s)
            except TimeoutError:
                timed_out = True
            except asyncio.CancelledError:
                self.kill(call)
                await process.wait()
                raise
            if not keep_background or timed_out:
                self.kill(call)
            await process.wait()
            kept = []
            for file in (out, err):
                file.seek(0)
                kept.append(self.keep(file.read()))
        self._check()
        code = -9 if timed_out else self.code(process.returncode or 0)
        (stdout, stdout_dropped), (stderr, stderr_dropped) = kept
        done = Exec(
            exit_code=code,
            stdout=stdout,
            stderr=stderr,
            stdout_dropped=stdout_dropped,
            stderr_dropped=stderr_dropped,
        )
        if timed_out:
            raise CommandTimeoutError(timeout_s, done)
        return done

    def code(self, returncode: int) -> int:
        return returncode

    def kill(self, call: str = "") -> None:
        mark = f"{MARK}={self.mark}\0".encode()
        for _ in range(3):
            for folder in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    environ = (folder / "environ").read_bytes() + b"\0"
                    if mark in environ and call.encode() in environ:
                        os.kill(int(folder.name), signal.SIGKILL)

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        full = self._path(path)
        try:
            if not stat.S_ISREG(full.stat().st_mode):
                raise PathError(path, "is a directory" if full.is_dir() else "not a file")
            data = full.read_bytes()
        except FileNotFoundError:
            raise PathError(path, "missing") from None
        except NotADirectoryError:
            raise PathError(path, "not a directory") from None
        except (PermissionError, OSError) as error:
            raise PathError(path, "denied") from error
        return data[offset:] if limit is None else data[offset : offset + limit]

    async def write(
        self, path: str, data: bytes, *, replacing: bytes | None = None, executable: bool | None = None
    ) -> None:
        full = self._path(path)
        if full == self.root or full.is_dir():
            raise PathError(path, "is a directory")
        if ".." in Path(path).parts and not (self.root / path).parent.exists():
            raise PathError(path, "passes a folder that is not there")
        if len(data) > self.limits.file_bytes:
            raise LimitError(Limit.FILE_SIZE, f"{path}: {len(data)} bytes")
        if replacing is not None and await self.read(path) != replacing:
            raise PathError(path, "changed")
        try:
            full.parent.mkdir(parents=True, exist_ok=True)
            mode = full.stat().st_mode & 0o777 if full.exists() else 0o644
            if executable is not None:
                mode = mode | 0o111 if executable else mode & ~0o111
            self.put(full, data, mode)
        except (FileExistsError, NotADirectoryError):
            raise PathError(path, "not a directory") from None

    def put(self, full: Path, data: bytes, mode: int) -> None:
        unfinished = full.parent / f".{os.urandom(4).hex()}"
        unfinished.write_bytes(data)
        unfinished.chmod(mode)
        unfinished.rename(full)

    async def list(self, path: str = ".", *, recursive: bool = False) -> tuple[Entry, ...]:
        top = self._path(path)
        if not top.exists():
            raise PathError(path, "missing")
        if not top.is_dir():
            raise PathError(path, "not a directory")
        found: list[Entry] = []
        for folder, folders, files in os.walk(top):
            for name in (*folders, *files):
                full = Path(folder) / name
                facts = full.lstat()
                kind = (
                    "link" if stat.S_ISLNK(facts.st_mode) else "directory" if stat.S_ISDIR(facts.st_mode)
                    else "file" if stat.S_ISREG(facts.st_mode) else "other"
                )  # fmt: skip
                found.append(
                    Entry(str(full.relative_to(self.root)), kind, facts.st_size if kind == "file" else 0)
                )
            if not recursive:
                break
        return tuple(sorted(found, key=lambda entry: entry.path))

    async def snapshot(self) -> Snapshot:
        entries = [entry.path for entry in await self.list(recursive=True) if entry.kind == "file"]
        return Snapshot(
            {path: (self.root / path).read_bytes() for path in entries},
            frozenset(
                path
                for path in entries
                if os.access(self.root / path, os.X_OK) and (self.root / path).stat().st_mode & 0o100
            ),
        )

    async def stop_processes(self) -> None:
        self._check()
        self.kill()

    async def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.kill()
            shutil.rmtree(self.root, ignore_errors=True)
