"""Put deliberate faults into copies of the project, one at a time, and say which part of the suite notices each.

`python -P -m tests.faults.run` exits with 1 when a fault survives. The stacks must be built, and hold pytest.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.stacks import find_stack
from tests.faults.faults import CORE, FOLDER, ROOT, Fault, FaultError, fault_files, read_faults
from tests.faults.preload import ADDRESS
from tests.faults.table import PUBLISHED, Verdict, Verdicts, publish, read_verdicts, render_list

PATIENCE_S = 240.0
PRELOAD = FOLDER / "preload.py"
PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider")


class Noticed(NamedTuple):
    """Say what noticed a fault, in one line."""

    part: str
    evidence: str


class Done(NamedTuple):
    """Hold how a command ended; `code` is None when it did not end in time."""

    code: int | None
    output: str
    errors: str


def copy_project(target: Path) -> None:
    """Copy the working tree as git sees it; the stacks are shared."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    (target / ".stacks").symlink_to(ROOT / ".stacks")


def run(copy: Path, python: Path | str, *arguments: str, patience_s: float = PATIENCE_S) -> Done:
    """Run a Python on the copy: its modules come before those of the installed project.

    Whatever the command has started ends with it.
    """
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONSAFEPATH": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    process = subprocess.Popen(
        [str(python), "-P", *arguments],
        cwd=copy,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=patience_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        return Done(None, output, errors)
    return Done(process.returncode, output, errors)


@contextmanager
def preloaded(copy: Path, adapter: str, python: Path) -> Iterator[Path]:
    """Keep a process of a stack that has imported its framework; yield the program that forks workers from it.

    Raises:
        FaultError: The framework cannot be imported.
    """
    folder = Path(tempfile.mkdtemp(prefix="rosetta-preload-"))
    address, program = folder / "socket", folder / "python"
    body = f"import runpy, sys\nsys.exit(runpy.run_path({str(PRELOAD)!r}, run_name='__main__'))\n"
    program.write_text(
        f"#!{sys.executable} -S\nimport os\nos.environ[{ADDRESS!r}] = {str(address)!r}\n{body}"
    )
    program.chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONSAFEPATH": "1"}
    server = subprocess.Popen(
        [str(python), "-P", "-m", "tests.faults.preload", str(address), adapter],
        cwd=copy,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        patience = time.monotonic() + PATIENCE_S
        while not address.exists():
            if server.poll() is not None or time.monotonic() > patience:
                raise FaultError(f"{adapter}: its framework cannot be imported by {python}")
            time.sleep(0.05)
        yield program
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def conformance(copy: Path, adapter: str, release: str, python: Path) -> Noticed | None:
    """Play the conformance of a stack; return what it found."""
    arguments = ("-m", "tests.faults.prove", adapter, release, str(python))
    done = run(copy, sys.executable, *arguments, patience_s=PATIENCE_S / 2)
    if done.code is None:
        return Noticed("conformance", "it does not end")
    if done.code < 0:
        raise FaultError(f"the conformance of {release} was killed by signal {-done.code}; that says nothing")
    if done.code:
        return Noticed("conformance", (done.errors.strip().splitlines() or ["?"])[-1])
    found = json.loads(done.output.splitlines()[-1])["found"]
    return None if found is None else Noticed("conformance", found)


def tests(copy: Path, part: str, python: Path | str, *chosen: str) -> Noticed | None:
    """Run tests until the first that fails; return its name.

    Raises:
        FaultError: They cannot be run, or the one that fails does so without the fault, too.
    """
    # A framework's dependencies warn as they like; only our own default run treats warnings as errors.
    own = ("-n", "0") if part == "core tests" else ("-o", "filterwarnings=")
    done = run(copy, python, *PYTEST, *own, *chosen)
    if not done.code:
        # Tests that do not end have noticed nothing: a busy machine is no finding.
        return None
    # What a framework logs may begin with ERROR, too.
    failed = [line for line in done.output.splitlines() if line.startswith(("FAILED tests/", "ERROR tests/"))]
    if not failed:
        raise FaultError(f"the tests cannot be run: {(done.errors or done.output).strip()[-600:]}")
    return Noticed(part, failed[0].partition(" ")[2].partition(" - ")[0])


class Trial:
    """Try faults in one copy of the project, one after the other.

    Args:
        copy: The copy.
        healthy: A copy that is never changed.
        pythons: What to start as the Python of a stack, by its label.
    """

    def __init__(self, copy: Path, healthy: Path, pythons: Mapping[str, Path]) -> None:
        self._copy = copy
        self._healthy = healthy
        self._pythons = pythons

    def verdict(self, name: str, fault: Fault) -> Verdict:
        """Put a fault in, see what notices it, and take it out again.

        Raises:
            FaultError: The tests cannot be run, or fail without the fault, too.
        """
        path = self._copy / fault.file
        path.write_text(fault.put_into(path.read_text(encoding="utf-8")), encoding="utf-8")
        start = time.monotonic()
        try:
            if name == CORE:
                # Conformance compares with the reference, which has the fault as well.
                label = ""
                noticed = self._tests("core tests", fault, Path(sys.executable), "tests/canonical")
            else:
                stack = find_stack(name, fault.release)
                label = stack.label
                noticed = conformance(self._copy, name, label, self._pythons[label])
                noticed = noticed or self._tests("stack tests", fault, stack.python, f"tests/stacks/{name}")
            seconds = time.monotonic() - start
        finally:
            # With its old time, so that what was compiled with the fault is not taken for its own.
            shutil.copy2(self._healthy / fault.file, path)
        part, evidence = noticed or (None, "")
        return Verdict(
            name=fault.name,
            file=fault.file,
            stack=label,
            noticed_by=part,
            evidence=evidence.strip()[:300],
            seconds=round(seconds, 1),
        )

    def _tests(self, part: str, fault: Fault, python: Path, folder: str) -> Noticed | None:
        noticed = tests(self._copy, part, python, *(fault.tests or (folder,)))
        if noticed is not None and (same := tests(self._healthy, part, python, noticed.evidence)):
            raise FaultError(f"{fault.name}: {same.evidence} fails without the fault, too")
        return noticed


def try_list(path: Path, wanted: Sequence[str], jobs: int, folder: Path) -> list[Verdict]:
    """Try the faults of one list whose names contain one of `wanted`.

    Raises:
        FaultError: The list does not fit the source, or the suite fails without any fault.
    """
    faults = [fault for fault in read_faults(path) if any(part in fault.name for part in wanted)]
    if not faults:
        return []
    healthy = folder / "healthy"
    if not healthy.exists():
        copy_project(healthy)
    stacks = (
        {}
        if path.stem == CORE
        else {stack.label: stack for stack in (find_stack(path.stem, fault.release) for fault in faults)}
    )
    with ExitStack() as running:
        pythons = {
            label: running.enter_context(preloaded(healthy, stack.adapter, stack.python))
            for label, stack in stacks.items()
        }
        for label, python in pythons.items():
            if (noticed := conformance(healthy, path.stem, label, python)) is not None:
                raise FaultError(f"{label}: conformance fails without any fault: {noticed.evidence}")
        trials: queue.SimpleQueue[Trial] = queue.SimpleQueue()
        for number in range(min(jobs, len(faults))):
            copy = folder / f"{path.stem}-{number}"
            copy_project(copy)
            trials.put(Trial(copy, healthy, pythons))

        def judge(number: int, fault: Fault) -> Verdict:
            trial = trials.get()
            try:
                verdict = trial.verdict(path.stem, fault)
            finally:
                trials.put(trial)
            sys.stderr.write(
                f"{path.stem} {number + 1}/{len(faults)}: {fault.name}: {verdict.noticed_by or 'NOTHING NOTICES IT'}: "
                f"{verdict.evidence[:100]!r} ({verdict.seconds:.0f} s)\n"
            )
            sys.stderr.flush()
            return verdict

        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(judge, range(len(faults)), faults))


