"""Import what a user names: a module, the path of a Python file, or a name in either."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from canonical.bridge.source import LiftError

SPLITS = ("train", "validation", "test")
"""The splits that a function of rows is asked for, where it takes one."""


def import_named(name: str) -> ModuleType:
    """Import a module by its dotted name, or a Python file or package folder by its path.

    A file is imported under its own name with its folder on the path, as `python FILE` would have it, so that it can be
    imported again by name in other processes that are given the same path.

    Raises:
        LiftError: It is not there, or fails when it is imported; the text says which.
    """
    path = Path(name)
    if path.suffix == ".py" or path.is_dir():
        if not path.exists():
            raise LiftError(f"there is no file {name}")
        place = str(path.resolve().parent)
        if place not in sys.path:
            sys.path.insert(0, place)
        name = path.stem
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise LiftError(
                f"there is no module {name!r} in the stack of its framework; give the path of its file, or install it there"
            ) from error
        raise LiftError(f"{name} needs the module {error.name!r}, which its stack does not have") from error
    except (Exception, SystemExit) as error:
        raise LiftError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error


def find_named(name: str) -> Any:
    """Return `module:attribute`, where the module may be a path.

    Raises:
        LiftError: The module cannot be imported, or has no such name.
    """
    module, _, attribute = name.rpartition(":")
    found: Any = import_named(module)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise LiftError(f"{module} has no {attribute}")
        found = getattr(found, part)
    return found


def read_rows(data: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return rows of a data set with the names of their splits.

    Args:
        data: As `LiftOptions.data`. Rows of a file are of the split `train`, unless they have a text `split` themselves.

    Raises:
        LiftError: There are none, or one is no object; the text names file and line.
    """
    if Path(data).suffix == ".jsonl":
        return _read_file(Path(data))
    found = find_named(data)
    if not callable(found):
        return _of_split("train", found, data)
    try:
        return _of_split("train", found(), data)
    except TypeError:
        pass
    rows: list[tuple[str, Mapping[str, Any]]] = []
    for split in SPLITS:
        try:
            rows += _of_split(split, found(split), data)
        except LookupError:
            continue  # a data set need not have all of them
    if not rows:
        raise LiftError(f"{data} has no rows for {', '.join(SPLITS)}")
    return rows


def _of_split(split: str, rows: Iterable[Any], data: str) -> list[tuple[str, Mapping[str, Any]]]:
    found = list(rows)
    if not found or not all(isinstance(row, Mapping) for row in found):
        raise LiftError(f"{data} does not give rows: a list of mappings that is not empty")
    return [(split, row) for row in found]


def _read_file(path: Path) -> list[tuple[str, Mapping[str, Any]]]:
    rows: list[tuple[str, Mapping[str, Any]]] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise LiftError(f"{path} cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise LiftError(f"{path}, line {number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise LiftError(f"{path}, line {number}: a row is an object")
        split = row.get("split")
        rows.append((split if isinstance(split, str) and split else "train", row))
    if not rows:
        raise LiftError(f"{path} holds no row")
    return rows
