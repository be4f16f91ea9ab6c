"""Task bundles: folders with what an agent is given, what it is graded by, and known solutions.

A bundle is a folder `<split>/<name>/` that holds

- `task.yaml`: prompt, kind, solution, and optionally limits, max_turns and metadata;
- `data/`: the files that the agent sees; they become its workspace;
- `tests/*.py`: hidden, with top-level functions `test_<name>(solution)`;
- `weights.json`: the name of each test -> its weight;
- `solutions/oracle/`: files which, laid over `data/`, pass every test;
- `solutions/wrong-<name>/`: files which look right and are not.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

from canonical.grading.grade import HiddenTest
from canonical.grading.submission import may_be_carried
from canonical.sandbox.protocol import Limits, Snapshot
from canonical.task import Task, TaskLoadError, TaskSet

ORACLE = "oracle"
COMMAND_S = 120.0
"""The longest time of one command of an agent, unless the task says otherwise, in seconds."""

TEST_S = 60.0
"""The time for one hidden test, unless the task says otherwise, in seconds."""

# Python 3.11 counts the depth of all trees that are being made together, so that two threads can disturb each other. Those
# of a framework know nothing of this lock, so what is parsed once, when the tasks are loaded, is not parsed again.
_PARSING = Lock()
_WRONG = "wrong-"
_KEYS = {"prompt", "kind", "solution", "limits", "max_turns", "metadata"}
_ENTRIES = {"task.yaml", "weights.json", "data", "tests", "solutions"}
_RESOURCES = {part.name for part in fields(Limits)}
_TIMES = ("command_s", "test_s")
# Far beyond what a task needs, and within what clocks, kernels and JSON of every backend can carry.
_HIGHEST: dict[str, int] = {
    "command_s": 86_400,
    "test_s": 86_400,
    "cpu_s": 86_400,
    "memory_bytes": 1 << 40,
    "processes": 1 << 22,
    "file_bytes": 1 << 40,
    "disk_bytes": 1 << 40,
    "output_bytes": 1 << 30,
    "open_files": 1 << 20,
}
_MAX_TURNS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Hold everything about one task that is done in a workspace and graded by hidden tests.

    Attributes:
        prompt: What the agent is asked to do.
        kind: What sort of task it is.
        solution: Globs of the files that are carried into grading.
        given: The files that the agent starts with.
        tests: The hidden files, under `tests/`.
        names: The hidden tests.
        oracle: Files which, laid over the given ones, pass every test.
        wrong: Name -> files which look right and are not.
        removed: Given files that the oracle removes.
        limits: What a sandbox with files of this task may use.
        command_s: The longest time that one command of the agent may take, in seconds.
        test_s: The time for each hidden test, in seconds.
        max_turns: How many tool calls the agent may make, when fewer than the environment allows.
    """

    prompt: str
    kind: str
    solution: tuple[str, ...]
    given: Snapshot = field(repr=False)
    tests: Snapshot = field(repr=False)
    names: tuple[HiddenTest, ...] = field(repr=False)
    oracle: Snapshot = field(repr=False)
    wrong: Mapping[str, Snapshot] = field(default_factory=dict, repr=False)
    removed: tuple[str, ...] = field(default=(), repr=False)
    limits: Limits = field(default_factory=Limits)
    command_s: float = COMMAND_S
    test_s: float = TEST_S
    max_turns: int | None = None


def load_bundles(folder: Path) -> TaskSet:
    """Load every bundle of a folder as a task, and check it without reading the files that the agent sees.

    Raises:
        TaskLoadError: A bundle is incomplete or malformed; the error names the file and the reason.
    """
    tasks = TaskSet.from_bundles(folder)
    for task in tasks:
        _check(task, _root(task))
    return tasks


