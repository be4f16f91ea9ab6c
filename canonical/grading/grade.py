"""Grading: run the hidden tests on a submission in fresh sandboxes, and report which passed."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

from canonical.sandbox.program import python_program
from canonical.sandbox.protocol import (
    Backend,
    CommandFailedError,
    CommandTimeoutError,
    LimitError,
    Limits,
    PathError,
    RefusedError,
    Sandbox,
    SandboxError,
    SandboxGoneError,
    Snapshot,
)

ANSWER_BYTES = 8 << 20
"""How many bytes one answer of a submission, and one question of a test, may have."""

MAX_QUESTIONS = 20_000
MAX_CALL_S = 120.0
_RUN_BYTES = 1 << 20
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8"}
_EXAMINER = python_program(
    (
        "canonical.grading.plain",
        "canonical.grading.readable",
        "canonical.grading.watch",
        "canonical.grading.proxy",
        "canonical.grading.examiner",
    ),
    (("grading", "canonical.grading.proxy"),),
)
_RESPONDENT = python_program(
    ("canonical.grading.plain", "canonical.grading.watch", "canonical.grading.respondent")
)
_WATCHED = python_program(("canonical.grading.watch",), with_packages=True)
# A test must not fail because others keep the machine busy. How long its own commands had to wait for their turn is known;
# the commands of the submission, one for each of them, wait about as long, and one more time is for what is not.
_QUEUES = 3.0
# A pipe that nobody reads or writes any more would hold these commands for ever; their timeout does not.
_EXCHANGE = ["sh", "-c", 'cat >"$1" && exec cat "$2"', "sh"]


class GradingError(RuntimeError):
    """Report that grading itself failed, so that nothing is known about the submission."""


@dataclass(frozen=True, slots=True)
class HiddenTest:
    """Name one hidden test.

    Attributes:
        name: The name of a top-level function that takes the submission.
        path: The file that defines it, relative to the folder of the tests.
        weight: How much it counts.
    """

    name: str
    path: str
    weight: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Hold how one hidden test went.

    Attributes:
        name: Its name.
        weight: How much it counts.
        passed: Whether it returned.
        reason: Why it did not. It may quote the hidden test, so it is for authors.
    """

    name: str
    weight: float
    passed: bool
    reason: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Report:
    """Hold the results of all hidden tests, in the order in which they were asked for.

    Attributes:
        results: One for each test.
        is_all_or_nothing: Whether a part of the tests is worth nothing.
    """

    results: tuple[Verdict, ...]
    is_all_or_nothing: bool = False

    @property
    def share(self) -> float:
        """The weight of the tests that passed, as a share of all: exactly 1.0 when all did, and below 1.0 otherwise."""
        if all(result.passed for result in self.results):
            return 1.0
        if self.is_all_or_nothing:
            return 0.0
        whole = math.fsum(result.weight for result in self.results)
        share = math.fsum(result.weight for result in self.results if result.passed) / whole
        return min(share, math.nextafter(1.0, 0.0))


async def grade(
    backend: Backend,
    submitted: Snapshot,
    tests: Snapshot,
    names: Sequence[HiddenTest],
    *,
    limits: Limits | None = None,
    test_s: float = 60.0,
) -> Report:
    """Run hidden tests on a submission and report.

    The tests run in one sandbox, the submission in others; what passes between them is plain data. A test fails when it
    raises, when it is not done in time, and when its process or a sandbox dies of it.

    Args:
        backend: Makes the sandboxes.
        submitted: The files to grade.
        tests: The hidden files.
        names: The tests to run.
        limits: What the sandboxes of the submission may use.
        test_s: Seconds for each test, the answers of the submission included, waiting for a turn left out.

    Raises:
        GradingError: A sandbox cannot be opened, or lacks what grading needs.
    """
    async with one_of_few():
        grading = _Grading(backend, submitted, tests, limits or Limits(), test_s)
        try:
            return Report(tuple([await grading.result(test) for test in names]))
        finally:
            await grading.close()


_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


def one_of_few() -> asyncio.Semaphore:
    """Return what to hold while grading in this event loop."""
    # More gradings at once than the processors can carry would only let each other's clocks run out.
    loop = asyncio.get_running_loop()
    if loop not in _TURNS:
        _TURNS[loop] = asyncio.Semaphore(2 * len(os.sched_getaffinity(0)))
    return _TURNS[loop]


