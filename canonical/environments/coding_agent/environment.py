"""Coding tasks: an agent works on files in a sandbox with the usual tools, submits, and hidden tests decide."""

from __future__ import annotations

import asyncio
import json
import random
import shlex
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from canonical.bundle import Bundle, load_bundles, overlaid, read_bundle
from canonical.content import JSON, quote
from canonical.environment import Environment
from canonical.environments.coding_agent.edits import Edit, EditError, apply_edits
from canonical.grading.grade import GradingError, Report, Verdict, grade
from canonical.grading.submission import SubmissionError, submission
from canonical.pattern import find_flaw
from canonical.reward import Exchanges, RewardSpec, Rubric, Score, ScoringError
from canonical.sandbox.program import python_program
from canonical.sandbox.protocol import (
    Backend,
    BackendUnavailableError,
    CommandFailedError,
    CommandTimeoutError,
    Exec,
    LimitError,
    PathError,
    RefusedError,
    Sandbox,
    SandboxError,
    Snapshot,
)
from canonical.step import Cause
from canonical.task import Task, TaskSet
from canonical.tool import ToolCall, ToolError, tool

MAX_TEXT_BYTES = 4 << 20
"""The largest file that read, edit and multi_edit open."""

MAX_LINE = 2_000
MAX_SHOWN = 100_000
MAX_ENTRIES = 1_000
MAX_PATH = 4_096
MAX_NAME = 255
MAX_REASON = 200

_TASKS = Path(__file__).parent / "tasks"
_SEARCH = python_program(("canonical.pattern", "canonical.environments.coding_agent.search"))
_SEARCH_S = 30.0
_VARIABLES = {
    "LC_ALL": "C.UTF-8",
    "PAGER": "cat",
    "TERM": "dumb",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}
_MARK = b"\0\0cwd:"
# The folder in which the command ended is told through a copy of the standard output, which a command that sends its own
# output elsewhere does not touch. One line, so that the lines of the command keep their numbers in messages of bash. The folder
# comes with escapes for `printf %b`, because a name of a folder may be no text, and what starts a command takes texts alone.
_SHELL = (
    'exec 199>&1; trap \'printf "\\0\\0cwd:%s\\0" "$PWD" >&199\' EXIT; '
    'printf -v __command %b "$2"; cd -- "$__command" 2>/dev/null || printf "\\0\\0lost\\0" >&199; '
    '__command=$1; set --; eval "$__command"'
)
_LOST = b"\0\0lost\0"


class Todo(BaseModel):
    """Be one item of the agent's list."""

    model_config = ConfigDict(extra="forbid")

    content: Annotated[str, Field(min_length=1, max_length=1_000, description="What is to be done.")]
    status: Annotated[
        Literal["pending", "in_progress", "completed"], Field(description="How far it has come.")
    ]


@dataclass(slots=True)
class Desk:
    """Hold the state of an episode: what the agent has said and done, and the sandbox with its files.

    Attributes:
        bundle: The task, with its hidden half.
        grader: Runs the hidden tests on a workspace.
        sandbox: Where the files of the agent lie and its commands run.
        folder: The working directory of its next command, as the sandbox sees it, in the bytes that it has there.
        todos: Its list.
        calls: How many tools it has called.
        is_submitted: Whether it has submitted.
        is_gone: Whether the sandbox has died.
        report: How the hidden tests went, once they have run.
        failure: Why they could not run.
    """

    bundle: Bundle = field(repr=False)
    grader: Callable[[Snapshot], Awaitable[Report]] = field(repr=False)
    sandbox: Sandbox = field(repr=False)
    folder: bytes = b"."
    todos: list[Todo] = field(default_factory=list)
    calls: int = 0
    is_submitted: bool = False
    is_gone: bool = False
    report: Report | None = field(default=None, repr=False)
    failure: GradingError | None = field(default=None, repr=False)

    async def examine(self) -> Report:
        """Run the hidden tests on what lies in the workspace, once.

        Raises:
            SubmissionError: The solution is too large to be graded.
            GradingError: Grading itself failed.
            SandboxError: The workspace cannot be reached any more.
        """
        if self.failure is not None:
            raise self.failure
        if self.report is None:
            await self.sandbox.stop_processes()
            workspace = await self.sandbox.snapshot()
            try:
                self.report = await self.grader(workspace)
            except GradingError as error:
                self.failure = error
                raise
        return self.report


