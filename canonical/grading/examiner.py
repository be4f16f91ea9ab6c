"""The program that runs one hidden test. No code of an agent ever runs in its sandbox.

The test asks the submission through the host. Questions and answers pass through two named pipes, because a sandbox
offers commands that run to their end and nothing else: the test stays alive in the background, and each command of the
host puts an answer in and takes the next question out.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time

from canonical.grading.proxy import Solution, SolutionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_REASON = 500
# What generators, coroutines and asynchronous generators have: code that was called, and runs only when it is asked to.
_UNFINISHED = ("__next__", "__await__", "__anext__")


class _Pipes:
    """Carry frames to and from the host: a header as a line of JSON, and a body."""

    def __init__(self, answers: str, questions: str) -> None:
        self._answers, self._questions = answers, questions
        self._since = time.monotonic()

    def ask(self, header: Mapping[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        """Send a question, and wait for its answer."""
        self.tell(header, body)
        with open(self._answers, "rb") as pipe:  # noqa: PTH123 - this program imports as little as it can
            first, _, rest = pipe.read().partition(b"\n")
        self._since = time.monotonic()
        answer: dict[str, Any] = json.loads(first)
        return answer, rest

    def tell(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        """Send a frame, with the seconds that the test has been at work since the last answer."""
        head = {**header, "worked_s": time.monotonic() - self._since}
        with open(self._questions, "wb") as pipe:  # noqa: PTH123 - as above
            pipe.write(json.dumps(head).encode() + b"\n" + body)


def main() -> None:
    """Start the test that the standard input names, and write its first question to the standard output."""
    request = json.loads(sys.stdin.buffer.read())
    # No code of an agent runs here, so a name that is new is enough; the module for others starts slowly.
    place = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - of the sandbox
    folder = f"{place}/test-{os.getpid()}-{time.monotonic_ns()}"
    os.mkdir(folder, 0o700)  # noqa: PTH102 - as below
    answers, questions = (os.path.join(folder, name) for name in ("answers", "questions"))  # noqa: PTH118 - as above
    os.mkfifo(answers)
    os.mkfifo(questions)
    if os.fork() == 0:
        _supervise(request, _Pipes(answers, questions))
    sys.stdout.write(json.dumps({"answers": answers, "questions": questions}) + "\n")
    sys.stdout.flush()
    with open(questions, "rb") as pipe:  # noqa: PTH123 - as above
        sys.stdout.buffer.write(pipe.read())
    sys.stdout.flush()


def _supervise(request: Mapping[str, Any], pipes: _Pipes) -> None:
    """Run the test in a child, and say so when it dies without a verdict."""
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    child = os.fork()
    if child == 0:
        pipes.tell(_verdict(request, pipes))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status != 0:
        pipes.tell({"op": "verdict", "passed": False, "reason": f"the test's process died (status {status})"})
    os._exit(0)


def _verdict(request: Mapping[str, Any], pipes: _Pipes) -> dict[str, Any]:
    reason = ""
    try:
        returned = _load(request["path"], request["name"])(Solution(pipes))
        if any(hasattr(returned, name) for name in _UNFINISHED):
            reason = f"it returned a {type(returned).__name__}, of which nothing has run; a test is a plain function"
    except BaseException as error:  # noqa: BLE001 - a test that raises anything has failed
        reason = _describe(error)
    return {"op": "verdict", "passed": not reason, "reason": reason}


def _load(path: str, name: str) -> Any:
    sys.path.insert(0, os.path.abspath(os.path.dirname(path)))  # noqa: PTH100, PTH120 - as above
    specification = importlib.util.spec_from_file_location("hidden_test", path)
    if specification is None or specification.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(specification)
    sys.modules["hidden_test"] = module
    specification.loader.exec_module(module)
    return getattr(module, name)


def _describe(error: BaseException) -> str:
    import traceback  # noqa: PLC0415 - most tests pass

    frames = traceback.extract_tb(error.__traceback__)
    line = frames[-1].lineno if frames else None
    kind = f"{error.type} of the submission" if isinstance(error, SolutionError) else type(error).__name__
    text = error.text if isinstance(error, SolutionError) else str(error)
    return " ".join(f"{kind} at line {line}: {text}".split())[:_REASON]
