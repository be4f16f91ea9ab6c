"""What a check is, and what it works with: sandboxes that close by themselves, and words for broken promises.

Programs that checks run inside a sandbox need `bash`, the usual tools of a system, and `python3`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from canonical.sandbox.protocol import (
    Backend,
    Exec,
    Isolation,
    Limits,
    PathError,
    RefusedError,
    Sandbox,
    SandboxError,
    Snapshot,
)

SMALL = Limits(
    cpu_s=20.0,
    memory_bytes=512 << 20,
    processes=64,
    file_bytes=16 << 20,
    disk_bytes=32 << 20,
    output_bytes=30_000,
    open_files=128,
)
"""The limits of sandboxes in checks: large enough for ordinary programs, small enough to be reached quickly."""

Raised = TypeVar("Raised", bound=BaseException)


class BrokenPromiseError(Exception):
    """Report a promise that a backend does not keep, with what was seen."""


class NotApplicableError(Exception):
    """Report a promise that a backend openly does not make, or that cannot be tried here."""


@dataclass(frozen=True, slots=True)
class Check:
    """Hold one check.

    Attributes:
        name: Its name, as `--check` takes it.
        promise: What a backend promises, in one sentence.
        run: Tries it, and returns what was seen; raises `BrokenPromiseError` or `NotApplicableError`.
        about: What of `Isolation` it is about; when a backend reports that as missing, the check does not apply.
        alone: Whether it disturbs, or is disturbed by, checks that run at the same time.
    """

    name: str
    promise: str
    run: Callable[[Place], Awaitable[str]]
    about: str = ""
    alone: bool = False


@dataclass(slots=True)
class Place:
    """Give one check what it needs.

    Attributes:
        backend: The backend that is checked.
        isolation: What it says that it enforces.
        token: Letters and digits that occur nowhere else.
        canary: The value of a variable in the environment of this process, which no sandbox may show.
    """

    backend: Backend
    isolation: Isolation
    token: str
    canary: str
    _open: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def open(self, start: Snapshot | None = None, **limits: Any) -> Sandbox:
        """Open a sandbox with small limits, some of them changed; it is closed when the check ends."""
        sandbox = await self.backend.open(start, limits=replace(SMALL, **limits))
        self._open.push_async_callback(sandbox.close)
        return sandbox

    def at_the_end(self, action: Callable[[], Any]) -> None:
        """Do something when the check ends, however it ends."""
        self._open.callback(action)

    async def leave(self) -> None:
        """Close what the check opened."""
        await self._open.aclose()


def expect(kept: bool, sentence: str) -> None:
    """Report a broken promise unless it was kept.

    Raises:
        BrokenPromiseError: It was not.
    """
    if not kept:
        raise BrokenPromiseError(sentence)


async def expect_raises(
    kinds: type[Raised] | tuple[type[Raised], ...], call: Awaitable[object], what: str
) -> Raised:
    """Return the exception that a call must raise.

    Raises:
        BrokenPromiseError: It raised another one, or none.
    """
    wanted = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
    try:
        answer = await call
    except kinds as raised:
        return raised
    except Exception as raised:
        raise BrokenPromiseError(
            f"{what} raised {type(raised).__name__} ({shorten(str(raised))}) instead of {wanted}"
        ) from raised
    raise BrokenPromiseError(f"{what} answered {shorten(repr(answer))} instead of raising {wanted}")


async def expect_refused(call: Awaitable[object], what: str) -> None:
    """Require that a path is not used, whichever of the two errors says so."""
    await expect_raises((RefusedError, PathError), call, what)


async def expect_alive(sandbox: Sandbox) -> None:
    """Require that a sandbox still runs commands and keeps files."""
    try:
        done = await sandbox.exec(["bash", "-c", "echo alive"], timeout_s=20)
        await sandbox.write("alive.txt", b"alive")
        kept = await sandbox.read("alive.txt")
    except SandboxError as error:
        raise BrokenPromiseError(
            f"afterwards the sandbox is not usable: {type(error).__name__}: {error}"
        ) from error
    expect(
        (done.exit_code, done.stdout, kept) == (0, b"alive\n", b"alive"),
        f"afterwards the sandbox answers wrongly: {shown(done)}",
    )


async def shell(sandbox: Sandbox, script: str, *, timeout_s: float = 30, **options: Any) -> Exec:
    """Run a script of bash, which has to end by itself."""
    return await sandbox.exec(["bash", "-c", script], timeout_s=timeout_s, **options)


async def python(sandbox: Sandbox, code: str, *arguments: str, timeout_s: float = 30, **options: Any) -> Exec:
    """Run a program of Python, which has to end by itself."""
    return await sandbox.exec(["python3", "-I", "-c", code, *arguments], timeout_s=timeout_s, **options)


def succeeded(done: Exec) -> str:
    """Return what a command printed, which must have succeeded for the check to mean anything.

    Raises:
        BrokenPromiseError: It failed.
    """
    expect(done.exit_code == 0, f"a command of the check failed: {shown(done)}")
    return done.stdout.decode("utf-8", "replace").strip()


def shown(done: Exec) -> str:
    """Write how a command ended in a few words."""
    text = f"exit code {done.exit_code}, stdout {done.stdout[:120]!r}, stderr {done.stderr[-200:]!r}"
    dropped = f", dropped {done.stdout_dropped} and {done.stderr_dropped}"
    return text + (dropped if done.stdout_dropped or done.stderr_dropped else "")


def shorten(text: str, limit: int = 200) -> str:
    """Cut a text that may be long."""
    return text if len(text) <= limit else f"{text[:limit]}..."


BEAT = (
    "import os,sys,time\n"
    "while True:\n"
    " open('beat.new','w').write(str(time.monotonic_ns())); os.replace('beat.new','beat'); time.sleep(0.05)\n"
)
"""A program that writes a growing number into the file `beat` until it is killed."""


async def beats(sandbox: Sandbox) -> bool:
    """Whether the program `BEAT` is alive."""
    for _ in range(100):
        with contextlib.suppress(PathError):
            await sandbox.read("beat")
            break
        await asyncio.sleep(0.05)
    else:
        return False
    first = await sandbox.read("beat")
    for _ in range(16):
        await asyncio.sleep(0.1)
        if await sandbox.read("beat") != first:
            return True
    return False


def processes_with(word: str) -> list[int]:
    """Return the processes of this machine, as far as this user sees them, that have a word in their command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if word.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


async def are_gone(word: str, *, within_s: float = 10.0) -> bool:
    """Whether every process with a word in its command line ends within a time."""
    for _ in range(int(within_s * 10)):
        if not processes_with(word):
            return True
        await asyncio.sleep(0.1)
    return not processes_with(word)


def in_words(names: Iterable[str]) -> str:
    """Join some names."""
    return ", ".join(names) or "none"


def same_files(first: Mapping[str, bytes], second: Mapping[str, bytes]) -> str:
    """Say how two sets of files differ; nothing when they do not."""
    if dict(first) == dict(second):
        return ""
    lost, new = sorted(first.keys() - second.keys()), sorted(second.keys() - first.keys())
    other = sorted(path for path in first.keys() & second.keys() if first[path] != second[path])
    return shorten(f"missing {lost[:4]}, unexpected {new[:4]}, different {other[:4]}", 400)