def read_bundle(task: Task) -> Bundle:
    """Read everything that belongs to a task that `load_bundles` returned.

    Raises:
        TaskLoadError: The bundle is incomplete or malformed; the error names the file and the reason.
    """
    root = _root(task)
    names = _check(task, root)
    inputs: Mapping[str, Any] = task.inputs
    times, limits = _limits(root, inputs)
    solutions = root / "solutions"
    return Bundle(
        prompt=inputs["prompt"],
        kind=inputs["kind"],
        solution=tuple(inputs["solution"]),
        given=read_files(root / "data"),
        tests=read_files(root / "tests", under="tests/"),
        names=names,
        oracle=read_files(solutions / ORACLE),
        wrong={
            path.name.removeprefix(_WRONG): read_files(path) for path in sorted(solutions.glob(f"{_WRONG}*"))
        },
        limits=limits,
        command_s=times.get("command_s", COMMAND_S),
        test_s=times.get("test_s", TEST_S),
        max_turns=inputs.get("max_turns"),
    )


def read_files(folder: Path, *, under: str = "") -> Snapshot:
    """Return the files below a folder; what Python leaves beside programs that it has run is no part of it.

    Raises:
        TaskLoadError: There is something that is neither a file nor a folder.
    """
    files: dict[str, bytes] = {}
    executable: set[str] = set()
    for path in _files(folder):
        name = under + path.relative_to(folder).as_posix()
        files[name] = path.read_bytes()
        if path.stat().st_mode & 0o100:
            executable.add(name)
    return Snapshot(files=files, executable=frozenset(executable))


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if "__pycache__" in path.relative_to(folder).parts:
            continue
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise TaskLoadError(path, "is neither a file nor a folder; a bundle holds nothing else")
        if path.is_file():
            yield path


def overlaid(given: Snapshot, over: Snapshot) -> Snapshot:
    """Return the files of one snapshot laid over those of another."""
    kept = given.executable - over.files.keys()
    return Snapshot(files={**given.files, **over.files}, executable=kept | over.executable)


def _root(task: Task) -> Path:
    if task.folder is None:
        raise ValueError(f"task {task.id} comes from no bundle")
    return task.folder


def _check(task: Task, root: Path) -> tuple[HiddenTest, ...]:
    for entry in sorted(root.iterdir()):
        if entry.name not in _ENTRIES:
            raise TaskLoadError(entry, f"is no part of a bundle; the parts are {', '.join(sorted(_ENTRIES))}")
    _check_description(root / "task.yaml", task.inputs)
    _limits(root, task.inputs)
    patterns: Any = task.inputs["solution"]
    for name in ("data", "tests"):
        # What may not be there is told now, and not when the first episode of the task starts.
        deque(_files(root / name), maxlen=0)
    _check_solutions(root, patterns)
    return _names(root, task.secret)


def _check_description(path: Path, inputs: Mapping[str, Any]) -> None:
    unknown = sorted(set(inputs) - _KEYS)
    if unknown:
        raise TaskLoadError(
            path, f"has unknown keys {', '.join(unknown)}; the keys are {', '.join(sorted(_KEYS))}"
        )
    for key in ("prompt", "kind"):
        if not isinstance(inputs.get(key), str) or not inputs[key].strip():
            raise TaskLoadError(path, f"needs a text {key!r}")
    patterns = inputs.get("solution")
    if (
        not isinstance(patterns, list)
        or not patterns
        or not all(isinstance(one, str) and one for one in patterns)
    ):
        raise TaskLoadError(path, "needs 'solution', a list of at least one glob of files to grade")
    for pattern in patterns:
        if pattern.startswith("/") or ".." in pattern.split("/"):
            raise TaskLoadError(path, f"the glob {pattern!r} of 'solution' must stay in the workspace")
    turns = inputs.get("max_turns", 1)
    if type(turns) is not int or not 1 <= turns <= _MAX_TURNS:
        raise TaskLoadError(path, f"'max_turns' must be an integer from 1 to {_MAX_TURNS}")
    if not isinstance(inputs.get("metadata", {}), dict):
        raise TaskLoadError(path, "'metadata' must be a mapping")


