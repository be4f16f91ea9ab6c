"""Sources: what a user names, and the process in the stack of its framework that plays it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.stacks import (
    ReleaseStack,
    adapter_names,
    find_owner,
    library_names,
    stack_environment,
)
from canonical.adapter import SessionError
from canonical.bridge.client import SourceGoneError
from canonical.bridge.source import LiftError, LiftOptions, SourceFacts, facts_from_json
from canonical.bridge.wire import SCHEME

_START_TIMEOUT_S = 180.0
_GRACE_S = 5.0
_LINE_LIMIT = 1 << 28
_TAIL_LINES = 8


def is_source(name: str) -> bool:
    """Say whether a name is of a source, `framework:reference` or `library:reference`, and not of an environment of ours."""
    owner, colon, reference = name.partition(":")
    return bool(colon and reference) and owner in {*adapter_names(), *library_names()}


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """Hold what is to be lifted, and where.

    Attributes:
        framework: The framework, or the library of tasks, that owns it.
        reference: What its lifter is given.
        stack: The stack that it runs in.
        options: What the user said about it.
    """

    framework: str
    reference: str
    stack: ReleaseStack
    options: LiftOptions = field(default_factory=LiftOptions)

    @property
    def name(self) -> str:
        """The source as the user named it."""
        return f"{self.framework}:{self.reference}"


def find_source(
    name: str, *, release: str | None = None, options: LiftOptions | None = None
) -> SourceRequest:
    """Return the request for `framework:reference`, or `library:reference`.

    Raises:
        LiftError: The name is of no source, or nothing of its framework can be lifted.
        UnknownStackError: There is no such framework, or it has no such release.
    """
    framework, colon, reference = name.partition(":")
    if not (colon and reference):
        raise LiftError(
            f"{name!r} names no source; write framework:reference or library:reference, such as gem:game:Sudoku-v0-easy or reasoning_gym:chain_sum"
        )
    stack = find_owner(framework, release)
    if not (stack.home / "lifter.py").is_file():
        raise LiftError(f"nothing can be lifted out of {framework}: {stack.home} has no lifter.py")
    return SourceRequest(framework, reference, stack, options or LiftOptions())


@dataclass(frozen=True, slots=True)
class RunningSource:
    """Hold a source that is being lent.

    Attributes:
        facts: What it is.
        address: Where it is.
        pid: Its process.
    """

    facts: SourceFacts
    address: str
    pid: int

    @property
    def environment(self) -> str:
        """The name by which `load_environment` finds it, here and in every other stack of this machine."""
        return f"{SCHEME}{self.address}"


@asynccontextmanager
async def run_source(request: SourceRequest) -> AsyncIterator[RunningSource]:
    """Play a source in its own stack; leaving the context ends its process.

    Raises:
        LiftError: It cannot be lifted, or does not get ready in time; the text says why.
    """
    with tempfile.TemporaryDirectory(prefix="rosetta-source-") as folder:
        log = Path(folder) / "stderr"
        given = {**asdict(request.options), "arguments": dict(request.options.arguments)}
        with log.open("wb") as sink:
            try:
                process = await asyncio.create_subprocess_exec(
                    str(request.stack.python), "-P", "-m", "bench.worker.source",
                    f"{request.stack.module}.lifter", request.reference, str(Path(folder) / "source.sock"), json.dumps(given),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=sink,
                    start_new_session=True,
                    limit=_LINE_LIMIT,
                    env=stack_environment(),
                )  # fmt: skip
            except OSError as error:
                raise LiftError(f"{request.stack.python} cannot be started: {error.strerror}") from error
        try:
            answer = await _first_line(process, request, log)
            if "failed" in answer:
                raise LiftError(str(answer["failed"]))
            try:
                yield RunningSource(facts_from_json(answer["facts"]), answer["ready"], process.pid)
            except SessionError as error:
                if not _is_gone(error):
                    raise
                raise LiftError(await _obituary(process, request, log) or str(error)) from error
        finally:
            await asyncio.shield(_end(process))


def _is_gone(error: BaseException) -> bool:
    """Say whether an error, or what led to it, is that the source is gone: the start of an episode hides it in its own."""
    cause = error.__cause__
    return isinstance(error, SourceGoneError) or (cause is not None and _is_gone(cause))


async def _first_line(
    process: asyncio.subprocess.Process, request: SourceRequest, log: Path
) -> Mapping[str, Any]:
    assert process.stdout is not None  # noqa: S101 - a pipe was asked for
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            line = await process.stdout.readline()
    except TimeoutError:
        raise LiftError(f"{request.name} was not ready within {_START_TIMEOUT_S:g} s{_tail(log)}") from None
    if not line:
        await process.wait()
        raise LiftError(f"{request.name} ended with exit code {process.returncode}{_tail(log)}")
    answer: Mapping[str, Any] = json.loads(line)
    return answer


async def _obituary(process: asyncio.subprocess.Process, request: SourceRequest, log: Path) -> str | None:
    """Return how a source that is gone has ended, or None where its process lives on."""
    try:
        async with asyncio.timeout(_GRACE_S):
            code = await process.wait()
    except TimeoutError:
        return None
    return f"{request.name} ended with exit code {code} while it was played{_tail(log)}"


def _tail(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return "".join(f"\n    {line}" for line in ["; its last words:", *lines[-_TAIL_LINES:]]) if lines else ""


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(_GRACE_S):
            await process.wait()
    except TimeoutError:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
