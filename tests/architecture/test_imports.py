"""Who may import what, read from the source, because no framework is installed here."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ADAPTERS = sorted(path.parent for path in ROOT.glob("adapters/*/adapter.toml"))
LIBRARIES = sorted(path.parent for path in ROOT.glob("libraries/*/library.toml"))
BASELINES = sorted(path.parent for path in ROOT.glob("bench/baselines/*/baseline.py"))
OWN = {"canonical", "adapters", "libraries", "bench", "reports", "rosetta"}


def imports_of(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module, node.lineno
        elif isinstance(node, ast.ImportFrom):
            raise AssertionError(f"{path}:{node.lineno}: relative imports hide where a name comes from")


def foreign(path: Path) -> Iterator[tuple[str, int]]:
    for name, line in imports_of(path):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names:
            yield name, line


@pytest.mark.parametrize("folder", [*ADAPTERS, *LIBRARIES], ids=lambda folder: folder.name)
def test_an_adapter_or_library_imports_canonical_and_what_it_declares(folder: Path) -> None:
    (facts,) = (path for name in ("adapter", "library") if (path := folder / f"{name}.toml").is_file())
    declared = set(tomllib.loads(facts.read_text(encoding="utf-8"))["imports"])
    mine = f"{folder.parent.name}.{folder.name}"
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in folder.rglob("*.py")
        for name, line in foreign(path)
        if name.partition(".")[0] not in declared | {"canonical"}
        and not (name == mine or name.startswith(f"{mine}."))
    ]
    assert wrong == []


@pytest.mark.parametrize("baseline", BASELINES, ids=lambda folder: folder.name)
def test_a_baseline_is_written_as_a_user_would_and_knows_no_episode(baseline: Path) -> None:
    assert (ROOT / "adapters" / baseline.name / "adapter.toml").is_file()
    for path in baseline.glob("*.py"):
        names = [name for name, _ in foreign(path)]
        if path.name != "baseline.py":
            # The environment itself may use its framework and that framework's own dependencies, never ours.
            assert [name for name in names if name.partition(".")[0] in OWN] == []
        else:
            assert [
                n
                for n in names
                if n.startswith(("adapters", "libraries", "reports", "rosetta", "canonical.episode"))
            ] == []


def test_canonical_imports_the_standard_library_and_pydantic() -> None:
    allowed = {"pydantic", "pydantic_core", "canonical"}
    on_use = {"canonical/strict_yaml.py": {"yaml"}, "canonical/chat.py": {"openai"}}
    # Runs with the repository that is graded, where pytest is.
    on_use |= {"canonical/grading/reporter.py": {"pytest"}}
    on_use |= {f"canonical/sandbox/{name}.py": {name} for name in ("docker", "e2b", "modal")}
    wrong = []
    # What lies in the tasks of an environment is their data, and no code of this project.
    data = set(ROOT.glob("canonical/environments/*/tasks/**/*.py"))
    for path in set((ROOT / "canonical").rglob("*.py")) - data:
        extra = on_use.get(path.relative_to(ROOT).as_posix(), set())
        wrong += [
            f"{path.relative_to(ROOT)}:{line}: {name}"
            for name, line in foreign(path)
            if name.partition(".")[0] not in allowed | extra
        ]
    assert wrong == []


def test_importing_canonical_loads_nothing_heavy() -> None:
    """A stack pays for its framework, not for ours: measured in a fresh process, where nothing was imported before."""
    script = (
        "import sys, canonical.reference, canonical.rollout, canonical.checker, canonical.judge, bench.worker.service;"
        "print(sorted({m.partition('.')[0] for m in sys.modules} & "
        "{'openai','yaml','numpy','pandas','pyarrow','scipy','locust','gevent','matplotlib','rich','click','httpx'}))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
