"""Stacks: one virtual environment per release of a framework or library, built from the constraints in its folder."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from canonical.adapter import AdapterFacts, LibraryFacts, Release, StackFacts

ROOT = Path(__file__).resolve().parent.parent
STACKS = ROOT / ".stacks"
_STAMP = "rosetta-stack.json"


class StackError(RuntimeError):
    """Report that a stack is unknown, missing or cannot be built, and what to do about it."""


class UnknownStackError(StackError):
    """Report a framework or release that nobody supports here; the text lists those that are."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Say what is installed in the stack of a release that nobody supports yet.

    Attributes:
        name: What its stack is called.
        constraints: The file that pins everything.
        requirements: What is installed in place of an extra of this project, whose bounds are for what is supported.
    """

    name: str
    constraints: Path
    requirements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReleaseStack:
    """Name one release of what lies in a folder here, and where its virtual environment is.

    Attributes:
        name: Name of the folder.
        facts: What the folder says of itself.
        release: The release.
    """

    name: str
    facts: StackFacts
    release: Release

    @property
    def label(self) -> str:
        """Package and release in one word, as commands and reports show it."""
        return self.release.label

    @property
    def home(self) -> Path:
        """The folder that it is built from."""
        return home_folder(self.name)

    @property
    def module(self) -> str:
        """That folder as a package, such as `adapters.gem`."""
        return f"{self.home.parent.name}.{self.name}"

    @property
    def entry(self) -> str:
        """The module that has to be importable there."""
        return f"{self.module}.lifter"

    @property
    def folder(self) -> Path:
        """Where the virtual environment lies."""
        return STACKS / self.release.label

    @property
    def python(self) -> Path:
        """The interpreter of the stack."""
        return self.folder / "bin" / "python"

    @property
    def constraints(self) -> Path:
        """The file that pins every distribution of the stack."""
        return self.home / "constraints" / f"{self.release.label}.txt"

    @property
    def requirements(self) -> tuple[str, ...]:
        """What is installed: this project, editable, with what else is needed."""
        return (f"{ROOT}[{self.release.extra}]",)

    @property
    def inputs_sha256(self) -> str:
        """The hash of everything that decides what is installed."""
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        # What environments become there changes nothing of what is installed.
        digest = hashlib.sha256(self.release.model_dump_json(exclude={"targets", "matrix_only"}).encode())
        digest.update(
            json.dumps([project["dependencies"], self.facts.extras, project.get("scripts")]).encode()
        )
        digest.update(self.constraints.read_bytes() if self.constraints.is_file() else b"absent")
        return digest.hexdigest()

    def is_ready(self) -> bool:
        """Whether the stack is built from the present inputs."""
        try:
            stamp = json.loads((self.folder / _STAMP).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return self.python.exists() and stamp.get("inputs_sha256") == self.inputs_sha256

    def works(self) -> bool:
        """Whether the stack's interpreter really runs."""
        return _is(self.python, self.release.python)

    def build_command(self) -> str:
        """Return the command that builds this stack, for messages."""
        return f"rosetta stack build {self.name} --release {self.release.version}"


