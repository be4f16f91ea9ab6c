"""Backends that break one promise each, built on one that keeps it. The check that must notice is named beside them."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from canonical.sandbox.protocol import (
    CommandFailedError,
    CommandTimeoutError,
    Entry,
    Exec,
    PathError,
    SandboxGoneError,
    Snapshot,
)
from tests.canonical.sandbox.hosted import Hosted, HostedSandbox

SHARED = Path(tempfile.gettempdir()) / f"rosetta-shared-{os.getpid()}"


class TurnsSignalsIntoShellCodes(HostedSandbox):
    def code(self, returncode: int) -> int:
        return 128 - returncode if returncode < 0 else returncode


class MixesTheStreams(HostedSandbox):
    async def exec(self, argv: Sequence[str], **options: Any) -> Exec:
        done = await super().exec(argv, **options)
        return Exec(exit_code=done.exit_code, stdout=done.stdout + done.stderr)


class ReadsArgumentsWithAShell(HostedSandbox):
    async def exec(self, argv: Sequence[str], **options: Any) -> Exec:
        return await super().exec(["bash", "-c", " ".join(argv)], **options)


class HandsOnTheEnvironment(HostedSandbox):
    def environment(self, env: Mapping[str, str], call: str) -> dict[str, str]:
        return {**os.environ, **super().environment(env, call)}


class KeepsOnlyTheHead(HostedSandbox):
    def keep(self, data: bytes) -> tuple[bytes, int]:
        limit = self.limits.output_bytes
        return data[:limit], max(0, len(data) - limit)


class CountsNothingDropped(HostedSandbox):
    def keep(self, data: bytes) -> tuple[bytes, int]:
        return super().keep(data)[0], 0


class ReportsMissingProgramsAs127(HostedSandbox):
    async def exec(self, argv: Sequence[str], **options: Any) -> Exec:
        try:
            return await super().exec(argv, **options)
        except CommandFailedError:
            return Exec(exit_code=127, stderr=b"not found\n")


class KillsOnlyTheProgramItself(HostedSandbox):
    """Leave alone whatever moved into a session of its own."""

    def kill(self, call: str = "") -> None:
        if not call:
            super().kill()

    async def exec(self, argv: Sequence[str], *, timeout_s: float, **options: Any) -> Exec:
        wrapped = ["timeout", "-s", "KILL", str(timeout_s), *argv]
        try:
            done = await super().exec(wrapped, timeout_s=timeout_s + 3, **options)
        except CommandTimeoutError:
            self.kill()
            raise
        if done.exit_code in {124, 137, -9}:
            raise CommandTimeoutError(timeout_s, Exec(exit_code=-9, stdout=done.stdout, stderr=done.stderr))
        return done


class KillsWhatWasToBeKept(HostedSandbox):
    async def exec(self, argv: Sequence[str], *, keep_background: bool = False, **options: Any) -> Exec:
        return await super().exec(argv, keep_background=False, **options)


class StartsTheClockInTheQueue(HostedSandbox):
    slots = asyncio.Semaphore(1)

    async def exec(self, argv: Sequence[str], *, timeout_s: float, **options: Any) -> Exec:
        try:
            async with asyncio.timeout(timeout_s), self.slots:
                return await super().exec(argv, timeout_s=timeout_s, **options)
        except TimeoutError:
            raise CommandTimeoutError(timeout_s, Exec(exit_code=-9)) from None


class WritesInPlace(HostedSandbox):
    def put(self, full: Path, data: bytes, mode: int) -> None:
        with full.open("wb") as file:
            for start in range(0, len(data), 1 << 16):
                file.write(data[start : start + (1 << 16)])
                file.flush()
        full.chmod(mode)


class OverwritesWhatHasChanged(HostedSandbox):
    async def write(
        self, path: str, data: bytes, *, replacing: bytes | None = None, executable: bool | None = None
    ) -> None:
        await super().write(path, data, executable=executable)


class FollowsLinksOut(HostedSandbox):
    def _path(self, path: str) -> Path:
        self._check()
        return self.root / path


class FollowsLinksInLists(HostedSandbox):
    async def list(self, path: str = ".", *, recursive: bool = False) -> tuple[Entry, ...]:
        found = await super().list(path, recursive=recursive)
        return tuple(
            Entry(entry.path, "directory" if entry.kind == "link" else entry.kind, entry.size)
            for entry in found
        )


class DoesNotSort(HostedSandbox):
    async def list(self, path: str = ".", *, recursive: bool = False) -> tuple[Entry, ...]:
        return (await super().list(path, recursive=recursive))[::-1]


class LosesLineBreaksInNames(HostedSandbox):
    async def list(self, path: str = ".", *, recursive: bool = False) -> tuple[Entry, ...]:
        found = await super().list(path, recursive=recursive)
        return tuple(Entry(re.sub(r"\s", "?", entry.path), entry.kind, entry.size) for entry in found)


class ForgetsExecutables(HostedSandbox):
    async def snapshot(self) -> Snapshot:
        return Snapshot((await super().snapshot()).files)


class PhotographsBehindLinks(HostedSandbox):
    async def snapshot(self) -> Snapshot:
        taken = await super().snapshot()
        links = [entry.path for entry in await self.list(recursive=True) if entry.kind == "link"]
        more = {path: (self.root / path).read_bytes() for path in links if (self.root / path).is_file()}
        return Snapshot({**taken.files, **more}, taken.executable)


class ForgetsThatItIsClosed(HostedSandbox):
    def _check(self) -> None:
        pass


class CannotBeClosedTwice(HostedSandbox):
    async def close(self) -> None:
        if self.closed:
            raise SandboxGoneError("already closed")
        await super().close()


class LeavesProcessesBehind(HostedSandbox):
    async def close(self) -> None:
        self.closed = True
        shutil.rmtree(self.root, ignore_errors=True)


class ReadsFoldersAsMissing(HostedSandbox):
    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        try:
            return await super().read(path, offset=offset, limit=limit)
        except PathError:
            raise PathError(path, "missing") from None


class IgnoresTheWindow(HostedSandbox):
    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        return await super().read(path)


class SharesOneFolder(HostedSandbox):
    """Give every sandbox the same temporary files."""

    def environment(self, env: Mapping[str, str], call: str) -> dict[str, str]:
        SHARED.mkdir(exist_ok=True)
        return {**super().environment(env, call), "TMPDIR": str(SHARED)}


class RaisesWhatItLikes(HostedSandbox):
    async def list(self, path: str = ".", *, recursive: bool = False) -> tuple[Entry, ...]:
        raise ValueError("a fault of the backend")


LIARS: tuple[tuple[type[HostedSandbox], str], ...] = (
    (TurnsSignalsIntoShellCodes, "signals"),
    (MixesTheStreams, "streams"),
    (ReadsArgumentsWithAShell, "argv"),
    (HandsOnTheEnvironment, "host-environment"),
    (KeepsOnlyTheHead, "output-cap"),
    (CountsNothingDropped, "output-exact"),
    (ReportsMissingProgramsAs127, "missing-program"),
    (KillsOnlyTheProgramItself, "timeout-setsid"),
    (KillsWhatWasToBeKept, "background-kept"),
    (StartsTheClockInTheQueue, "clock"),
    (WritesInPlace, "atomic-write"),
    (OverwritesWhatHasChanged, "replacing"),
    (FollowsLinksOut, "path-dots"),
    (FollowsLinksInLists, "link-loop"),
    (DoesNotSort, "list-sorted"),
    (LosesLineBreaksInNames, "file-names"),
    (ForgetsExecutables, "snapshot-equal"),
    (PhotographsBehindLinks, "snapshot-plain"),
    (ForgetsThatItIsClosed, "use-after-close"),
    (CannotBeClosedTwice, "close-twice"),
    (LeavesProcessesBehind, "nothing-left"),
    (ReadsFoldersAsMissing, "read-missing"),
    (IgnoresTheWindow, "read-window"),
    (SharesOneFolder, "fresh"),
    (RaisesWhatItLikes, "list-wrong"),
)
"""Each liar with the check that must notice it. The honest backend passes that check."""
EXPOSED = (
    "host-files",
    "host-processes",
    "network-tcp",
    "network-udp",
    "network-abstract",
    "network-socket-file",
)
"""Checks that must notice that `Hosted` isolates nothing, although it does not say so."""


def backend_of(sandbox: type[HostedSandbox]) -> Hosted:
    """Return a backend that makes sandboxes of a kind."""
    backend = Hosted()
    backend.sandbox = sandbox
    return backend
