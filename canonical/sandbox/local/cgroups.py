"""A ceiling over everything that a sandbox makes the kernel hold, where control groups of version 1 can be written.

What processes keep in memory is watched from inside, everywhere. This adds what no process can be asked about: buffers
of sockets and pipes, files in memory, and the sum of it all.

A thread moves itself into the group, starts the sandbox there, and moves back. Moving another process, which is all
that version 2 allows, makes every fork on the machine wait for tens of milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from canonical.sandbox.protocol import Limits

_CONTROLLERS = ("memory", "pids")
# Room for bubblewrap, the program inside, and what the kernel keeps for a sandbox that does nothing.
_OWN_BYTES = 96 << 20
_OWN_PROCESSES = 8
_SHARED_MEMORY_BYTES = 64 << 20
# Waits until its input ends, which it does when the process that started it does, and removes that process's groups.
_SWEEP = """\
read -r _
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    left=
    for folder in "$1"/"$3"-* "$2"/"$3"-*; do
        [ -d "$folder" ] && ! rmdir "$folder" 2>/dev/null && left=1
    done
    [ -z "$left" ] && exit
    sleep 0.25
done
"""


class NoCgroupsError(RuntimeError):
    """Report why control groups cannot be used here."""


@dataclass(frozen=True, slots=True)
class Group:
    """Hold one sandbox's group of each controller."""

    folders: tuple[Path, ...]

    def oom_kills(self) -> int:
        """Return how often the kernel has killed in this group because its memory was full."""
        with contextlib.suppress(OSError, ValueError):
            for line in (self.folders[0] / "memory.oom_control").read_text(encoding="ascii").splitlines():
                name, _, number = line.partition(" ")
                if name == "oom_kill":
                    return int(number)
        return 0

    def remove(self) -> bool:
        """Remove the group, and say whether it is gone."""
        for folder in self.folders:
            with contextlib.suppress(FileNotFoundError):
                try:
                    folder.rmdir()
                except OSError:
                    return False
        return True


class Cgroups:
    """Make groups below the one that this process is in.

    Raises:
        NoCgroupsError: There are none of version 1, or they cannot be written.
    """

    def __init__(self) -> None:
        self._home = _own_groups()
        started = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
        self._prefix = f"rosetta-{os.getpid()}-{started}"
        self._numbers = count(1)
        try:
            trial = self._make(Limits())
        except OSError as error:
            raise NoCgroupsError(f"control groups cannot be written: {error.strerror}") from error
        trial.remove()
        reading, self._alive = os.pipe2(os.O_CLOEXEC)
        try:
            self._sweeper = subprocess.Popen(
                ["/bin/sh", "-c", _SWEEP, "sh", *(str(folder) for folder in self._home), self._prefix],
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"PATH": "/usr/bin:/bin"},
                start_new_session=True,
            )
        except OSError as error:
            os.close(self._alive)
            raise NoCgroupsError(f"what clears up after control groups does not start: {error}") from error
        finally:
            os.close(reading)

    def _make(self, limits: Limits) -> Group:
        name = f"{self._prefix}-{next(self._numbers)}"
        group = Group(tuple(folder / name for folder in self._home))
        memory = limits.memory_bytes + 2 * limits.disk_bytes + _SHARED_MEMORY_BYTES + _OWN_BYTES
        try:
            for folder in group.folders:
                folder.mkdir()
            (group.folders[0] / "memory.limit_in_bytes").write_text(str(memory), encoding="ascii")
            (group.folders[1] / "pids.max").write_text(
                str(limits.processes + _OWN_PROCESSES), encoding="ascii"
            )
        except OSError:
            group.remove()
            raise
        return group

    @contextmanager
    def inside(self, limits: Limits) -> Iterator[Group]:
        """Make a group, and let whatever this thread starts meanwhile be born in it.

        Raises:
            OSError: It cannot be made.
        """
        group = self._make(limits)
        try:
            for folder in group.folders:
                _enter(folder)
            yield group
        except BaseException:
            self._leave()
            group.remove()
            raise
        else:
            self._leave()

    def _leave(self) -> None:
        for folder in self._home:
            _enter(folder)

    def end(self) -> None:
        """End what clears up after this process; there must be no group any more."""
        with contextlib.suppress(OSError):
            os.close(self._alive)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._sweeper.wait(1)

    def forget(self) -> None:
        """Let go of the descriptor that says that this process lives, in a copy of it."""
        with contextlib.suppress(OSError):
            os.close(self._alive)
        self._sweeper.returncode = 0


def _enter(folder: Path) -> None:
    # 0 is the writing thread, and the only one that may be moved without stopping all others.
    (folder / "tasks").write_text("0", encoding="ascii")


def _own_groups() -> tuple[Path, ...]:
    mounts: dict[str, Path] = {}
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup":
            mounts |= dict.fromkeys(set(options.split(",")) & set(_CONTROLLERS), Path(place))
    found = {}
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            if controller in mounts:
                found[controller] = mounts[controller] / path.lstrip("/")
    folders = tuple(found[controller] for controller in _CONTROLLERS if controller in found)
    if len(folders) < len(_CONTROLLERS):
        raise NoCgroupsError("there are no control groups of version 1 for memory and processes")
    if not all(os.access(folder, os.W_OK) and os.access(folder / "tasks", os.W_OK) for folder in folders):
        raise NoCgroupsError("control groups cannot be written by this user")
    return folders
