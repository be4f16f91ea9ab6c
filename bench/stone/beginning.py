"""Cost of a new environment: from an empty folder to the first test that passes, really run.

Where a release brings a command that makes an environment, it is run; otherwise the environment that is written by hand for the
framework is copied, since that is what an author begins with. What an author has to fill in before anything runs is written,
and counted. Then the first test runs, in a fresh process of the stack.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from bench.facts import Code, Evidence, Fact, Kind, Probe
from bench.stacks import ROOT, Stack, StackError, require_stack
from bench.stone.asking import ask
from bench.stone.handwritten import BASELINES, FILE, code_lines, used_names
from bench.stone.local import provided
from bench.stone.places import NoSuchPlace, code_of, line_of
from bench.stone.subject import UnresolvedSymbols, fact_of, symbol_of
from canonical.landscape import LANDSCAPE_FILE, Beginning, Edit, read_landscape

TABLE = "new-environment"
TIMEOUT_S = 300

_FILE = ROOT / "bench" / "stone" / "beginning.py"


@dataclass(frozen=True, slots=True)
class Made:
    """Hold what was made, and how long it took.

    Attributes:
        files: How many files an author has then, without logs, hidden ones, and the lock that a command writes where it finds uv.
        lines: Lines with code in them.
        concepts: Names of the framework in them.
        written: Lines that an author wrote before anything ran.
        scaffold_s: How long the scaffold took, in seconds; 0 without one.
        test_s: How long the first test took, in seconds.
        cpu_s: Processor time of both, in seconds.
    """

    files: int
    lines: int
    concepts: tuple[str, ...]
    written: int
    scaffold_s: float
    test_s: float
    cpu_s: float


def gather_beginning(stack: Stack) -> list[Fact]:
    """Return what a new environment costs; the stack must be ready.

    Raises:
        NoSuchPlace: What is to be filled in is not what the scaffold leaves.
        UnresolvedSymbols: The release does not have the scaffolder.
        StackError: The scaffold or the test fails, or the stack is not ready.
    """
    require_stack(stack)
    folder = stack.features_file.parent
    beginning = read_landscape(folder).beginning
    if beginning is None:
        return []
    made = _make(stack, beginning)
    command = " ".join(beginning.scaffold)
    ran = _probe(
        command or f"a copy of {_baseline(stack).relative_to(ROOT).as_posix()}",
        f"{made.files} files, {made.lines} lines with code; {made.scaffold_s:.1f} s",
    )
    # What was copied is a whole game: its lines are no measure beside those of a skeleton.
    whole = "" if beginning.scaffold else "; Rosetta's Wordle, a whole game"
    place = line_of(folder / LANDSCAPE_FILE, "first_test =")
    tested = _probe(f"the first test: {beginning.tests}", f"passed after {made.test_s:.1f} s")
    rows: list[tuple[str, str, Kind, Sequence[Evidence], JsonValue]] = [
        _scaffolder(stack, beginning),
        ("files", f"{made.files}{whole}", "measured", [ran], made.files),
        ("lines with code", f"{made.lines}{whole}", "measured", [ran], made.lines),
        ("lines to write before anything runs", f"{made.written}{whole}", "measured", [ran, place], made.written),
        ("concepts of the framework", _counted(made.concepts), "measured", [ran], list(made.concepts)),
        (
            "from an empty folder to the first passing test", _seconds(made), "measured", [ran, tested],
            {"scaffold_s": round(made.scaffold_s, 3), "test_s": round(made.test_s, 3), "cpu_s": round(made.cpu_s, 3)},
        ),
        ("what the first test tests", beginning.tests, "probed", [tested, place], None),
    ]  # fmt: skip
    return [
        fact_of(stack, TABLE, row, value, kind, evidence, data) for row, value, kind, evidence, data in rows
    ]


def _scaffolder(stack: Stack, beginning: Beginning) -> tuple[str, str, Kind, Sequence[Evidence], JsonValue]:
    if not beginning.scaffold:
        copied = Code(
            file=_baseline(stack).relative_to(ROOT).as_posix(), first=1,
            last=len(_baseline(stack).read_text(encoding="utf-8").splitlines()), name=_baseline(stack).stem,
        )  # fmt: skip
        programs = sorted(path.name for path in _programs(stack))
        seen = ", ".join(programs) or "none"
        probe = _probe(f"programs that {stack.release.label} installs", seen)
        return (
            "scaffolder",
            "none; Rosetta's own hand-written Wordle was copied",
            "probed",
            [probe, copied],
            None,
        )
    release = ask(stack, names=[beginning.scaffolder])
    found = release.names[beginning.scaffolder]
    if found.missing is not None:
        raise UnresolvedSymbols(f"{stack.label} does not have {beginning.scaffolder}: {found.missing}")
    return "scaffolder", f"`{' '.join(beginning.scaffold)}`", "introspected", [symbol_of(found)], None


def _programs(stack: Stack) -> list[Path]:
    """Programs that the framework's own distribution installs."""
    return [path for path in provided(stack) if path.parent.name == "bin"]