class HiddenTests(Rubric[Desk]):
    """Score a workspace by the weight of the hidden tests that pass, as a share of all.

    A workspace that was not submitted is graded as it was when the episode was cut off. One that cannot be reached any
    more, or is too large to be graded, scores 0.
    """

    is_async = True

    async def evaluate(self, state: Desk, exchanges: Exchanges) -> Score:  # noqa: ARG002 - part of the port
        """Return the share as the only part.

        Raises:
            ScoringError: Grading itself failed.
        """
        if state.is_gone and state.report is None:
            return Score({"tests": 0.0})
        try:
            report = await state.examine()
        except GradingError:
            raise ScoringError("the hidden tests could not be run") from None
        except (SubmissionError, SandboxError):
            state.is_gone = True
            return Score({"tests": 0.0})
        return Score({"tests": report.share})


def _default_backend() -> Backend:
    # Imported when it is used, because listing tasks and tools needs no sandbox.
    from canonical.sandbox.backends import load_backend  # noqa: PLC0415

    return load_backend()


@cache
def _tasks() -> TaskSet:
    return load_bundles(_TASKS)


class CodingAgent(Environment[Desk]):
    """Solve coding tasks in a sandboxed workspace.

    The return lies in [0, 1]: the weight of the hidden tests that pass, as a share of all. Tests run after submission, or
    when the episode is cut off, in fresh sandboxes, on a copy of the files that the task lets the agent change.

    Episodes cannot be stored or forked: their files lie in a sandbox, and reading them takes time that the storing of a
    state does not have.

    Args:
        backend: Makes the sandboxes; by default the one that `load_backend` chooses.
    """

    name = "coding_agent"
    version = "5"
    max_turns = 60
    reward = RewardSpec(low=0.0, high=1.0)
    rubric = HiddenTests()
    dear = True

    def __init__(self, backend: Backend | None = None) -> None:
        self._backend = backend
        self._bundles: dict[str, tuple[Task, Bundle]] = {}

    def tasks(self) -> TaskSet:
        """Return one task per bundle."""
        return _tasks()

    def bundle(self, task: Task) -> Bundle:
        """Return what belongs to a task, read when it is first needed."""
        known = self._bundles.get(task.id)
        if known is None or known[0] is not task:
            known = self._bundles[task.id] = (task, self.read_bundle(task))
        return known[1]

    def read_bundle(self, task: Task) -> Bundle:
        """Return what belongs to a task; for subclasses whose tasks come from elsewhere."""
        return read_bundle(task)

    def require(self) -> None:
        """Raise what is wrong with the backend that was chosen, as far as it shows without a sandbox.

        Raises:
            BackendUnavailableError: There is no such backend, its package is missing, or it was not said aloud.
        """
        if self._backend is None:
            _default_backend()

    async def start(self, task: Task, rng: random.Random) -> Desk:  # noqa: ARG002 - nothing is random here
        """Open a sandbox with the files of the task."""
        bundle = await asyncio.to_thread(self.bundle, task)
        backend = self._backend or _default_backend()
        sandbox = await backend.open(bundle.given, limits=bundle.limits)
        return Desk(bundle=bundle, grader=partial(self.grade, backend, bundle), sandbox=sandbox)

    async def grade(self, backend: Backend, bundle: Bundle, workspace: Snapshot) -> Report:
        """Run the hidden tests of a task on a workspace; for subclasses that grade in another way.

        Raises:
            SubmissionError: The solution is too large to be graded.
            GradingError: Grading itself failed.
        """
        submitted = submission(workspace, bundle.given, bundle.solution)
        return await grade(
            backend, submitted, bundle.tests, bundle.names, limits=bundle.limits, test_s=bundle.test_s
        )

    def prompt(self, task: Task, state: Desk) -> str:  # noqa: ARG002 - the state holds it
        """Return what is to be done, and by which rules."""
        bundle = state.bundle
        turns = min(self.max_turns, bundle.max_turns or self.max_turns)
        files = ", ".join(bundle.solution)
        return (
            f"{bundle.prompt.strip()}\n\n"
            "The files lie in your workspace, which is where your tools and commands start. There is no network. "
            f"Hidden tests decide; of your work they see the files that match: {files}. "
            f"Call submit_solution when you are done. You have {turns} calls of tools in all."
        )

    async def close(self, state: Desk) -> None:
        """Close the sandbox."""
        await state.sandbox.close()

    def outcome(self, state: Desk) -> Cause | None:
        """Return submitted, error when the sandbox or the grading failed, budget, or None."""
        if state.is_gone or state.failure is not None:
            return Cause.ERROR
        if state.is_submitted:
            return Cause.SUBMITTED
        limit = state.bundle.max_turns
        return Cause.BUDGET if limit is not None and state.calls >= limit else None

    @tool
    async def read(
        self,
        state: Desk,
        path: str,
        offset: Annotated[int, Field(ge=1)] = 1,
        limit: Annotated[int, Field(ge=1, le=10_000)] = 2_000,
    ) -> str:
        """Read a text file. Each line is shown after its number and a tab; long lines are cut.

        Args:
            path: The file, relative to the workspace.
            offset: The number of the first line to show, counted from 1.
            limit: How many lines to show at most.
        """
        with _at(state, path):
            text = (await _contents(state, path)).decode("utf-8", "replace")
        lines = _split(text)
        if not lines:
            return "(The file is empty.)"
        if offset > len(lines):
            raise ToolError(f"{quote(path)} has {len(lines)} lines; there is no line {offset}.")
        return _numbered(lines, offset, limit)

    @tool
    async def write(self, state: Desk, path: str, content: str) -> str:
        """Make a file, or replace all of its content. Folders above it are made.

        Args:
            path: The file, relative to the workspace.
            content: The whole new content.
        """
        with _at(state, path):
            data = _encoded(content)
            await state.sandbox.write(path, data)
        return f"Wrote {path}: {_count(len(_split(content)), 'line')}, {_count(len(data), 'byte')}."

    @tool
    async def edit(self, state: Desk, path: str, old: str, new: str, replace_all: bool = False) -> str:
        """Replace a text in a file. It must occur exactly once, unless every occurrence is to be replaced.

        Args:
            path: The file, relative to the workspace.
            old: The text to replace, exactly as it stands in the file, without line numbers.
            new: The text to put in its place.
            replace_all: Replace every occurrence.
        """
        counts = await self._change(state, path, [Edit(old=old, new=new, replace_all=replace_all)])
        return f"Edited {path}: {_count(counts[0], 'replacement')}."

    @tool
    async def multi_edit(
        self, state: Desk, path: str, edits: Annotated[list[Edit], Field(min_length=1, max_length=200)]
    ) -> str:
        """Make several replacements in one file, in order, each on what the one before left: all of them or none.

        Args:
            path: The file, relative to the workspace.
            edits: The replacements.
        """
        counts = await self._change(state, path, edits)
        return f"Edited {path}: {_count(sum(counts), 'replacement')} by {_count(len(edits), 'edit')}."

    async def _change(self, state: Desk, path: str, edits: Sequence[Edit]) -> list[int]:
        with _at(state, path):
            before = await _contents(state, path)
            try:
                text = before.decode("utf-8")
            except UnicodeDecodeError:
                raise ToolError(f"{quote(path)} is not UTF-8 text, so it cannot be edited.") from None
            try:
                after, counts = apply_edits(text, edits)
            except EditError as error:
                raise ToolError(f"{quote(path)} was not changed: {error}.") from None
            await state.sandbox.write(path, _encoded(after), replacing=before)
        return counts

    @tool
    async def ls(self, state: Desk, path: str = ".") -> str:
        """List a folder: folders end in a slash, files are followed by their size in bytes.

        Args:
            path: The folder, relative to the workspace.
        """
        with _at(state, path):
            entries = await state.sandbox.list(path)
        lines = []
        for entry in entries[:MAX_ENTRIES]:
            name = entry.path.rpartition("/")[2]
            ending = {"directory": "/", "file": f" ({entry.size})", "link": " (link)", "other": " (special)"}
            lines.append(name + ending[entry.kind])
        if len(entries) > MAX_ENTRIES:
            lines.append(f"[{len(entries) - MAX_ENTRIES} more entries]")
        return "\n".join(lines) or "(The folder is empty.)"

    @tool
    async def glob(
        self, state: Desk, pattern: Annotated[str, Field(min_length=1, max_length=500)], path: str = "."
    ) -> str:
        """Find files by name: `*` and `?` within a name, `**` for any number of folders, `[a-z]`, `{a,b}`. Sorted by path.

        Args:
            pattern: The pattern, such as `**/*.py`.
            path: The folder in which to search, relative to the workspace.
        """
        request: dict[str, JSON] = {"kind": "glob", "pattern": pattern, "path": path}
        return await _search(state, path, request) or f"No files match{_why_none(pattern)}."

    @tool
    async def grep(  # noqa: PLR0917 - an agent names its arguments
        self,
        state: Desk,
        pattern: Annotated[str, Field(min_length=1, max_length=1_000)],
        path: str = ".",
        glob: str | None = None,
        context: Annotated[int, Field(ge=0, le=20)] = 0,
        ignore_case: bool = False,
    ) -> str:
        """Search the lines of files for a regular expression. Each line is shown as `path:number:line`.

        Args:
            pattern: The regular expression.
            path: The file or folder to search, relative to the workspace.
            glob: Search only files whose name matches, such as `*.py`, or whose path does, when there is a slash in it.
            context: How many lines to show before and after each match, as `path-number-line`.
            ignore_case: Whether upper and lower case are the same.
        """
        request: dict[str, JSON] = {
            "kind": "grep",
            "pattern": pattern,
            "path": path,
            "glob": glob,
            "context": context,
            "ignore_case": ignore_case,
        }
        return await _search(state, path, request) or f"No lines match{_why_none(glob or '')}."

    @tool
    async def bash(
        self,
        state: Desk,
        command: Annotated[str, Field(min_length=1, max_length=100_000)],
        timeout: Annotated[int, Field(ge=1, le=3_600)] = 30,  # noqa: ASYNC109 - the agent's word, and the sandbox's clock
    ) -> str:
        """Run a command in bash. The working directory is kept for the next command; variables and background processes are not.

        Args:
            command: The command.
            timeout: Seconds until it is killed, with everything that it started.
        """
        state.calls += 1
        if "\0" in command:
            raise ToolError("A command holds no null byte.")
        patience = min(float(timeout), state.bundle.command_s)
        with _at(state, None):
            argv = ["bash", "-c", _SHELL, "bash", _encoded(command).decode(), _escaped(state.folder)]
            try:
                done = await state.sandbox.exec(argv, timeout_s=patience, env=_VARIABLES)
                ending = f"exit code {done.exit_code}"
            except CommandTimeoutError as error:
                done, ending = error.partial, f"killed: it did not end within {patience:g} s"
            except LimitError as error:
                done = error.partial or Exec(exit_code=-9)
                ending = f"killed: it hit the limit on {error.limit.replace('_', ' ')}"
        return _transcribed(state, done, ending)

    @tool
    async def todo_write(self, state: Desk, todos: Annotated[list[Todo], Field(max_length=100)]) -> str:
        """Replace your list of things to do, and read it back.

        Args:
            todos: The whole new list.
        """
        state.calls += 1
        state.todos = list(todos)
        boxes = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}
        return "\n".join(f"{boxes[todo.status]} {todo.content}" for todo in todos) or "(The list is empty.)"

    @tool
    async def submit_solution(self, state: Desk) -> str:
        """Submit your solution. Hidden tests grade it, and the episode ends."""
        with _at(state, None):
            try:
                report = await state.examine()
            except SubmissionError as error:
                raise ToolError(f"Not submitted: {error}. Remove what does not belong to it.") from None
            except LimitError as error:
                graded = ", ".join(state.bundle.solution)
                raise ToolError(
                    f"Not submitted: {error}. Remove what does not belong to the solution; graded is what matches: {graded}."
                ) from None
            except GradingError:
                raise ToolError("The hidden tests could not be run.") from None
        state.is_submitted = True
        return _result(report.results, report.share)

    def oracle(self, task: Task) -> Iterable[ToolCall]:
        """Return calls that write the known solution and submit it."""
        bundle = self.bundle(task)
        for path, data in sorted(bundle.oracle.files.items()):
            yield ToolCall("write", {"path": path, "content": data.decode("utf-8")})
        for command, paths in (("chmod +x", sorted(bundle.oracle.executable)), ("rm", bundle.removed)):
            if paths:
                yield ToolCall("bash", {"command": f"{command} -- {shlex.join(paths)}"})
        yield ToolCall("submit_solution", {})

    async def flaws(self, task: Task) -> Sequence[str]:
        """Return which hidden tests the oracle fails, and why; if none, which wrong patches are paid in full.

        Raises:
            BackendUnavailableError: There is no sandbox to grade in.
        """
        bundle = await asyncio.to_thread(self.bundle, task)
        given = {path: data for path, data in bundle.given.files.items() if path not in bundle.removed}
        start = Snapshot(files=given, executable=bundle.given.executable - set(bundle.removed))
        backend = self._backend or _default_backend()

        async def graded(patch: Snapshot) -> Report:
            return await self.grade(backend, bundle, overlaid(start, patch))

        try:
            oracle = await graded(bundle.oracle)
            failed = [result for result in oracle.results if not result.passed]
            if failed:
                return [f"the oracle fails {result.name}: {result.reason}" for result in failed]
            reports = await asyncio.gather(*map(graded, bundle.wrong.values()))
        except (GradingError, SubmissionError) as error:
            if isinstance(error.__cause__, BackendUnavailableError):
                raise error.__cause__ from error
            return [f"its known solutions cannot be graded: {error}"]
        return [
            f"the wrong patch {name!r} passes every hidden test"
            for name, report in zip(bundle.wrong, reports, strict=True)
            if report.share == 1.0
        ]

    def random_call(self, task: Task, rng: random.Random) -> ToolCall:
        """Return what an agent without a plan might do."""
        paths = sorted(self.bundle(task).given.files)
        path = rng.choice([*paths, "notes.txt", "missing/file.py"])
        word = rng.choice(["def", "return", "import", "the", "x", "0", "nothing like it"])
        choices: list[tuple[int, str, dict[str, JSON]]] = [
            (4, "read", {"path": path, "offset": rng.choice([1, 1, 2, 900])}),
            (2, "write", {"path": "notes.txt", "content": f"{word}\n" * rng.randint(0, 3)}),
            (2, "edit", {"path": path, "old": word, "new": rng.choice([word, "y", ""]), "replace_all": rng.random() < 0.5}),
            (1, "multi_edit", {"path": path, "edits": [{"old": word, "new": "z"}, {"old": "z", "new": word}]}),
            (2, "ls", {"path": rng.choice([".", path.rpartition("/")[0] or ".", "missing", ".."])}),
            (2, "glob", {"pattern": rng.choice(["**/*.py", "*", "**", "[a-m]*", "*.{txt,md}"])}),
            (2, "grep", {"pattern": rng.choice([word, "(", r"\bd\w+"]), "context": rng.choice([0, 0, 1])}),
            (3, "bash", {"command": rng.choice([f"echo {word}", "ls", "cd /tmp", "cd ..; pwd", "cat *.txt", "exit 3", "("])}),
            (1, "todo_write", {"todos": [{"content": word, "status": "pending"}]}),
            (1, "submit_solution", {}),
        ]  # fmt: skip
        _, name, arguments = rng.choices(choices, [weight for weight, _, _ in choices])[0]
        return ToolCall(name, arguments)


