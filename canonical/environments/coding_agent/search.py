"""The program behind glob and grep. It runs inside the sandbox, so that no pattern costs the host anything."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from canonical.pattern import matches

MAX_LINES = 500
MAX_LINE = 500
_SKIPPED = {".git"}
_SNIFFED = 8_192
_MAX_FILE = 16 << 20
_PLAIN_GLOB = re.compile(r"(?!.*\*\*)[\w.*?-]+")


class _RefusedError(Exception):
    """Say why nothing was searched.

    Attributes:
        reason: What is wrong with a pattern.
    """

    def __init__(self, why: str, reason: str = "") -> None:
        super().__init__(why)
        self.reason = reason


def main() -> None:
    """Read a request from the standard input, and write the lines that answer it as JSON."""
    request = json.loads(sys.stdin.buffer.read())
    try:
        found = _glob(request) if request["kind"] == "glob" else _grep(request)
        answer: dict[str, Any] = _bounded(found)
    except _RefusedError as error:
        answer = {"refused": str(error), "reason": error.reason}
    sys.stdout.write(json.dumps(answer))


def _bounded(lines: Iterable[str]) -> dict[str, Any]:
    kept: list[str] = []
    for line in lines:
        if len(kept) == MAX_LINES:
            return {"lines": kept, "more": True}
        kept.append(line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}... [{len(line)} characters]")
    return {"lines": kept, "more": False}


def _start(path: str) -> str:
    """Return a path relative to the workspace, which it does not leave by any link."""
    workspace = os.path.realpath(os.getcwd())  # noqa: PTH109 - as little as possible is imported here
    place = os.path.realpath(path)
    if place != workspace and not place.startswith(workspace + os.sep):
        raise _RefusedError("leads out of the workspace")
    if os.path.islink(place):  # noqa: PTH114 - as above
        raise _RefusedError("loop")
    if not os.path.exists(place):  # noqa: PTH110 - as above
        raise _RefusedError("missing")
    return os.path.relpath(place, workspace)


def _walk(start: str) -> Iterator[str]:
    """Yield the files below a folder, sorted by path, name by name. Links are not followed."""
    paths = []
    for folder, folders, names in os.walk(start):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        paths += [os.path.normpath(os.path.join(folder, name)) for name in names]  # noqa: PTH118 - as above
    yield from sorted(paths, key=lambda path: path.split("/"))


def _glob(request: dict[str, Any]) -> Iterator[str]:
    start = _start(request["path"])
    if not os.path.isdir(start):  # noqa: PTH112 - as above
        raise _RefusedError("not a directory")
    for path in _walk(start):
        if matches(request["pattern"], os.path.relpath(path, start)):
            yield path


def _grep(request: dict[str, Any]) -> Iterator[str]:
    start = _start(request["path"])
    # Ripgrep reads other globs in its own way, and refuses some that stand for themselves here.
    if shutil.which("rg") and (request["glob"] is None or _PLAIN_GLOB.fullmatch(request["glob"])):
        return _ripgrep(request, start)
    return _own_grep(request, start, _compiled(request))


def _compiled(request: dict[str, Any]) -> re.Pattern[str]:
    try:
        return re.compile(request["pattern"], re.IGNORECASE if request["ignore_case"] else 0)
    except (re.error, RecursionError, OverflowError) as error:
        raise _RefusedError("pattern", str(error)) from None


def _own_grep(request: dict[str, Any], start: str, pattern: re.Pattern[str]) -> Iterator[str]:
    context: int = request["context"]
    is_first = True
    for path in _searched(start, request["glob"]):
        lines = _lines(path)
        hits = {number for number, line in enumerate(lines) if pattern.search(line)}
        shown = sorted({near for hit in hits for near in range(hit - context, hit + context + 1)})
        last = -1
        for number in shown:
            if not 0 <= number < len(lines):
                continue
            if context and not is_first and (last < 0 or number > last + 1):
                yield "--"
            mark = ":" if number in hits else "-"
            yield f"{path}{mark}{number + 1}{mark}{lines[number]}"
            is_first, last = False, number


def _searched(start: str, wanted: str | None) -> Iterator[str]:
    if os.path.isfile(start):  # noqa: PTH113 - as above
        yield start
        return
    for path in _walk(start):
        name = os.path.relpath(path, start) if "/" in (wanted or "") else os.path.basename(path)  # noqa: PTH119
        is_plain = os.path.isfile(path) and not os.path.islink(path)  # noqa: PTH113, PTH114 - as above
        if is_plain and (wanted is None or matches(wanted, name)):
            yield path


def _lines(path: str) -> list[str]:
    """Return the lines of a text file; a file that is none, or is too large, has none."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - as above
            data = file.read(_MAX_FILE + 1)
    except OSError:
        return []
    if len(data) > _MAX_FILE or b"\0" in data[:_SNIFFED]:
        return []
    lines = data.decode("utf-8", "replace").split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _ripgrep(request: dict[str, Any], start: str) -> Iterator[str]:
    folder, target = (start, ".") if os.path.isdir(start) else os.path.split(start)  # noqa: PTH112 - as above
    argv = ["rg", "--no-config", "--no-ignore", "--hidden", "--no-messages", "--color=never", "--no-heading"]
    argv += ["--with-filename", "--line-number", "--sort=path", "--crlf", "--glob=!.git"]
    argv += ["--ignore-case"] if request["ignore_case"] else []
    argv += [f"--context={request['context']}"] if request["context"] else []
    argv += [f"--glob={request['glob']}"] if request["glob"] is not None else []
    argv += [f"--regexp={request['pattern']}", "--", target]
    prefix = "" if folder in {"", "."} else f"{folder}/"
    with subprocess.Popen(
        argv, cwd=folder or ".", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        for raw in process.stdout or ():
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            yield line if line == "--" else prefix + line.removeprefix("./")
        complaint = process.stderr.read().decode("utf-8", "replace") if process.stderr else ""
        if process.wait() not in {0, 1}:
            # In the same words as without ripgrep, where both refuse it.
            _compiled(request)
            raise _RefusedError("pattern", complaint.strip().rpartition("\n")[2].removeprefix("error: "))