@dataclass(frozen=True, slots=True)
class Stack(ReleaseStack):
    """Be the stack of one release of a framework.

    Attributes:
        name: Folder name of the adapter.
        facts: What its `adapter.toml` says.
        release: The release.
        target: What environments become, one of the release's targets; empty for the default.
        candidate: What is tried before it is supported; None for a supported release.
    """

    facts: AdapterFacts
    target: str = ""
    candidate: Candidate | None = None

    @property
    def adapter(self) -> str:
        """Folder name of the adapter."""
        return self.name

    @property
    def label(self) -> str:
        """Adapter and release in one word, as commands and reports show it."""
        return f"{self.release.label}-{self.target}" if self.target else self.release.label

    @property
    def entry(self) -> str:
        """The module that has to be importable there."""
        return f"{self.module}.adapter"

    @property
    def worker(self) -> str:
        """The adapter as a worker takes it."""
        return f"{self.adapter}:{self.target}" if self.target else self.adapter

    @property
    def wire(self) -> str:
        """The module that says what travels between client and server, as the load engine takes it."""
        return f"{self.module}.wire"

    def per_target(self) -> list[Stack]:
        """Return this stack once for each target that its release has, or alone when one was chosen."""
        targets = () if self.target else self.release.targets
        return [replace(self, target=target) for target in targets] or [self]

    @property
    def folder(self) -> Path:
        """Where the virtual environment lies."""
        return STACKS / (self.candidate.name if self.candidate else self.release.label)

    @property
    def constraints(self) -> Path:
        """The file that pins every distribution of the stack."""
        if self.candidate:
            return self.candidate.constraints
        return self.home / "constraints" / f"{self.release.label}.txt"

    @property
    def requirements(self) -> tuple[str, ...]:
        """What is installed: this project, editable, with what else is needed."""
        if self.candidate:
            return (str(ROOT), *self.candidate.requirements)
        return (f"{ROOT}[{self.release.extra}]",)

    @property
    def features_file(self) -> Path:
        """The file that keeps what was proven of the features of every release of this adapter."""
        return self.home / "features.json"


@dataclass(frozen=True, slots=True)
class LibraryStack(ReleaseStack):
    """Be the stack of one release of a library of tasks, to which nothing is compiled.

    Attributes:
        name: Folder name of the library.
        facts: What its `library.toml` says.
        release: The release.
    """

    facts: LibraryFacts


def adapters_folder() -> Path:
    """Return the folder that holds the adapters, without importing any."""
    return _package_folder("adapters")


def libraries_folder() -> Path:
    """Return the folder that holds the libraries of tasks, without importing any."""
    return _package_folder("libraries")