@contextmanager
def _at(state: Desk, path: str | None) -> Iterator[None]:
    """Answer in words whatever keeps a tool from doing what was asked, without a word about the host."""
    if path is not None:
        state.calls += 1
        _check_path(path)
    shown = "" if path is None else quote(path, 200)
    try:
        yield
    except PathError as error:
        reason = _REASONS.get(error.reason, "cannot be used")
        raise ToolError(f"{shown or quote(error.path, 200)} {reason}.") from None
    except RefusedError:
        raise ToolError(f"{shown or 'This'} cannot be used: it leads out of the workspace.") from None
    except LimitError as error:
        raise ToolError(f"Not done: it would exceed the limit on {error.limit.replace('_', ' ')}.") from None
    except CommandFailedError:
        raise ToolError("The sandbox has no program for this.") from None
    except SandboxError:
        state.is_gone = True
        raise ToolError("The sandbox has died, and everything in it is lost.") from None


_REASONS = {
    "missing": "does not exist",
    "is a directory": "is a folder, not a file",
    "not a directory": "is not a folder, or leads through a file",
    "not a file": "is not a plain file",
    "changed": "has changed while it was being edited; read it again",
    "denied": "may not be used: permission denied",
    "loop": "leads through too many links, or through one that leads back to itself",
}