def _seconds(made: Made) -> str:
    parts = f": {made.scaffold_s:.0f} s the command, {made.test_s:.0f} s the test" if made.scaffold_s else ""
    clock = f"{made.scaffold_s + made.test_s:.0f} s by the clock{parts}"
    return f"{made.cpu_s:.1f} s of processor time ({clock}; n = 1)"


def _counted(names: Sequence[str]) -> str:
    short = [name.rpartition(".")[2] for name in names]
    return f"{len(names)}: {', '.join(short)}" if names else "0"


def _baseline(stack: Stack) -> Path:
    return BASELINES / stack.adapter / FILE


def _probe(sent: str, seen: str) -> Probe:
    place = code_of(_FILE, "_make")
    return Probe(name="begin", sent=sent, seen=seen, file=place.file, line=place.first, function=place.name)


def _make(stack: Stack, beginning: Beginning) -> Made:
    with tempfile.TemporaryDirectory(prefix="rosetta-stone-") as name:
        folder, home = Path(name) / "work", Path(name) / "home"
        folder.mkdir()
        home.mkdir()
        environment = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
        environment |= {"HOME": str(home), "PYTHONPATH": str(folder / beginning.path)}
        busy, begun = _processor_seconds(), time.perf_counter()
        if beginning.scaffold:
            program, *arguments = beginning.scaffold
            _run(stack, [str(stack.folder / "bin" / program), *arguments], folder, environment)
        else:
            shutil.copy(_baseline(stack), folder / FILE)
        scaffold_s = time.perf_counter() - begun if beginning.scaffold else 0.0
        kept = [
            path
            for path in folder.rglob("*")
            if path.is_file()
            and path.suffix not in {".log", ".lock"}
            and not any(
                part.startswith(".") or part == "__pycache__" for part in path.relative_to(folder).parts
            )
        ]
        for edit in beginning.edits:
            fill(folder, edit)
        test = folder / beginning.path / "first_test.py"
        test.write_text(beginning.first_test, encoding="utf-8")
        begun = time.perf_counter()
        _run(stack, [str(stack.python), str(test)], folder, environment)
        test_s, cpu_s = time.perf_counter() - begun, _processor_seconds() - busy
        sources = [path for path in kept if path.suffix == ".py"]
        own = {path.parts[0].removesuffix(".py") for path in provided(stack) if path.suffix == ".py"}
        names = {one for path in sources for one in used_names(path) if one.partition(".")[0] in own}
        # What is imported from the folder itself is no name of the framework, though its package may be called alike.
        made_here = {path.stem for path in sources} | {path.parent.name for path in sources}
        return Made(
            len(kept),
            sum(map(code_lines, sources)),
            tuple(sorted(one for one in names if not made_here & set(one.split(".")[:-1]))),
            sum(len(edit.new.splitlines()) for edit in beginning.edits),
            scaffold_s,
            test_s,
            cpu_s,
        )


def _processor_seconds() -> float:
    """Return the processor time of the processes that this one has waited for, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def fill(folder: Path, edit: Edit) -> None:
    """Write what an author writes in the place of what a scaffold leaves open.

    Raises:
        NoSuchPlace: The file does not hold it exactly once.
    """
    file = folder / edit.file
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    if text.count(edit.old) != 1:
        raise NoSuchPlace(
            f"{edit.file} holds {text.count(edit.old)} times what is to be filled in: {edit.old.strip()!r}"
        )
    file.write_text(text.replace(edit.old, edit.new), encoding="utf-8")


def _run(stack: Stack, command: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
    try:
        done = subprocess.run(
            list(command), cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StackError(f"{stack.label}: {command[0]} cannot be run: {error}") from error
    if done.returncode:
        raise StackError(
            f"{stack.label}: {' '.join(command)} failed: {(done.stderr or done.stdout).strip()[-600:]}"
        )
