"""What a framework is on a machine: how it installs, how big it is, and how long its import takes.

Every framework is installed afresh into a temporary folder with uv, once to fill uv's cache and once measured.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path
from statistics import median

from bench.facts import Fact, Kind, Probe
from bench.stacks import ROOT, Stack, StackError, find_python
from bench.stone.handwritten import BASELINES, FILE, used_names
from bench.stone.installing import run, uv_path
from bench.stone.places import code_of, line_of
from bench.stone.subject import fact_of
from bench.stone.transport import installed

TABLE = "local"
IMPORTS = 5

_HEAVY = 5
_KINDS: dict[str, Kind] = {"Python": "introspected"}
_FILE = ROOT / "bench" / "stone" / "local.py"


@dataclass(frozen=True, slots=True)
class Installed:
    """Hold what a fresh installation of a framework is.

    Attributes:
        seconds: How long it took, with uv's cache full.
        size: Bytes on disk of all files.
        distributions: How many distributions, the framework's own included.
        heavy: Name and bytes of the largest of them.
        requires_python: What the framework's metadata says.
    """

    seconds: float
    size: int
    distributions: int
    heavy: list[tuple[str, int]]
    requires_python: str


def gather_local(stack: Stack) -> list[Fact]:
    """Return what installing and importing a framework takes on this machine.

    Raises:
        StackError: It cannot be installed.
    """
    found = _install(stack)
    imports, modules = _import_seconds(stack)
    release = f"{stack.release.package}=={stack.release.version}"
    heavy = ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in found.heavy)
    low, high = min(imports), max(imports)
    pins = stack.constraints.relative_to(ROOT).as_posix()
    sent = f"uv pip install --constraint {pins} {release}, on Python {stack.release.python}, into an empty environment"
    rows = [
        (
            "install",
            f"{found.seconds:.1f} s (n = 1, uv's cache full)",
            "install",
            sent,
            f"{found.seconds:.3f} s",
        ),
        ("size on disk", f"{found.size / 1e6:.0f} MB", "install", sent, f"{found.size} bytes"),
        ("distributions", str(found.distributions), "install", sent, f"{found.distributions} distributions"),
        ("largest distributions", heavy, "install", sent, heavy),
        ("Python", found.requires_python, "install", sent, f"Requires-Python: {found.requires_python}"),
        (
            "import",
            f"{median(imports):.2f} s ({low:.2f} to {high:.2f}, n = {len(imports)})",
            "import",
            f"import {', '.join(modules)} in a fresh process",
            ", ".join(f"{one:.3f} s" for one in imports),
        ),
    ]
    counted = _probe("install", sent, f"{found.distributions} distributions")
    return [
        *(
            fact_of(stack, TABLE, row, value, _KINDS.get(row, "measured"), [_probe(name, told, seen)])
            for row, value, name, told, seen in rows
        ),
        _releases(stack),
        installed(stack, found.distributions, counted),
    ]


def _probe(name: str, sent: str, seen: str) -> Probe:
    place = code_of(_FILE, {"install": "_install", "import": "_import_seconds"}[name])
    return Probe(name=name, sent=sent, seen=seen, file=place.file, line=place.first, function=place.name)


def _releases(stack: Stack) -> Fact:
    """Say which other releases this project supports: what a table shows is true of one."""
    others = [one for one in stack.facts.releases if one != stack.release]
    told = ", ".join(f"{one.label} on Python {one.python}" for one in others) or "none"
    places = [
        line_of(stack.features_file.parent / "adapter.toml", f'version = "{one.version}"')
        for one in others or [stack.release]
    ]
    return fact_of(stack, TABLE, "other releases that are played here", told, "declared", places)


def _install(stack: Stack) -> Installed:
    python = find_python(stack.release.python)
    if python is None:
        raise StackError(f"{stack.label} needs Python {stack.release.python}, which is not installed")
    with tempfile.TemporaryDirectory(prefix="rosetta-stone-") as folder:
        seconds = 0.0
        for turn in ("full", "measured"):
            place = Path(folder) / turn
            run([uv_path(), "venv", "--quiet", "--python", str(python), str(place)])
            begun = time.perf_counter()
            done = run(
                [
                    uv_path(), "pip", "install", "--quiet", "--python", str(place / "bin" / "python"), "--constraint",
                    str(stack.constraints), f"{stack.release.package}=={stack.release.version}",
                ]
            )  # fmt: skip
            seconds = time.perf_counter() - begun
            if done.returncode:
                raise StackError(f"{stack.label} could not be installed: {done.stderr.strip()[-400:]}")
        (site,) = (Path(folder) / "measured").glob("lib/python*/site-packages")
        found = list(distributions(path=[str(site)]))
        mine = next(one for one in found if one.metadata["Name"].replace("_", "-") == stack.release.package)
        sizes = sorted(((one.metadata["Name"], _bytes(one)) for one in found), key=lambda pair: -pair[1])
        whole = sum(path.lstat().st_size for path in site.rglob("*") if path.is_file())
        return Installed(
            seconds,
            whole,
            len(found),
            sizes[:_HEAVY],
            str(mine.metadata.json.get("requires_python") or "any"),
        )


def _bytes(distribution: Distribution) -> int:
    return sum(
        place.stat().st_size
        for file in distribution.files or ()
        if (place := Path(str(distribution.locate_file(file)))).is_file()
    )


def _import_seconds(stack: Stack) -> tuple[list[float], list[str]]:
    """Import what the hand-written environment imports of its framework, each time in a fresh process of the stack."""
    modules = sorted(_modules(stack))
    script = (
        "import importlib, time; begun = time.perf_counter()\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "print(time.perf_counter() - begun)"
    )
    found = []
    # The first one compiles and fills the file cache.
    for turn in range(IMPORTS + 1):
        done = run([str(stack.python), "-P", "-c", script])
        if done.returncode:
            raise StackError(
                f"{stack.label} cannot import {', '.join(modules)}: {done.stderr.strip()[-400:]}"
            )
        if turn:
            found.append(float(done.stdout.split()[-1]))
    return found, modules


def _modules(stack: Stack) -> set[str]:
    used = {name.rpartition(".")[0] for name in used_names(BASELINES / stack.adapter / FILE)}
    own = {file.parts[0].removesuffix(".py") for file in provided(stack) if file.suffix == ".py"}
    return {module for module in used if module.partition(".")[0] in own}


def provided(stack: Stack) -> list[Path]:
    """Return the files of the framework's own distribution in its stack, relative to where packages are installed."""
    (site,) = stack.folder.glob("lib/python*/site-packages")
    return [
        Path(file)
        for one in distributions(name=stack.release.package, path=[str(site)])
        for file in one.files or ()
    ]