def _check_path(path: str) -> None:
    if not path:
        raise ToolError("The path is empty.")
    if "\0" in path:
        raise ToolError("A path holds no null byte.")
    if len(path) > MAX_PATH:
        raise ToolError(f"A path has at most {MAX_PATH} characters, this one has {len(path)}.")
    longest = max(map(len, _encoded(path).split(b"/")))
    if longest > MAX_NAME:
        raise ToolError(f"A name in a path has at most {MAX_NAME} bytes, one of these has {longest}.")


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise ToolError("The text holds lone surrogates, which UTF-8 cannot store.") from None


async def _contents(state: Desk, path: str) -> bytes:
    data = await state.sandbox.read(path, limit=MAX_TEXT_BYTES + 1)
    if len(data) > MAX_TEXT_BYTES:
        raise ToolError(f"{quote(path)} has more than {MAX_TEXT_BYTES} bytes; use head, sed or grep in bash.")
    if b"\0" in data:
        raise ToolError(f"{quote(path)} is not text; look at it with a command in bash.")
    return data


def _split(text: str) -> list[str]:
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _numbered(lines: Sequence[str], offset: int, limit: int) -> str:
    shown: list[str] = []
    size = 0
    for number, line in enumerate(lines[offset - 1 : offset - 1 + limit], start=offset):
        cut = line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}... [{len(line)} characters]"
        size += len(cut)
        if size > MAX_SHOWN and shown:
            break
        shown.append(f"{number:6d}\t{cut}")
    last = offset + len(shown) - 1
    if last < len(lines):
        shown.append(f"[lines {offset} to {last} of {len(lines)}; go on with offset {last + 1}]")
    return "\n".join(shown)


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