def _package_folder(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise StackError(f"the package {package!r} is not installed; install this project first")
    return Path(next(iter(found.submodule_search_locations)))


def adapter_names() -> tuple[str, ...]:
    """Return the names of all adapters, sorted."""
    return tuple(sorted(path.parent.name for path in adapters_folder().glob("*/adapter.toml")))


def library_names() -> tuple[str, ...]:
    """Return the names of all libraries of tasks, sorted."""
    return tuple(sorted(path.parent.name for path in libraries_folder().glob("*/library.toml")))


def home_folder(name: str) -> Path:
    """Return the folder of an adapter or a library of tasks."""
    return (libraries_folder() if name in library_names() else adapters_folder()) / name


def find_stack(adapter: str, release: str | None = None) -> Stack:
    """Return the stack of an adapter, at its default release or at the one named.

    Args:
        adapter: Folder name of the adapter; `-` may stand for `_`. A target may follow, as in `verifiers:taskset`.
        release: A version, or a label such as `openenv-core-0.3.0`.

    Raises:
        UnknownStackError: There is no such adapter or release; the text lists what there is.
    """
    framework, _, target = adapter.partition(":")
    name = _folder_name(framework)
    if name not in adapter_names():
        library = ", and nothing is compiled to a library of tasks" if name in library_names() else ""
        raise UnknownStackError(
            f"there is no framework {framework!r}{library}; there are {', '.join(adapter_names())}"
        )
    facts = AdapterFacts.read(adapters_folder() / name / "adapter.toml")
    chosen = _choose(facts, release)
    if target and target not in chosen.targets:
        known = ", ".join(f"{name}:{one}" for one in chosen.targets) or "only one"
        raise UnknownStackError(f"{chosen.label} has no target {target!r}; there is {known}")
    return Stack(name, facts, chosen, target)


def find_library(library: str, release: str | None = None) -> LibraryStack:
    """Return the stack of a library of tasks, at its default release or at the one named.

    Args:
        library: Folder name of the library; `-` may stand for `_`.
        release: A version, or a label such as `reasoning-gym-0.1.25`.

    Raises:
        UnknownStackError: There is no such library or release; the text lists what there is.
    """
    name = _folder_name(library)
    if name not in library_names():
        raise UnknownStackError(
            f"there is no library of tasks {library!r}; there are {', '.join(library_names())}"
        )
    facts = LibraryFacts.read(libraries_folder() / name / "library.toml")
    return LibraryStack(name, facts, _choose(facts, release))


def find_owner(name: str, release: str | None = None) -> ReleaseStack:
    """Return the stack of whatever owns sources, a framework or a library of tasks.

    Raises:
        UnknownStackError: There is neither, or no such release; the text lists what there is.
    """
    if _folder_name(name) in library_names():
        return find_library(name, release)
    if _folder_name(name) not in adapter_names():
        raise UnknownStackError(
            f"there is no framework {name!r}; there are {', '.join(adapter_names())}, and the libraries of tasks "
            f"{', '.join(library_names())}"
        )
    return find_stack(name, release)


def _folder_name(name: str) -> str:
    return name.replace("-", "_").lower()


def _choose(facts: StackFacts, release: str | None) -> Release:
    try:
        return facts.default_release if release is None else facts.release(release)
    except LookupError as error:
        raise UnknownStackError(str(error.args[0])) from error


def all_stacks(*, supported: bool = False) -> list[Stack]:
    """Return the stacks of every everyday release of every adapter.

    Args:
        supported: Whether the supported releases that only the matrix of versions plays are among them.
    """
    return [
        Stack(name, facts, release)
        for name in adapter_names()
        for facts in [AdapterFacts.read(adapters_folder() / name / "adapter.toml")]
        for release in facts.releases
        if supported or not release.matrix_only
    ]


def library_stacks() -> list[LibraryStack]:
    """Return the stacks of every release of every library of tasks."""
    return [
        LibraryStack(name, facts, release)
        for name in library_names()
        for facts in [LibraryFacts.read(libraries_folder() / name / "library.toml")]
        for release in facts.releases
    ]


def releases_of(framework: str, *, supported: bool = False) -> list[Stack]:
    """Return the stacks of every release of a framework; with a target, as in `verifiers:taskset`, of those that have it.

    Args:
        framework: Folder name of the adapter, perhaps with a target.
        supported: Whether the supported releases that only the matrix of versions plays are among them.

    Raises:
        UnknownStackError: There is no such framework, or none of its releases has the target.
    """
    name, _, target = framework.partition(":")
    adapter = find_stack(name).adapter
    stacks = [one for one in all_stacks(supported=supported) if one.adapter == adapter]
    if not target:
        return stacks
    chosen = [replace(one, target=target) for one in stacks if target in one.release.targets]
    if not chosen:
        raise UnknownStackError(f"no release of {adapter} has a choice of targets with {target!r} in it")
    return chosen


def find_python(version: str) -> Path | None:
    """Return an interpreter of a version such as `3.12` or `3.13.14`, or None.

    The running interpreter, PATH, and the versions folder of pyenv are searched; behind pyenv's shims a name on PATH
    may lead nowhere, so every candidate is run once.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    minor = ".".join(version.split(".")[:2])
    candidates = [
        *([Path(sys.executable)] if minor == f"{sys.version_info[0]}.{sys.version_info[1]}" else []),
        *([Path(found)] if (found := shutil.which(f"python{minor}")) else []),
        *sorted(pyenv.glob(f"versions/{minor}.*/bin/python"), reverse=True),
    ]
    return next((path for path in candidates if _is(path, version)), None)


def _is(python: Path, version: str) -> bool:
    """Whether an interpreter runs, and is of a version: of that patch, where the version names one."""
    found = _version_of(python)
    return found is not None and found.split(".")[: version.count(".") + 1] == version.split(".")


def _version_of(python: Path) -> str | None:
    script = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
    try:
        done = subprocess.run(
            [str(python), "-c", script], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def build_stack(
    stack: ReleaseStack, *, imports: bool = True, on_progress: Callable[[str], None] = lambda _: None
) -> None:
    """Build a stack's virtual environment with uv, unless it is ready.

    Args:
        stack: The stack.
        imports: Whether its adapter or lifter must be importable there, which it need not be in a release that nobody supports.
        on_progress: Told what is going on.

    Raises:
        StackError: Something is missing or the installation failed; the text says what, and what to do.
    """
    if stack.is_ready() and stack.works():
        return
    if not (ROOT / "pyproject.toml").is_file():
        raise StackError("stacks are built from a checkout of this project; none is here")
    if not stack.constraints.is_file():
        raise StackError(f"{stack.constraints} is missing; every supported release has its constraints")
    python = find_python(stack.release.python)
    if python is None:
        raise StackError(
            f"{stack.label} needs Python {stack.release.python}, which is not installed; "
            f"get it with 'uv python install {stack.release.python}' or from your system"
        )
    uv = find_uv()
    if uv is None:
        raise StackError("uv is not installed; install the extra 'harness' of this project, or uv itself")
    STACKS.mkdir(exist_ok=True)
    # Opened without emptying it: whoever builds has written down who that is.
    with _lock_file(stack).open("a+", encoding="ascii") as lock:
        other = builder_of(stack)
        if other is not None:
            on_progress(f"waiting for {other}, which is building {stack.label}")
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        if stack.is_ready() and stack.works():
            return
        on_progress(f"creating the environment of {stack.label} (Python {stack.release.python})")
        _run([uv, "venv", "--quiet", "--clear", "--python", str(python), str(stack.folder)], stack)
        on_progress(f"installing {stack.label}")
        _run(
            [
                uv, "pip", "install", "--quiet", "--python", str(stack.python),
                "--constraint", str(stack.constraints), "--editable", *stack.requirements,
            ],
            stack,
        )  # fmt: skip
        # The first import compiles what it loads; better here than in the first thing that is measured.
        if imports:
            on_progress(f"importing {stack.label} for the first time")
            _run([str(stack.python), "-P", "-c", f"import {stack.entry}"], stack)
        stamp = {"inputs_sha256": stack.inputs_sha256, "python": stack.release.python}
        (stack.folder / _STAMP).write_text(json.dumps(stamp) + "\n", encoding="utf-8")


def builder_of(stack: ReleaseStack) -> str | None:
    """Return who is building a stack at this moment, as `process 123`, or None when nobody is."""
    try:
        with _lock_file(stack).open(encoding="ascii") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                number = lock.read().strip()
                return f"process {number}" if number.isdecimal() else "another process"
    except OSError:
        pass
    return None


def _lock_file(stack: ReleaseStack) -> Path:
    return stack.folder.with_name(f"{stack.folder.name}.lock")


def require_stack(stack: ReleaseStack) -> None:
    """Make sure that a stack is ready.

    Raises:
        StackError: It is not; the text names the command that builds it.
    """
    if not (stack.is_ready() and stack.works()):
        builder = builder_of(stack)
        if builder is not None:
            raise StackError(
                f"the stack {stack.label} is being built by {builder}; try again when that is done, or wait for it with: "
                f"{stack.build_command()}"
            )
        state = "is out of date or damaged" if stack.python.exists() else "is not built"
        raise StackError(f"the stack {stack.label} {state}; build it with: {stack.build_command()}")


def find_uv() -> str | None:
    """Return where uv is: beside the running interpreter, or on PATH."""
    beside = Path(sys.executable).parent / "uv"
    return str(beside) if beside.exists() else shutil.which("uv")


def stack_environment() -> dict[str, str]:
    """Return the environment variables of a process in a stack, where uv is found: frameworks start programs by it."""
    uv = find_uv()
    path = [os.environ.get("PATH", os.defpath), *([str(Path(uv).parent)] if uv else [])]
    return {
        **os.environ,
        "PATH": os.pathsep.join(path),
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
    }


def _run(command: list[str | Path], stack: ReleaseStack) -> None:
    skipped = {"VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE"}
    environment = {key: value for key, value in os.environ.items() if key not in skipped}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        shutil.rmtree(stack.folder, ignore_errors=True)
        reason = "\n".join(f"    {line}" for line in done.stderr.strip().splitlines()[-15:])
        raise StackError(f"{stack.label} could not be installed:\n{reason}")
