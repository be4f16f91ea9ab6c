"""Client: start a worker in a framework's stack and talk to it; whatever happens, nothing is left running."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from bench import protocol
from bench.samples import SampleColumns
from bench.stacks import Stack, stack_environment

ReplyT = TypeVar("ReplyT")
_LINE_LIMIT = 1 << 28
_START_TIMEOUT_S = 120.0
_TAIL_LINES = 12
_SHORT_GRACE_S = 0.5


class WorkerError(RuntimeError):
    """Report that a worker could not do what it was asked, with the end of what it wrote to stderr."""


class WorkerDied(WorkerError):  # noqa: N818 - it is what happened
    """Report that a worker's process has ended."""


class RequestFailed(WorkerError):  # noqa: N818 - it is what happened
    """Report that a worker answered with a failure; `kind` says which sort.

    Attributes:
        kind: As in `bench.protocol.Failed`.
        reason: The worker's own words.
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


class Worker:
    """Speak to one running worker. Create it with `start_worker`."""

    def __init__(self, process: asyncio.subprocess.Process, stderr: Path, label: str) -> None:
        self.label = label
        self.started: protocol.Started
        self._process = process
        self._stderr = stderr
        self._seq = 0
        self._waiting: dict[int, asyncio.Future[protocol.Reply]] = {}
        self._on_samples: dict[int, Callable[[SampleColumns], None]] = {}
        self._kept: str | None = None
        self._reading = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        """The process id, which is also its process group."""
        return self._process.pid

    async def wait(self) -> None:
        """Wait until the worker's process ends by itself.

        Raises:
            WorkerDied: It did.
        """
        await self._process.wait()
        raise WorkerDied(self._epitaph())

    @property
    def has_died(self) -> bool:
        """Whether the worker's process has ended."""
        return self._process.returncode is not None

    async def request(
        self,
        reply_type: type[ReplyT],
        message: Callable[[int], protocol.Request],
        *,
        timeout_s: float,
        on_samples: Callable[[SampleColumns], None] | None = None,
    ) -> ReplyT:
        """Send a request and wait for its reply.

        Args:
            reply_type: The expected reply.
            message: Makes the request from the sequence number that it must carry.
            timeout_s: How long to wait, in seconds.
            on_samples: Called with every batch of samples that comes before the reply.

        Raises:
            RequestFailed: The worker could not carry out the request.
            WorkerDied: The worker's process ended.
            WorkerError: No reply came in time, or not the expected one.
        """
        self._seq += 1
        seq = self._seq
        future: asyncio.Future[protocol.Reply] = asyncio.get_running_loop().create_future()
        self._waiting[seq] = future
        if on_samples is not None:
            self._on_samples[seq] = on_samples
        request = message(seq)
        try:
            if self._reading.done():
                raise WorkerDied(self._epitaph())
            assert self._process.stdin is not None  # noqa: S101 - a pipe was asked for
            self._process.stdin.write(json.dumps(request.model_dump()).encode("ascii") + b"\n")
            with contextlib.suppress(ConnectionError):
                await self._process.stdin.drain()
            async with asyncio.timeout(timeout_s):
                reply = await future
        except TimeoutError:
            raise WorkerError(
                f"{self.label} did not answer '{request.type}' within {timeout_s:g} s{self._tail()}"
            ) from None
        finally:
            self._waiting.pop(seq, None)
            self._on_samples.pop(seq, None)
        if isinstance(reply, protocol.Failed):
            raise RequestFailed(reply.kind, reply.reason)
        if not isinstance(reply, reply_type):
            raise WorkerError(f"{self.label} answered '{request.type}' with '{reply.type}'")
        return reply

    async def observe(self, *, collect: bool = False) -> protocol.Observed:
        """Return what the worker's process uses; with `collect`, after everything unreachable has been freed."""
        return await self.request(
            protocol.Observed, lambda seq: protocol.Observe(seq=seq, collect=collect), timeout_s=60
        )

    @property
    def log(self) -> bytes:
        """Everything that the worker, and the framework in it, has printed or logged so far."""
        try:
            return self._stderr.read_bytes()
        except OSError:
            return b""

    async def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        while line := await self._process.stdout.readline():
            try:
                reply = protocol.REPLIES.validate_python(json.loads(line))
            except (ValidationError, json.JSONDecodeError) as error:
                self._fail_all(WorkerError(f"{self.label} sent something that is no reply: {error}"))
                continue
            if isinstance(reply, protocol.Samples):
                if reply.seq in self._on_samples:
                    self._on_samples[reply.seq](SampleColumns.load(BytesIO(base64.b64decode(reply.dump))))
            elif reply.seq in self._waiting and not self._waiting[reply.seq].done():
                self._waiting[reply.seq].set_result(reply)
            elif isinstance(reply, protocol.Failed) and reply.seq < 0:
                self._fail_all(WorkerError(f"{self.label} could not read a request: {reply.reason}"))
        await self._process.wait()
        self._fail_all(WorkerDied(self._epitaph()))

    def _fail_all(self, error: WorkerError) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)

    def _epitaph(self) -> str:
        code = self._process.returncode
        how = (
            f"was killed by signal {-code}"
            if code is not None and code < 0
            else f"ended with exit code {code}"
        )
        if code == -signal.SIGKILL:
            how += (
                ", probably because the machine ran out of memory (then the kernel's log says so, see dmesg; hold fewer "
                f"sessions), or because somebody killed it{self._kept_log()}"
            )
        return f"{self.label} {how}{self._tail()}"

    def _kept_log(self) -> str:
        """Keep what the worker printed where it outlives the worker, once, and say where."""
        if self._kept is None and self.log:
            with tempfile.NamedTemporaryFile(prefix="rosetta-", suffix=".log", delete=False) as file:
                file.write(self.log)
            self._kept = file.name
        return f"; all that it printed is kept in {self._kept}" if self._kept else ""

    def _tail(self) -> str:
        try:
            lines = self._stderr.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        tail = [line for line in lines if line.strip()][-_TAIL_LINES:]
        return "".join(f"\n    {line}" for line in ["; its last words:", *tail]) if tail else ""

    async def stop(self, *, grace_s: float = 10.0) -> None:
        """End the worker: close its stdin, and kill its process group if that does not help in time."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(grace_s):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)


@asynccontextmanager
async def start_worker(python: Path, adapter: str, *, label: str | None = None) -> AsyncIterator[Worker]:
    """Start a worker in the stack of a Python interpreter and shake hands; leaving the context ends it.

    Args:
        python: The interpreter of the stack.
        adapter: Folder name under `adapters/`, or a dotted module that holds `ADAPTER`.
        label: What error messages call this worker.

    Raises:
        WorkerError: The worker does not start; the text says why.
    """
    name = label or f"the {adapter} worker"
    with tempfile.TemporaryDirectory(prefix="rosetta-worker-") as folder:
        stderr = Path(folder) / "stderr"
        with stderr.open("wb") as sink:
            try:
                process = await asyncio.create_subprocess_exec(
                    str(python), "-P", "-m", "bench.worker", "--adapter", adapter,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=sink,
                    start_new_session=True,
                    limit=_LINE_LIMIT,
                    env=stack_environment(),
                )  # fmt: skip
            except OSError as error:
                raise WorkerError(f"{name} cannot be started with {python}: {error.strerror}") from error
        worker = Worker(process, stderr, name)
        try:
            worker.started = await worker.request(
                protocol.Started,
                lambda seq: protocol.Start(seq=seq, protocol=protocol.PROTOCOL),
                timeout_s=_START_TIMEOUT_S,
            )
            yield worker
        except BaseException:
            # Whoever interrupts, or was told of a failure, does not wait for a server that drains.
            await asyncio.shield(worker.stop(grace_s=_SHORT_GRACE_S))
            raise
        else:
            await asyncio.shield(worker.stop())


@asynccontextmanager
async def start_both(stack: Stack) -> AsyncIterator[tuple[Worker, Worker]]:
    """Start the worker that serves and the one that plays with the framework's client; leaving the context ends both.

    For a framework that runs in process they are one and the same.

    Args:
        stack: The framework release, whose stack must be ready.

    Raises:
        WorkerError: One of them does not start.
    """
    async with AsyncExitStack() as running:
        driver = await running.enter_async_context(
            start_worker(stack.python, stack.worker, label=f"the {stack.label} client")
        )
        if stack.facts.kind == "in_process":
            yield driver, driver
            return
        host = await running.enter_async_context(
            start_worker(stack.python, stack.worker, label=f"the {stack.label} server")
        )
        yield host, driver


def merge_samples(batches: list[SampleColumns]) -> SampleColumns:
    """Return one set of samples that holds the rows of all batches, in order."""
    merged = SampleColumns()
    for batch in batches:
        for row in batch:
            merged.append(*row)
    return merged
