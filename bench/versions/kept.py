"""Cells that were played before, each kept by the hash of everything that decides what it says."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pydantic import ValidationError

import bench
import canonical
from bench.scenarios import GENERAL
from bench.stacks import Stack, adapters_folder
from bench.versions.cells import Cell
from canonical.catalogue import definition_path, load_environment

_PLAYING = "bench.versions.play"


def cell_key(stack: Stack, environment: str, *, episodes: int, seed: int) -> str:
    """Return the hash of adapter, environment, constraints and suite: of everything that decides what a cell says.

    Of an environment that is one file by itself, data that lie beside it are not seen: nobody knows which are its own.
    """
    # Two wheels may lie at one place one after the other; what a candidate is called tells them apart.
    installed = f"{stack.inputs_sha256} {stack.candidate.name if stack.candidate else ''}".strip()
    asked_for = json.dumps([stack.facts.kind, stack.facts.imports, stack.facts.stone.symbols])
    digest = hashlib.sha256(f"{stack.label} {environment} {episodes} {seed} {installed} {asked_for}".encode())
    place = definition_path(load_environment(environment))
    adapter = adapters_folder() / stack.adapter
    known = adapter / "known_failures.toml"
    for root, files in (
        (adapter, [*sorted(adapter.rglob("*.py")), *([known] if known.is_file() else [])]),
        (place.parent, environment_files(place)),
        *suite_files(),
    ):
        for file in files:
            content = file.read_bytes()
            digest.update(f"{file.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def environment_files(place: Path) -> list[Path]:
    """Return the files of an environment that are played: all of its folder, data and tasks among them.

    Args:
        place: The Python file that defines it.
    """
    if place.name != "environment.py":
        return [place]
    # With the golden set it is compared elsewhere.
    return [
        file
        for file in sorted(place.parent.rglob("*"))
        if file.is_file() and not {"__pycache__", "golden"} & set(file.relative_to(place.parent).parts)
    ]


@cache
def suite_files() -> tuple[tuple[Path, list[Path]], ...]:
    """Return what plays every environment, by the folder that it lies in: the core, and what conformance needs of `bench`."""
    core, suite = Path(next(iter(canonical.__path__))), Path(next(iter(bench.__path__)))
    return (
        (
            core,
            [one for one in sorted(core.rglob("*.py")) if one.relative_to(core).parts[0] != "environments"],
        ),
        (suite, sorted({*_needed(suite), *(suite / "worker").rglob("*.py"), GENERAL})),
        (suite, environment_files(suite / "touchstone" / "environment.py")),
    )


def _needed(suite: Path) -> set[Path]:
    """Return the modules of `bench` that playing a cell imports, directly or not."""
    found: set[Path] = set()
    waiting = [_PLAYING]
    while waiting:
        file = _file_of(suite, waiting.pop())
        if file is not None and file not in found:
            found.add(file)
            waiting += _imports(file)
    return found


def _file_of(suite: Path, module: str) -> Path | None:
    top, *parts = module.split(".")
    if top != suite.name:
        return None
    place = suite.joinpath(*parts)
    return next((one for one in (place.with_suffix(".py"), place / "__init__.py") if one.is_file()), None)


def _imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            # Of a package, a name may be a module.
            yield from (f"{node.module}.{one.name}" for one in node.names)


class CellStore:
    """Keep cells in a folder, one file for each release."""

    def __init__(self, folder: Path) -> None:
        """Keep them in a folder, which need not be there yet."""
        self._folder = folder

    def read(self, label: str, key: str) -> Cell | None:
        """Return the cell of a release if it was kept under the same key, and was played to its end."""
        try:
            cell = Cell.model_validate_json(self._path(label).read_bytes())
        except (OSError, ValidationError):
            return None
        # What a worker died of may be nothing that the key holds, such as a signal or a full memory.
        return cell if cell.key == key and cell.episodes and not cell.reason else None

    def write(self, cell: Cell) -> None:
        """Keep a cell, in place of the one that was kept of the same release."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._path(cell.stack).write_text(cell.model_dump_json(indent=1) + "\n", encoding="utf-8")

    def _path(self, label: str) -> Path:
        return self._folder / f"{label}.json"
