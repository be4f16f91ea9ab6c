"""Put deliberate faults into copies of the project, one at a time, and say which part of the suite notices each.

`python tests/faults/run.py` exits with 1 when a fault survives. The stacks must be built.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.stacks import find_stack

ROOT = Path(__file__).resolve().parents[2]
FAULTS = Path(__file__).with_name("faults.yaml")
CORE_TESTS = ("tests/canonical", "-x", "-q", "-p", "no:cacheprovider", "-n", "0")
SKIPPED = {
    ".git",
    ".nox",
    ".venv",
    ".stacks",
    "runs",
    ".hypothesis",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One replacement in one file."""

    name: str
    file: str
    old: str
    new: str


def read_faults(path: Path) -> list[Fault]:
    """Read the faults; each must fit its file exactly once."""
    faults = [Fault(**row) for row in yaml.safe_load(path.read_text(encoding="utf-8"))]
    for fault in faults:
        count = (ROOT / fault.file).read_text(encoding="utf-8").count(fault.old)
        if count != 1:
            raise SystemExit(
                f"{path.name}: {fault.name}: the old text stands {count} times in {fault.file}, not once"
            )
    return faults


def copy_project(target: Path) -> None:
    """Copy the working tree; the stacks are shared."""
    shutil.copytree(ROOT, target, ignore=lambda _, names: SKIPPED & set(names))
    (target / ".stacks").symlink_to(ROOT / ".stacks")


def run(copy: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command on the copy: its modules come before those of the installed project."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-P", *command],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def noticed_by(copy: Path, adapter: str) -> tuple[str, str] | None:
    """Return which part of the suite notices the fault, and its words; None when nothing does."""
    release = find_stack(adapter).label
    done = run(copy, "-m", "rosetta", "conformance", adapter, "--release", release, "--quiet")
    if done.returncode == 1:
        lines = [line.strip() for line in done.stdout.splitlines() if "differs" in line]
        return "conformance", lines[0] if lines else done.stdout.strip()[:120]
    if done.returncode:
        return "conformance", (done.stderr.strip().splitlines() or ["?"])[0][:120]
    done = run(copy, "-m", "pytest", *CORE_TESTS)
    if done.returncode == 1:
        failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
        return "core tests", failed[0].removeprefix("FAILED ").split(" - ")[0] if failed else "?"
    if done.returncode:
        raise SystemExit(f"the core tests could not be run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return None


def main() -> int:
    """Try the faults and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--adapter", default="openenv", help="the adapter whose conformance is run")
    parser.add_argument("--only", help="part of a fault's name")
    options = parser.parse_args()
    faults = [fault for fault in read_faults(FAULTS) if options.only is None or options.only in fault.name]
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="rosetta-faults-") as folder:
        healthy = Path(folder) / "healthy"
        copy_project(healthy)
        noticed = noticed_by(healthy, options.adapter)
        if noticed is not None:
            raise SystemExit(f"the suite fails without any fault: {noticed[0]}: {noticed[1]}")
        sys.stdout.write("| fault | where | noticed by | how | s |\n|---|---|---|---|---|\n")
        for index, fault in enumerate(faults):
            copy = Path(folder) / f"fault-{index}"
            copy_project(copy)
            file = copy / fault.file
            file.write_text(file.read_text(encoding="utf-8").replace(fault.old, fault.new), encoding="utf-8")
            start = time.monotonic()
            noticed = noticed_by(copy, options.adapter)
            shutil.rmtree(copy)
            survivors += noticed is None
            by, how = noticed or ("NOTHING", "the fault survives")
            sys.stdout.write(
                f"| {fault.name} | {fault.file} | {by} | {how} | {time.monotonic() - start:.0f} |\n"
            )
            sys.stdout.flush()
    sys.stdout.write(f"\n{len(faults)} faults, {survivors} survive\n")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
