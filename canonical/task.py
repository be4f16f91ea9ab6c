"""Tasks, ordered task sets with splits, and their loaders."""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from canonical.content import JSON
from canonical.strict_json import InvalidJSONError, read_json
from canonical.strict_yaml import InvalidYAMLError, read_yaml

MAX_WEIGHT = 1e6
"""The greatest weight of a hidden test; the sum of many such is still an ordinary number."""

_NOTHING: Mapping[str, JSON] = MappingProxyType({})


class TaskLoadError(ValueError):
    """Report a task that cannot be read: the file, the line when there is one, and the reason."""

    def __init__(self, path: Path, reason: str, line: int | None = None) -> None:
        self.path = path
        self.line = line
        self.reason = reason
        place = str(path) if line is None else f"{path}, line {line}"
        super().__init__(f"{place}: {reason}")


class TasksNotInstalledError(TaskLoadError):
    """Report tasks that come with a package which is not installed, and the command that installs it.

    Args:
        package: The name of the package.
        path: The file of it that holds the tasks.
    """

    def __init__(self, package: str, path: Path) -> None:
        where = shlex.quote(sys.executable)
        # Environments that uv makes have no pip.
        tool = f"{where} -m pip install" if find_spec("pip") else f"uv pip install --python {where}"
        super().__init__(path, f"is missing; its package is installed by: {tool} {package}")


class UnknownTaskError(LookupError):
    """Report a task id or split that the task set does not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Hold one problem.

    Attributes:
        id: Unique name, written `split/name`, for example `train/0007`.
        inputs: The public half: what prompt and listings may show.
        secret: The hidden half (answer, tests): never sent before the episode has ended.
        folder: Where the files of a task bundle lie, or None for a task without files.
    """

    id: str
    inputs: Mapping[str, JSON] = field(default_factory=lambda: _NOTHING)
    secret: Mapping[str, JSON] = field(default_factory=lambda: _NOTHING, repr=False)
    folder: Path | None = None

    def __post_init__(self) -> None:
        split, slash, name = self.id.partition("/")
        if not (split and slash and name):
            raise ValueError(f"task id {self.id!r} is not of the form 'split/name'")

    @property
    def split(self) -> str:
        """The split that the task belongs to."""
        return self.id.partition("/")[0]