@dataclass(slots=True)
class _Grading:
    backend: Backend
    submitted: Snapshot
    tests: Snapshot
    limits: Limits
    test_s: float
    examining: Sandbox | None = None
    answering: Sandbox | None = None

    async def result(self, test: HiddenTest) -> Verdict:
        passed, reason = False, ""
        for _ in range(2):
            try:
                passed, reason = await self._examine(test)
                break
            except SandboxGoneError:
                # Once may be an accident outside; twice is the doing of the test or of what it was answered.
                self.examining, reason = None, "the sandbox of the test died"
        return Verdict(test.name, test.weight, passed, reason)

    async def close(self) -> None:
        for sandbox in (self.examining, self.answering):
            if sandbox is not None:
                with suppress(SandboxError):
                    await sandbox.close()

    async def _examine(self, test: HiddenTest) -> tuple[bool, str]:
        if self.examining is None:
            try:
                self.examining = await self._open(self.tests, Limits(output_bytes=2 * ANSWER_BYTES))
            except LimitError as error:
                raise GradingError(f"the hidden tests do not fit into a sandbox: {error}") from error
        sandbox = self.examining
        started = time.monotonic()
        deadline = started + self.test_s
        request = json.dumps({"path": test.path, "name": test.name}).encode()
        try:
            done = await sandbox.exec(
                _EXAMINER,
                timeout_s=self.test_s,
                stdin=request,
                env=_ENVIRONMENT,
                keep_background=True,
            )
            first, _, frame = done.stdout.partition(b"\n")
            pipes = _json(first)
            argv = [*_EXCHANGE, str(pipes["answers"]), str(pipes["questions"])]
            for _ in range(MAX_QUESTIONS):
                header, body = _frame(frame)
                if header.get("op") == "verdict":
                    return header.get("passed") is True, str(header.get("reason", ""))[:1_000]
                deadline += _QUEUES * _waited(header, time.monotonic() - started)
                answer = await self._answer(header, body)
                started = time.monotonic()
                if started >= deadline:
                    return False, self._too_late
                done = await sandbox.exec(
                    argv, timeout_s=deadline - started, stdin=answer, keep_background=True
                )
                frame = done.stdout
        except CommandTimeoutError:
            return False, self._too_late
        except LimitError as error:
            return False, f"the process of the test hit a limit: {error}"
        except CommandFailedError as error:
            raise GradingError(f"the sandbox cannot run a test: {error}") from error
        except _FrameError as error:
            return False, f"the process of the test failed: {error}"
        else:
            return False, f"the test asked more than {MAX_QUESTIONS} questions"
        finally:
            with suppress(SandboxError):
                await sandbox.stop_processes()

    @property
    def _too_late(self) -> str:
        return f"the test was not done within {self.test_s:g} s"

    async def _answer(self, header: Mapping[str, Any], body: bytes) -> bytes:
        match header.get("op"):
            case "ask":
                return await self._ask(_seconds(header), body)
            case "run":
                cpu_s = _seconds(header, "cpu_s") if "cpu_s" in header else self.limits.cpu_s
                limits = replace(self.limits, cpu_s=min(cpu_s, self.limits.cpu_s))
                return await self._run(_seconds(header), limits, body)
            case "files":
                files = await asyncio.to_thread(_listing, self.submitted.files)
                return _reply({"status": "ok"}, files)
            case _:
                raise _FrameError("it asked what nobody knows")

    async def _ask(self, timeout_s: float, question: bytes) -> bytes:
        try:
            if self.answering is None:
                self.answering = await self._open(
                    self.submitted, replace(self.limits, output_bytes=2 * ANSWER_BYTES)
                )
            done = await self.answering.exec(
                _RESPONDENT, timeout_s=timeout_s, stdin=question, env=_ENVIRONMENT
            )
        except CommandTimeoutError:
            return _reply({"status": "timeout"})
        except LimitError as error:
            return _reply(_failure("Limit", str(error)))
        except SandboxGoneError:
            self.answering = None
            return _reply(_failure("NoAnswer", "the sandbox of the submission died"))
        except CommandFailedError as error:
            raise GradingError(f"the sandbox cannot run a submission: {error}") from error
        if done.stdout_dropped or len(done.stdout) > ANSWER_BYTES:
            return _reply(_failure("NoAnswer", f"the answer has more than {ANSWER_BYTES} bytes"))
        if not done.stdout:
            return _reply(
                _failure("NoAnswer", f"the process ended with exit code {done.exit_code} and no answer")
            )
        return _reply({"status": "ok"}, done.stdout)

    async def _run(self, timeout_s: float, limits: Limits, body: bytes) -> bytes:
        try:
            request = _json(body)
            argv, collect = (
                [str(part) for part in request["argv"]],
                [str(path) for path in request["collect"]],
            )
            if request.get("is_watched"):
                argv = [*_WATCHED, *argv[1:]]
            stdin = base64.b64decode(request["stdin"])
            files = {str(path): base64.b64decode(content) for path, content in request["files"].items()}
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise _FrameError(f"its command cannot be read: {type(error).__name__}") from None
        sandbox: Sandbox | None = None
        try:
            sandbox = await self._open(self.submitted, replace(limits, output_bytes=2 * _RUN_BYTES))
            for path, content in files.items():
                await sandbox.write(path, content)
            done = await sandbox.exec(argv, timeout_s=timeout_s, stdin=stdin, env=_ENVIRONMENT)
            kept: dict[str, bytes] = {}
            for path in collect:
                with suppress(PathError, RefusedError):
                    kept[path] = await sandbox.read(path, limit=_RUN_BYTES)
        except CommandTimeoutError:
            return _reply({"status": "timeout"})
        except CommandFailedError as error:
            return _reply(_failure("CommandFailed", str(error)))
        except (LimitError, SandboxGoneError) as error:
            return _reply(_failure("Limit", str(error)))
        except (PathError, RefusedError) as error:
            raise _FrameError(f"a file cannot be added: {error}") from None
        finally:
            if sandbox is not None:
                with suppress(SandboxError):
                    await sandbox.close()
        if done.stdout_dropped or done.stderr_dropped:
            return _reply(_failure("Limit", f"the command wrote more than {2 * _RUN_BYTES} bytes"))
        completed = {
            "exit_code": done.exit_code,
            "stdout": base64.b64encode(done.stdout).decode("ascii"),
            "stderr": base64.b64encode(done.stderr).decode("ascii"),
            "files": {path: base64.b64encode(data).decode("ascii") for path, data in kept.items()},
        }
        return _reply({"status": "ok"}, json.dumps(completed).encode())

    async def _open(self, start: Snapshot, limits: Limits) -> Sandbox:
        """Return a new sandbox; a `LimitError` is left to the caller, who knows whose files did not fit."""
        try:
            return await self.backend.open(start, limits=limits)
        except LimitError:
            raise
        except SandboxError as error:
            raise GradingError(f"no sandbox to grade in: {error}") from error