async def _search(state: Desk, path: str, request: dict[str, JSON]) -> str:
    with _at(state, path):
        data = json.dumps(request).encode()
        try:
            done = await state.sandbox.exec(_SEARCH, timeout_s=_SEARCH_S, stdin=data, env=_VARIABLES)
        except CommandTimeoutError:
            raise ToolError(f"The search did not end within {_SEARCH_S:g} s; narrow it.") from None
        try:
            answer: Any = json.loads(done.stdout)
            refused, lines, more = answer.get("refused"), answer.get("lines"), answer.get("more")
        except (ValueError, AttributeError, RecursionError):
            raise ToolError("The search failed in the sandbox.") from None
    match refused:
        case None:
            shown = [str(line) for line in lines]
            return "\n".join([*shown, "[There are more; narrow the search.]"] if more else shown)
        case "pattern":
            reason = " ".join(str(answer.get("reason", "")).split())[:MAX_REASON]
            raise ToolError(f"The pattern is no valid regular expression{reason and f': {reason}'}.")
        case "missing" | "not a directory" | "loop":
            raise ToolError(f"{quote(path, 200)} {_REASONS[refused]}.")
        case _:
            raise ToolError(f"{quote(path, 200)} cannot be used: it leads out of the workspace.")


def _why_none(pattern: str) -> str:
    """Say why a glob matches nothing when that lies in the pattern and not in the files."""
    flaw = find_flaw(pattern)
    return f": {flaw}" if flaw else ""


