"""The program that answers for a submission: it imports the agent's code, calls it, and writes down what it returned.

It runs in the grading sandbox and stands at the mercy of the code that it imports: what that code can forge is its own
answer, and an answer is data. Prints go nowhere; the answer leaves through another descriptor.
"""

from __future__ import annotations

import importlib
import os
import sys

from canonical.grading.plain import NotPlainError, dump, load
from canonical.grading.watch import watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_TEXT = 2_000


def main() -> None:
    """Read a question from the standard input, and write its answer where the standard output was."""
    question = load(sys.stdin.buffer.read().decode("utf-8"))
    channel = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - this program imports as little as it can
    if question.get("is_watched"):
        watch(lambda reason: _write(channel, ("HiddenCode", reason)))
    try:
        answer: Any = _answer(question, _reach(question["target"]))
    except UnreachableError as error:
        answer = ("Unreachable", str(error))
    except BaseException as error:  # noqa: BLE001 - whatever the code raises is its answer
        answer = _raised(error)
    _write(channel, answer)
    # Threads and exit functions of the submission have nothing to add.
    os._exit(0)


def _write(channel: int, answer: Any) -> None:
    data = dump(answer).encode()
    while data:
        data = data[os.write(channel, data) :]


class UnreachableError(Exception):
    """Say why there is nothing to call."""


def _reach(target: str) -> Any:
    # What goes wrong on the way is no answer of what was asked for: a test that expects it to refuse would be deceived.
    try:
        return _find(target)
    except BaseException as error:  # noqa: BLE001 - as below
        raise UnreachableError(": ".join(_raised(error))) from None


def _answer(question: dict[str, Any], target: Any) -> list[tuple[Any, ...]]:
    if question["kind"] == "script":
        made = target(*question["init"])
        return [_one(made, named["method"], args) for args, named in question["calls"]]
    return [_one(target, None, args, named) for args, named in question["calls"]]


def _find(target: str) -> Any:
    module, _, path = target.partition(":")
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return found


def _one(
    target: Any, method: str | None, args: list[Any], named: dict[str, Any] | None = None
) -> tuple[Any, ...]:
    try:
        if method is not None:
            target = getattr(target, method)
            if not callable(target) and not args:
                return _checked(target)
        return _checked(target(*args, **(named or {})))
    except BaseException as error:  # noqa: BLE001 - as above
        return _raised(error)


def _checked(value: Any) -> tuple[Any, ...]:
    try:
        dump(value)
    except NotPlainError as error:
        return ("NotPlain", str(error))
    # A copy, because a later call may change the object.
    return (load(dump(value)),)


def _raised(error: BaseException) -> tuple[str, str]:
    try:
        text = str(error)[:_TEXT]
    except BaseException:  # noqa: BLE001 - an exception of the submission may fail to describe itself
        text = ""
    return (str(type(error).__name__), str(text))