class _FrameError(ValueError):
    """Report a frame that cannot be understood."""


def _frame(data: bytes) -> tuple[Mapping[str, Any], bytes]:
    if len(data) > ANSWER_BYTES:
        raise _FrameError(f"its question has more than {ANSWER_BYTES} bytes")
    first, _, body = data.partition(b"\n")
    return _json(first), body


def _json(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise _FrameError("it wrote what cannot be read") from None
    if not isinstance(value, dict):
        raise _FrameError("it wrote what cannot be read")
    return value


def _waited(header: Mapping[str, Any], elapsed_s: float) -> float:
    """Return for how long a command of the test's sandbox has not been at work."""
    worked = header.get("worked_s")
    if not isinstance(worked, int | float) or not math.isfinite(worked):
        raise _FrameError("it does not say how long it worked")
    return max(elapsed_s - max(float(worked), 0.0), 0.0)


def _seconds(header: Mapping[str, Any], name: str = "timeout_s") -> float:
    value = header.get(name)
    if not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise _FrameError("its time limit is no positive number")
    return min(float(value), MAX_CALL_S)


def _failure(kind: str, text: str) -> dict[str, str]:
    return {"status": "failed", "type": kind, "text": text}


def _reply(header: Mapping[str, Any], body: bytes = b"") -> bytes:
    return json.dumps(header).encode() + b"\n" + body


def _listing(files: Mapping[str, bytes]) -> bytes:
    return json.dumps({path: base64.b64encode(data).decode("ascii") for path, data in files.items()}).encode()