def _transcribed(state: Desk, done: Exec, ending: str) -> str:
    stdout = _with_gap(done.stdout, done.stdout_dropped)
    notes = []
    if _LOST in stdout:
        stdout = stdout.replace(_LOST, b"", 1)
        notes.append("(The working directory is gone; the command ran in the workspace.)")
        state.folder = b"."
    start = stdout.rfind(_MARK)
    stop = stdout.find(b"\0", start + len(_MARK))
    if start >= 0 and stop >= 0:
        # Nobody can go to a longer one, and that is told by the next command.
        state.folder = stdout[start + len(_MARK) : stop][: MAX_PATH + 1]
        stdout = stdout[:start] + stdout[stop + 1 :]
    parts = [*notes, ending]
    for name, data in (
        ("stdout", stdout),
        ("stderr", _with_gap(done.stderr, done.stderr_dropped)),
    ):
        text = data.decode("utf-8", "replace").removesuffix("\n")
        if text:
            parts += [f"--- {name}", text]
    return "\n".join(parts)


def _escaped(path: bytes) -> str:
    """Return a path as `printf %b` reads it."""
    return "".join(chr(byte) if 32 <= byte < 127 and byte != ord("\\") else f"\\0{byte:03o}" for byte in path)


def _with_gap(data: bytes, dropped: int) -> bytes:
    if not dropped:
        return data
    head = len(data) // 2
    return data[:head] + f"\n[... {dropped} bytes left out ...]\n".encode() + data[head:]


def _result(results: Sequence[Verdict], share: float) -> str:
    passed = sum(result.passed for result in results)
    lines = [f"Submitted: {passed} of {len(results)} hidden tests passed, score {share:.4g}."]
    lines += [f"{'passed' if result.passed else 'failed'}  {result.name}" for result in results]
    return "\n".join(lines)
