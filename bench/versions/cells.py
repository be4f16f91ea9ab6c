"""Cells of the matrix of versions: what one release of one framework showed, kept until something that decides it changes."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

import bench
import canonical
from bench.scenarios import GENERAL
from bench.stacks import Stack, adapters_folder
from canonical.catalogue import definition_path, load_environment

SUITE = (
    "client.py",
    "conformance.py",
    "features.py",
    "projection.py",
    "protocol.py",
    "scenarios.py",
    "session.py",
)
"""The modules of `bench` that decide what conformance finds, beside the worker and the touchstone."""


class Outcome(StrEnum):
    """Name what came of a release."""

    PASSES = "passes"
    FAILS = "fails"
    KNOWN = "fails as known"
    NOT_INSTALLABLE = "not installable"
    NO_INTERPRETER = "no interpreter"

    @property
    def good(self) -> bool:
        """Whether there is nothing to be done: what cannot be tried here is no finding."""
        return self is not Outcome.FAILS


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Finding(_Part):
    """Hold one promise that a release breaks.

    Attributes:
        promise: The scenario or the feature, and what it promises.
        difference: The first step that differs, both sides in words.
    """

    promise: str
    difference: str


class SymbolState(_Part):
    """Hold what a name is in a release.

    Attributes:
        name: Module and qualified name.
        there: Whether it resolves.
        what: Class, function, property, field, module or value.
        signature: Its parameters, or its type, as far as the release tells.
    """

    name: str
    there: bool
    what: str = ""
    signature: str = ""


class Cell(_Part):
    """Hold what came of one release.

    Attributes:
        framework: Folder name of the adapter.
        title: The framework's name as its makers write it.
        stack: Label of the release, with its target where it has several.
        package: The distribution.
        version: Its version.
        python: The Python of the stack, as asked for.
        environment: What was played.
        key: The hash of everything that decides the outcome.
        outcome: What came of it.
        reason: Why nothing could be played; empty where something was.
        findings: The promises that it breaks, each once, in the order of the suite.
        episodes: How many episodes were played.
        steps: How many actions they took.
        digest: Of the transcripts that it showed; equal for two releases that showed the same.
        features: Feature -> how the adapter has it in this release, as proven.
        symbols: What this project uses or names of the framework, and what that is in this release.
        seconds: How long it took, with the installation.
        played: When it was played.
        commit: The commit that played it; None outside of a checkout.
    """

    framework: str
    title: str
    stack: str
    package: str
    version: str
    python: str
    environment: str
    key: str
    outcome: Outcome
    reason: str = ""
    findings: tuple[Finding, ...] = ()
    episodes: int = Field(default=0, ge=0)
    steps: int = Field(default=0, ge=0)
    digest: str = ""
    features: dict[str, str] = {}
    symbols: tuple[SymbolState, ...] = ()
    seconds: float = Field(default=0.0, ge=0)
    played: AwareDatetime
    commit: str | None = None


def cell_key(stack: Stack, environment: str, *, episodes: int, seed: int) -> str:
    """Return the hash of adapter, environment, constraints and suite: of everything that decides what a cell says."""
    digest = hashlib.sha256(f"{stack.label} {environment} {episodes} {seed} {stack.inputs_sha256}".encode())
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
