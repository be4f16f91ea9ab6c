"""Adapters, libraries and environments are folders: what must lie in them does, and nothing else lists them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from canonical.adapter import AdapterFacts, LibraryFacts, StackFacts
from canonical.catalogue import environment_names, load_environment

ROOT = Path(__file__).resolve().parents[2]
ADAPTERS = sorted(path.parent for path in ROOT.glob("adapters/*/adapter.toml"))
LIBRARIES = sorted(path.parent for path in ROOT.glob("libraries/*/library.toml"))
FILES = (
    "__init__.py",
    "adapter.py",
    "compiler.py",
    "session.py",
    "known_failures.toml",
    "README.md",
    "constraints",
)


LIBRARY_FILES = ("__init__.py", "lifter.py", "sources.toml", "README.md", "constraints")


def test_there_is_an_adapter_and_a_library() -> None:
    assert ADAPTERS
    assert LIBRARIES
    assert {folder.name for folder in ADAPTERS} & {folder.name for folder in LIBRARIES} == set()


@pytest.mark.parametrize("folder", ADAPTERS, ids=lambda folder: folder.name)
def test_every_adapter_folder_holds_the_same_files(folder: Path) -> None:
    assert [name for name in FILES if not (folder / name).exists()] == []


@pytest.mark.parametrize("folder", LIBRARIES, ids=lambda folder: folder.name)
def test_every_library_folder_holds_the_same_files_and_is_tested_in_its_stack(folder: Path) -> None:
    assert [name for name in LIBRARY_FILES if not (folder / name).exists()] == []
    assert (ROOT / "tests" / "stacks" / folder.name / "test_lifter.py").is_file()


def facts_of(folder: Path) -> StackFacts:
    if folder in LIBRARIES:
        return LibraryFacts.read(folder / "library.toml")
    return AdapterFacts.read(folder / "adapter.toml")


@pytest.mark.parametrize("folder", [*ADAPTERS, *LIBRARIES], ids=lambda folder: folder.name)
def test_every_supported_release_is_pinned_exactly(folder: Path) -> None:
    facts = facts_of(folder)
    for release in facts.releases:
        pins = (folder / "constraints" / f"{release.label}.txt").read_text(encoding="utf-8").splitlines()
        rows = [line for line in pins if line and not line.startswith("#")]
        assert f"{release.package}=={release.version}" in rows
        assert [row for row in rows if "==" not in row or "://" in row or "@" in row] == []


@pytest.mark.parametrize("folder", ADAPTERS, ids=lambda folder: folder.name)
def test_known_failures_are_explained(folder: Path) -> None:
    known = tomllib.loads((folder / "known_failures.toml").read_text(encoding="utf-8")).get("known", [])
    for entry in known:
        assert entry["kind"] in {"ours", "upstream", "never"}
        assert entry["reason"]
        assert entry["kind"] != "upstream" or entry["issue"]


@pytest.mark.parametrize("folder", ["adapters", "libraries"])
def test_nothing_lies_directly_beside_the_folders_that_could_shadow_a_framework(folder: str) -> None:
    scripts = {path.name for path in (ROOT / folder).glob("*.py")}
    assert scripts == {"__init__.py"}


@pytest.mark.parametrize("name", environment_names())
def test_the_catalogue_name_of_an_environment_is_its_folder(name: str) -> None:
    assert load_environment(name).name == name


def test_no_framework_is_named_outside_its_folder() -> None:
    """No code of the shared layers asks which framework it is dealing with."""
    names = {folder.name for folder in [*ADAPTERS, *LIBRARIES]}
    places = []
    for layer in ("canonical", "bench", "reports", "rosetta"):
        for path in (ROOT / layer).rglob("*.py"):
            if path.is_relative_to(ROOT / "bench" / "baselines"):
                continue
            text = path.read_text(encoding="utf-8")
            places += [
                f"{path.relative_to(ROOT)}: {name}"
                for name in names
                if f'== "{name}"' in text or f'"{name}" ==' in text
            ]
    assert places == []
