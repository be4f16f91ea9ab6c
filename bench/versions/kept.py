"""Cells that were played before, each kept by the hash of everything that decides what it says."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import ValidationError

import bench
import canonical
from bench.scenarios import GENERAL
from bench.stacks import Stack, adapters_folder
from bench.versions.cells import Cell
from canonical.catalogue import definition_path, load_environment

SUITE = (
    "client.py",
    "conformance.py",
    "features.py",
    "projection.py",
    "protocol.py",
    "relay.py",
    "scenarios.py",
    "session.py",
    "stone/transport.py",
    "stone/wire.py",
    "versions/frames.py",
)
"""The modules of `bench` that decide what conformance finds and what is recorded, beside the worker and the touchstone."""


def cell_key(stack: Stack, environment: str, *, episodes: int, seed: int) -> str:
    """Return the hash of adapter, environment, constraints and suite: of everything that decides what a cell says."""
    # Two wheels may lie at one place one after the other; what a candidate is called tells them apart.
    installed = f"{stack.inputs_sha256} {stack.candidate.name if stack.candidate else ''}".strip()
    digest = hashlib.sha256(f"{stack.label} {environment} {episodes} {seed} {installed}".encode())
    suite, core = Path(next(iter(bench.__path__))), Path(next(iter(canonical.__path__)))
    place = definition_path(load_environment(environment))
    adapter = adapters_folder() / stack.adapter
    for file in (
        *_python_files(adapter),
        adapter / "known_failures.toml",
        *_python_files(place.parent if place.name == "environment.py" else place),
        *sorted(core.glob("*.py")),
        *(suite / name for name in SUITE),
        *_python_files(suite / "worker"),
        *_python_files(suite / "touchstone"),
        GENERAL,
        *sorted((suite / "touchstone").glob("*.yaml")),
    ):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _python_files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    # What an environment only shows to agents, or is compared with elsewhere, decides nothing here.
    return [
        file
        for file in sorted(place.rglob("*.py"))
        if not {"golden", "tasks"} & set(file.relative_to(place).parts)
    ]


class CellStore:
    """Keep cells in a folder, one file for each release."""

    def __init__(self, folder: Path) -> None:
        """Keep them in a folder, which need not be there yet."""
        self._folder = folder

    def read(self, label: str, key: str) -> Cell | None:
        """Return the cell of a release if it was kept under the same key, and could be played."""
        try:
            cell = Cell.model_validate_json(self._path(label).read_bytes())
        except (OSError, ValidationError):
            return None
        return cell if cell.key == key and not cell.reason else None

    def write(self, cell: Cell) -> None:
        """Keep a cell, in place of the one that was kept of the same release."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._path(cell.stack).write_text(cell.model_dump_json(indent=1) + "\n", encoding="utf-8")

    def _path(self, label: str) -> Path:
        return self._folder / f"{label}.json"