def _merge(name: str, verdicts: list[Verdict]) -> None:
    known = {
        one.name: one
        for before in read_verdicts(PUBLISHED)
        if before.adapter == name
        for one in before.verdicts
    }
    known |= {one.name: one for one in verdicts}
    listed = [fault.name for fault in read_faults(FOLDER / f"{name}.yaml")]
    if missing := [fault for fault in listed if fault not in known]:
        raise FaultError(f"{name}: {missing[0]} was never tried; leave --fault out, or name it")
    publish(Verdicts(adapter=name, verdicts=tuple(known[fault] for fault in listed)), PUBLISHED)


def main() -> int:
    """Try the faults and print tables."""
    known = [path.stem for path in fault_files()]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--adapter", action="append", choices=known, help="only this list; may be repeated")
    parser.add_argument(
        "--fault",
        action="append",
        metavar="NAME",
        help="only faults whose name contains this; may be repeated",
    )
    parser.add_argument("--jobs", type=int, default=1, help="how many copies to try faults in at once")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument(
        "--write",
        action="store_true",
        help="write the tables in reports/published/faults; faults that were not tried keep their verdicts",
    )
    options = parser.parse_args()
    found: list[Verdicts] = []
    try:
        for name in options.adapter or known:
            with tempfile.TemporaryDirectory(prefix="rosetta-faults-") as folder:
                verdicts = try_list(
                    FOLDER / f"{name}.yaml", options.fault or [""], options.jobs, Path(folder)
                )
            found.append(Verdicts(adapter=name, verdicts=tuple(verdicts)))
            if options.write:
                _merge(name, verdicts)
    except FaultError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    if options.json:
        sys.stdout.write(json.dumps([one.model_dump() for one in found], indent=1) + "\n")
    else:
        for one in found:
            sys.stdout.write(f"## {one.adapter}\n\n{render_list(one.verdicts, timed=True)}\n\n")
    survivors = sum(verdict.noticed_by is None for one in found for verdict in one.verdicts)
    sys.stderr.write(f"{sum(len(one.verdicts) for one in found)} faults, {survivors} survive\n")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