def _limits(root: Path, inputs: Mapping[str, Any]) -> tuple[dict[str, float], Limits]:
    path, given = root / "task.yaml", inputs.get("limits", {})
    if not isinstance(given, dict):
        raise TaskLoadError(path, "'limits' must be a mapping")
    for key, value in given.items():
        if key not in _HIGHEST:
            raise TaskLoadError(
                path, f"'limits' has the unknown key {key}; its keys are {', '.join(_HIGHEST)}"
            )
        takes_parts = key.endswith("_s")
        if (
            not (type(value) is int or (takes_parts and type(value) is float))
            or not 0 < value <= _HIGHEST[key]
        ):
            kind = "number" if takes_parts else "integer"
            raise TaskLoadError(path, f"the limit {key} must be a positive {kind} of at most {_HIGHEST[key]}")
    times = {key: float(given[key]) for key in _TIMES if key in given}
    resources = {key: value for key, value in given.items() if key in _RESOURCES}
    return times, replace(Limits(), **resources)


def _check_solutions(root: Path, patterns: Sequence[str]) -> None:
    solutions = root / "solutions"
    if not (solutions / ORACLE).is_dir():
        raise TaskLoadError(solutions / ORACLE, "is missing from the bundle")
    for folder in sorted(solutions.iterdir()):
        if folder.name != ORACLE and not (folder.name.startswith(_WRONG) and folder.is_dir()):
            raise TaskLoadError(folder, f"is neither {ORACLE} nor a folder whose name begins with {_WRONG!r}")
        paths = list(_files(folder))
        if not paths:
            raise TaskLoadError(folder, "holds no file")
        for path in paths:
            if not may_be_carried(path.relative_to(folder).as_posix(), patterns):
                raise TaskLoadError(
                    path, "would not be carried into grading: it matches no glob of 'solution'"
                )


def _names(root: Path, secret: Mapping[str, Any]) -> tuple[HiddenTest, ...]:
    weights: dict[str, float] = secret["weights"]
    found: dict[str, str] = {}
    for path in sorted((root / "tests").rglob("*.py")):
        if "__pycache__" in path.parts:
            continue
        for name, line in _test_functions(path, weights):
            if name in found:
                raise TaskLoadError(path, f"the test {name} is already defined in {found[name]}", line)
            if name not in weights:
                raise TaskLoadError(path, f"the test {name} has no weight in weights.json", line)
            found[name] = path.relative_to(root).as_posix()
    for name in weights:
        if name not in found:
            raise TaskLoadError(root / "weights.json", f"names {name!r}, which no file under tests/ defines")
    return tuple(HiddenTest(name, path, float(weights[name])) for name, path in found.items())


@lru_cache(maxsize=1024)
def _tree(source: bytes) -> ast.Module:
    with _PARSING:
        return ast.parse(source)


def _test_functions(path: Path, weights: Mapping[str, float]) -> Iterator[tuple[str, int]]:
    try:
        tree = _tree(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise TaskLoadError(
            path, f"is not Python: {getattr(error, 'msg', error)}", getattr(error, "lineno", None)
        ) from None
    for node in tree.body:
        # A call of a generator function runs nothing of it, and one of a class checks nothing: such a test always passes.
        is_plain = isinstance(node, ast.FunctionDef) and not _has_yield(node)
        if not is_plain:
            for name in _bound(node):
                if name in weights or not isinstance(node, ast.Assign | ast.AnnAssign):
                    raise TaskLoadError(path, f"the test {name} must be a plain function", node.lineno)
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            if [argument.arg for argument in node.args.args] != ["solution"]:
                raise TaskLoadError(
                    path, f"the test {node.name} must take one argument, solution", node.lineno
                )
            yield node.name, node.lineno


def _bound(node: ast.stmt) -> Iterator[str]:
    """Yield the names of tests, by their looks, that a statement at the top of a file defines."""
    names = [node.name] if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else []
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [target.id for target in targets if isinstance(target, ast.Name)]
    yield from (name for name in names if name.startswith("test"))


def _has_yield(function: ast.FunctionDef) -> bool:
    """Say whether a call of a function makes a generator; what functions inside it yield is their own."""
    waiting: list[ast.AST] = [*function.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)
    return False