class TaskSet:
    """Hold tasks in a fixed order, by split.

    Args:
        tasks: The tasks; ids are unique. Splits are ordered by first appearance.

    Raises:
        ValueError: There is no task, or an id appears twice.
    """

    __slots__ = ("_by_id", "_by_split", "_sha256")

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._by_id: dict[str, Task] = {}
        by_split: dict[str, list[Task]] = {}
        self._sha256: str | None = None
        for task in tasks:
            if task.id in self._by_id:
                raise ValueError(f"task id {task.id!r} appears twice")
            self._by_id[task.id] = task
            by_split.setdefault(task.split, []).append(task)
        # One tuple for all who ask: frameworks keep it in every one of thousands of environment objects.
        self._by_split = {split: tuple(found) for split, found in by_split.items()}
        if not self._by_id:
            raise ValueError("a task set needs at least one task")

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._by_id.values())

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._by_id

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits, in order."""
        return tuple(self._by_split)

    @property
    def training_split(self) -> str:
        """The split that is played where none is named: `train` if there is one, else the first."""
        return "train" if "train" in self._by_split else next(iter(self._by_split))

    @property
    def evaluation_split(self) -> str:
        """The split to evaluate on where none is named.

        `validation` if there is one, else `test`, else the first that is not for training, else the only one.
        """
        others = [name for name in self._by_split if name != self.training_split]
        return next(
            (name for name in ("validation", "test") if name in others), (others or [self.training_split])[0]
        )

    def split(self, name: str) -> tuple[Task, ...]:
        """Return the tasks of a split, in order.

        Raises:
            UnknownTaskError: There is no such split.
        """
        try:
            return self._by_split[name]
        except KeyError:
            raise UnknownTaskError(
                f"there is no split {name!r}; the splits are {', '.join(self._by_split)}"
            ) from None

    def get(self, task_id: str) -> Task:
        """Return the task of this id.

        Raises:
            UnknownTaskError: There is no such task.
        """
        try:
            return self._by_id[task_id]
        except (KeyError, TypeError):
            first = next(iter(self._by_id))
            raise UnknownTaskError(
                f"there is no task {task_id!r:.80}; this set holds {len(self)} tasks, the first is {first!r}"
            ) from None

    @property
    def sha256(self) -> str:
        """The hash of everything in the set: ids, order, inputs, secrets, and the files of bundles."""
        if self._sha256 is None:
            digest = hashlib.sha256()
            for task in self:
                row = {"id": task.id, "inputs": dict(task.inputs), "secret": dict(task.secret)}
                digest.update(json.dumps(row, sort_keys=True, separators=(",", ":")).encode())
                if task.folder is not None:
                    for path in _files(task.folder):
                        digest.update(path.relative_to(task.folder).as_posix().encode())
                        digest.update(hashlib.sha256(path.read_bytes()).digest())
                digest.update(b"\n")
            self._sha256 = digest.hexdigest()
        return self._sha256

    @classmethod
    def from_jsonl(cls, path: Path) -> TaskSet:
        """Load tasks from a JSON Lines file whose rows hold `id`, and optionally `inputs` and `secret`.

        Raises:
            TaskLoadError: The file cannot be read, or a row is not a task; the error names file, line and reason.
        """
        lines = _read(path).split("\n")
        tasks: list[Task] = []
        seen: dict[str, int] = {}
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            task = _task_of_row(path, number, line)
            if task.id in seen:
                raise TaskLoadError(path, f"id {task.id!r} was already used in line {seen[task.id]}", number)
            seen[task.id] = number
            tasks.append(task)
        if not tasks:
            raise TaskLoadError(path, "holds no task")
        return cls(tasks)

    @classmethod
    def from_bundles(cls, folder: Path) -> TaskSet:
        """Load task bundles: `folder/<split>/<name>/` with `task.yaml`, `data/`, `tests/` and `weights.json`.

        `task.yaml` holds the public inputs as a mapping. `weights.json` maps each hidden test to its weight and
        becomes the secret `weights`; the files under `tests/` are secret too and stay in the bundle's folder.

        Folders whose names begin with a dot or an underscore are no bundles.

        Raises:
            TaskLoadError: A bundle is incomplete or malformed; the error names the file and the reason.
        """
        if not folder.is_dir():
            raise TaskLoadError(folder, "is not a folder")
        bundles = sorted(path for path in folder.glob("[!._]*/[!._]*") if path.is_dir())
        if not bundles:
            raise TaskLoadError(folder, "holds no bundle; expected <split>/<name>/task.yaml")
        return cls(_task_of_bundle(bundle) for bundle in bundles)


def _files(folder: Path) -> list[Path]:
    # Python leaves compiled files beside the tests that it has run; they are no part of a task.
    return sorted(
        p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.relative_to(folder).parts
    )


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskLoadError(path, f"cannot be read: {error}") from error
    if text.startswith("\ufeff"):
        raise TaskLoadError(path, "begins with a byte order mark; save it as UTF-8 without one", 1)
    return text


def _parse(path: Path, text: str, first_line: int) -> JSON:
    try:
        return read_json(text)
    except InvalidJSONError as error:
        line = first_line + text.count("\n", 0, error.position)
        column = error.position - text.rfind("\n", 0, error.position)
        raise TaskLoadError(path, f"is not JSON: {error.reason} at column {column}", line) from None


def _task_of_row(path: Path, number: int, line: str) -> Task:
    row: Any = _parse(path, line, number)
    if not isinstance(row, dict):
        raise TaskLoadError(path, "must be an object", number)
    unknown = sorted(set(row) - {"id", "inputs", "secret"})
    if unknown:
        raise TaskLoadError(path, f"has unknown keys {', '.join(unknown)}", number)
    if not isinstance(row.get("id"), str):
        raise TaskLoadError(path, "needs a text 'id'", number)
    for key in ("inputs", "secret"):
        if not isinstance(row.get(key, {}), dict):
            raise TaskLoadError(path, f"{key!r} must be an object", number)
    try:
        return Task(id=row["id"], inputs=row.get("inputs", {}), secret=row.get("secret", {}))
    except ValueError as error:
        raise TaskLoadError(path, str(error), number) from error


def _task_of_bundle(bundle: Path) -> Task:
    description, weights_file = bundle / "task.yaml", bundle / "weights.json"
    for path, is_there in (
        (description, Path.is_file),
        (bundle / "data", Path.is_dir),
        (bundle / "tests", Path.is_dir),
        (weights_file, Path.is_file),
    ):
        if not is_there(path):
            raise TaskLoadError(path, "is missing from the bundle")
    try:
        inputs = read_yaml(_read(description))
    except InvalidYAMLError as error:
        raise TaskLoadError(description, error.reason, error.line) from error
    if not isinstance(inputs, dict) or not all(isinstance(key, str) for key in inputs):
        raise TaskLoadError(description, "must be a mapping with text keys")
    try:
        json.dumps(inputs, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TaskLoadError(description, f"holds a value that JSON cannot carry: {error}") from error
    weights: Any = _parse(weights_file, _read(weights_file), 1)
    if not isinstance(weights, dict) or not weights:
        raise TaskLoadError(weights_file, "must map at least one test to its weight")
    for test, weight in weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= MAX_WEIGHT:
            raise TaskLoadError(
                weights_file, f"the weight of {test!r} must be a positive number of at most {MAX_WEIGHT:,.0f}"
            )
    return Task(
        id=f"{bundle.parent.name}/{bundle.name}", inputs=inputs, secret={"weights": weights}, folder=bundle
    )
