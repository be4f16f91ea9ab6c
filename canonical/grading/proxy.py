"""What a hidden test is given: the submission, driven by value. Tests import it as `grading`.

This module also runs inside sandboxes, so it imports the standard library, `plain`, `readable` and `watch` alone, and of the
former what starts fast, as these do.
"""

from __future__ import annotations

import base64
import json

from canonical.grading.plain import NotPlainError, dump, load, same
from canonical.grading.readable import hidden_code
from canonical.grading.watch import MARK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Protocol

    class Channel(Protocol):
        """Carry a question to the host and its answer back."""

        def ask(self, header: Mapping[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
            """Return header and body of the answer."""


__all__ = ["Completed", "Solution", "SolutionError", "SolutionTimeout", "hidden_code", "same"]


class SolutionError(Exception):
    """Report that the submission raised, or gave no usable answer.

    Attributes:
        type: The name of the class of what it raised; `Unreachable` when its module cannot be imported or has nothing of that
            name, whatever was raised there; `NoAnswer` when its process ended without one, `NotPlain` when what
            it returned is no plain data, `HiddenCode` when code runs that nobody can read (see `Solution.readable`), and `Limit`
            when it hit a limit of the sandbox.
        text: What it said.
    """

    def __init__(self, type: str, text: str) -> None:  # noqa: A002 - the name that a test reads
        self.type, self.text = type, text
        super().__init__(f"{type}: {text}")


class SolutionTimeout(SolutionError):  # noqa: N818 - a kind of answer, named as tests read
    """Report that the submission did not answer in time."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__("Timeout", f"no answer within {timeout_s:g} s")


class Completed:
    """Hold how a command of the submission ended.

    Attributes:
        exit_code: The exit status; minus the number of the signal that ended it.
        stdout: The standard output as text.
        stderr: The standard error as text.
        files: The text of each file that was to be collected and is there.
    """

    def __init__(self, exit_code: int, stdout: str, stderr: str, files: Mapping[str, str]) -> None:
        self.exit_code, self.stdout, self.stderr, self.files = exit_code, stdout, stderr, files


class Solution:
    """Drive the submission in another sandbox. Values are copied both ways; only plain data crosses."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._files: dict[str, str] | None = None
        self._is_watched = False

    def call(self, target: str, /, *args: Any, timeout_s: float = 10.0, **kwargs: Any) -> Any:
        """Call a function of the submission in a fresh process and return a copy of what it returns.

        Args:
            target: `module:function`, the module found from the workspace; dots lead further in.
            *args: Its arguments.
            timeout_s: Seconds until it must have answered.
            **kwargs: Its named arguments.

        Raises:
            SolutionError: It raised, or gave no usable answer.
            SolutionTimeout: The time was up.
        """
        (answer,) = self._answers({"kind": "calls", "target": target}, [(list(args), kwargs)], timeout_s)
        if isinstance(answer, SolutionError):
            raise answer
        return answer

    def calls(
        self, target: str, arguments: Sequence[Sequence[Any]], /, *, timeout_s: float = 10.0
    ) -> list[Any]:
        """Call a function once for each list of arguments, all in one process, and return the results in order.

        In the place of a call that raised stands its `SolutionError`.

        Raises:
            SolutionError: The function cannot be reached, or the process gave no usable answer.
            SolutionTimeout: The time for all of them was up.
        """
        listed: list[Any] = [(list(one), {}) for one in arguments]
        return self._answers({"kind": "calls", "target": target}, listed, timeout_s)

    def script(
        self,
        target: str,
        init: Sequence[Any],
        steps: Sequence[tuple[str, Sequence[Any]]],
        /,
        *,
        timeout_s: float = 10.0,
    ) -> list[Any]:
        """Make an object of a class of the submission, call its methods in order, and return their results.

        A method whose name stands alone in the class as a property is read. In the place of a call that raised stands its
        `SolutionError`.

        Args:
            target: `module:Class`.
            init: What the class is called with.
            steps: Pairs of a method's name and its arguments.
            timeout_s: Seconds until all must be done.

        Raises:
            SolutionError: The object cannot be made, or the process gave no usable answer.
            SolutionTimeout: The time was up.
        """
        listed = [(list(args), {"method": name}) for name, args in steps]
        return self._answers({"kind": "script", "target": target, "init": list(init)}, listed, timeout_s)

    def run(
        self,
        argv: Sequence[str],
        stdin: str | bytes = "",
        files: Mapping[str, str | bytes] | None = None,
        timeout_s: float = 10.0,
        collect: Sequence[str] = (),
        *,
        cpu_s: float | None = None,
    ) -> Completed:
        """Run a command in a fresh copy of the workspace.

        Args:
            argv: Program and arguments; no shell reads them.
            stdin: What it reads.
            files: Files to add to the copy first: path -> content.
            timeout_s: Seconds until it must have ended.
            collect: Paths of files to return the text of afterwards.
            cpu_s: Seconds of processor time that it may use; the task's limit when left out. A bound on speed belongs here,
                because a busy machine lengthens the time on the wall and leaves this one as it is.

        Raises:
            SolutionError: The command cannot be started, or used more than it may (`Limit`).
            SolutionTimeout: The time was up.
            ValueError: The submission is watched, and the command is neither `python3 -c CODE` nor `python3 FILE`.
        """
        if self._is_watched and (argv[0] != "python3" or (argv[1].startswith("-") and argv[1] != "-c")):
            raise ValueError(
                "after `readable`, a command is `python3 -c CODE` or `python3 FILE`: no other can be watched"
            )
        request: dict[str, Any] = {
            "argv": list(argv),
            "stdin": _base64(stdin),
            "files": {path: _base64(content) for path, content in (files or {}).items()},
            "collect": list(collect),
            "is_watched": self._is_watched,
        }
        asked: dict[str, Any] = {"op": "run", "timeout_s": timeout_s}
        if cpu_s is not None:
            asked["cpu_s"] = cpu_s
        header, body = self._channel.ask(asked, json.dumps(request).encode())
        _raise_failure(header, timeout_s)
        done = json.loads(body)
        last = _text(done["stderr"]).rstrip("\n").rpartition("\n")[2]
        if self._is_watched and last.startswith(MARK):
            raise SolutionError("HiddenCode", last.removeprefix(MARK))
        return Completed(
            exit_code=done["exit_code"],
            stdout=_text(done["stdout"]),
            stderr=_text(done["stderr"]),
            files={path: _text(content) for path, content in done["files"].items()},
        )

    def files(self) -> dict[str, str]:
        """Return the text of every file that is graded, by path: the submission over what the task gave."""
        if self._files is None:
            _, body = self._channel.ask({"op": "files"}, b"")
            self._files = {path: _text(content) for path, content in json.loads(body).items()}
        return dict(self._files)

    def read(self, path: str) -> str:
        """Return the text of a file that is graded.

        Raises:
            SolutionError: There is no such file.
        """
        try:
            return self.files()[path]
        except KeyError:
            raise SolutionError("FileNotFoundError", path) from None

    def readable(self, path: str) -> str:
        """Return the text of a Python file of which a test judges the shape, once all code that runs can be seen in it.

        Ask for each file of the solution: one that nobody has asked for may run, too.

        From now on, the processes of this submission are watched, too: one that makes or runs code that stands in no file is
        ended, and what asked for it raises `HiddenCode`.

        Raises:
            SolutionError: There is no such file, or something in it hides which code runs (`HiddenCode`).
            SyntaxError: It is not Python.
        """
        self._is_watched = True
        source = self.read(path)
        if hidden := hidden_code(source):
            raise SolutionError("HiddenCode", "; ".join(hidden))
        return source

    def _answers(self, question: dict[str, Any], calls: list[Any], timeout_s: float) -> list[Any]:
        text = dump({**question, "calls": calls, "is_watched": self._is_watched})
        header, body = self._channel.ask({"op": "ask", "timeout_s": timeout_s}, text.encode())
        _raise_failure(header, timeout_s)
        try:
            answers = load(body.decode("utf-8", "strict"))
        except (NotPlainError, UnicodeDecodeError):
            raise SolutionError("NoAnswer", "what came back is not an answer") from None
        if type(answers) is not list or len(answers) != len(calls) or not all(map(_is_answer, answers)):
            if _is_answer(answers) and len(answers) == 2:
                raise SolutionError(*answers)
            raise SolutionError("NoAnswer", "what came back is not an answer")
        return [answer[0] if len(answer) == 1 else SolutionError(*answer) for answer in answers]


def _is_answer(answer: Any) -> bool:
    """Say whether this is a value alone in a tuple, or the type and the text of what was raised."""
    if type(answer) is not tuple:
        return False
    return len(answer) == 1 or (len(answer) == 2 and all(type(part) is str for part in answer))


def _raise_failure(header: Mapping[str, Any], timeout_s: float) -> None:
    status = header.get("status")
    if status == "timeout":
        raise SolutionTimeout(timeout_s)
    if status != "ok":
        raise SolutionError(str(header.get("type")), str(header.get("text")))


def _base64(content: str | bytes) -> str:
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    return base64.b64encode(data).decode("ascii")


def _text(content: str) -> str:
    return base64.b64decode(content).decode("utf-8", "replace")
