"""The protocol of sandboxes: what every backend offers, and each way in which it can fail.

Paths are POSIX paths relative to the workspace, such as `src/app.py`; an absolute path is one as the sandbox sees it.
Everything that comes out of a sandbox is untrusted data of bounded size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol, runtime_checkable


class Limit(StrEnum):
    """Name what a sandbox keeps within bounds."""

    CPU = "cpu"
    MEMORY = "memory"
    PROCESSES = "processes"
    FILE_SIZE = "file_size"
    DISK = "disk"
    OUTPUT = "output"
    OPEN_FILES = "open_files"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Hold how much of each resource one sandbox may use.

    Attributes:
        cpu_s: Processor time of one command, all of its processes together where the backend can add them up, in seconds.
        memory_bytes: Memory of the sandbox, all processes together where the backend can add them up, in bytes.
        processes: Processes and threads alive at once.
        file_bytes: Size of one file, in bytes.
        disk_bytes: Size of the workspace and of the temporary files, each, in bytes.
        output_bytes: How much of each output stream of a command is kept, in bytes; the middle is dropped.
        open_files: File descriptors of one process.
    """

    cpu_s: float = 60.0
    memory_bytes: int = 2 << 30
    processes: int = 128
    file_bytes: int = 256 << 20
    disk_bytes: int = 512 << 20
    output_bytes: int = 30_000
    open_files: int = 256


class SandboxError(RuntimeError):
    """Be the base of everything that a sandbox raises."""


class BackendUnavailableError(SandboxError):
    """Report a backend that cannot be used here: what is missing, and what provides it."""


class SandboxGoneError(SandboxError):
    """Report a sandbox that is closed, or that died; nothing in it can be reached again."""


class CommandFailedError(SandboxError):
    """Report a command that could not be started, or one that had to succeed and did not."""


class RefusedError(SandboxError):
    """Report a request that the sandbox does not carry out, such as a path that leads out of the workspace."""


class PathError(SandboxError):
    """Report a path that cannot be used as asked.

    Attributes:
        path: The path as it was given.
        reason: Why.
    """

    def __init__(
        self,
        path: str,
        reason: Literal[
            "missing", "is a directory", "not a directory", "not a file", "changed", "denied", "loop"
        ],
    ) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path}: {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exec:
    """Hold how a command ended.

    Attributes:
        exit_code: The exit status; minus the number of the signal that ended it.
        stdout: The head and the tail of the standard output.
        stderr: The head and the tail of the standard error.
        stdout_dropped: Bytes that were left out after the head of `stdout`, which is its first half.
        stderr_dropped: The same for `stderr`.
    """

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_dropped: int = 0
    stderr_dropped: int = 0


class CommandTimeoutError(SandboxError):
    """Report a command that ran out of time; every process of it is dead.

    Attributes:
        timeout_s: The time that it had, in seconds.
        partial: What it had written until then; `exit_code` is -9.
    """

    def __init__(self, timeout_s: float, partial: Exec) -> None:
        self.timeout_s, self.partial = timeout_s, partial
        super().__init__(f"the command did not end within {timeout_s:g} s")


class LimitError(SandboxError):
    """Report a limit that was hit.

    Attributes:
        limit: Which one.
        partial: What a command had written until then, when it was a command.
    """

    def __init__(self, limit: Limit, text: str, partial: Exec | None = None) -> None:
        self.limit, self.partial = limit, partial
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Entry:
    """Describe one thing in a folder.

    Attributes:
        path: Its path, relative to the workspace.
        kind: What it is. Links are never followed.
        size: Bytes of a file; 0 for anything else.
    """

    path: str
    kind: Literal["file", "directory", "link", "other"]
    size: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Hold the workspace at one moment.

    Attributes:
        files: Path relative to the workspace -> content. Folders are implied; links and devices are left out.
        executable: The paths of `files` that may be executed.
    """

    files: Mapping[str, bytes]
    executable: frozenset[str] = frozenset()


@runtime_checkable
class Sandbox(Protocol):
    """Be one place where commands run and files lie, cut off from everything else.

    Calls may be made at the same time. Every method raises `SandboxGoneError` once the sandbox is closed or dead.
    """

    async def exec(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: bytes = b"",
        cwd: str = ".",
        env: Mapping[str, str] = ...,
        keep_background: bool = False,
    ) -> Exec:
        """Run a command and wait until it has ended.

        The clock starts when the command starts, not while it waits for its turn. Processes that the command leaves
        behind are killed when it ends, unless they are to be kept.

        Args:
            argv: Program and arguments; nothing is read by a shell.
            timeout_s: Wall-clock seconds until every process of the command is killed.
            stdin: What the command reads.
            cwd: The folder in which it starts.
            env: Variables added to the sandbox's own small environment.
            keep_background: Leave the processes that the command started in the background alive.

        Raises:
            CommandFailedError: There is no such program, or no such folder.
            CommandTimeoutError: The time was up.
            LimitError: The memory, processor or disk limit ended it.
        """

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """Return the bytes of a file, from `offset`, at most `limit` of them.

        Raises:
            PathError: There is no such file.
            RefusedError: The path, or a link in it, leads out of the workspace.
            LimitError: The file is larger than the file limit.
        """

    async def write(
        self, path: str, data: bytes, *, replacing: bytes | None = None, executable: bool | None = None
    ) -> None:
        """Make or replace a file in one step, and the folders above it.

        Args:
            path: Where.
            data: The whole content.
            replacing: The content that the file must still have; otherwise nothing is written and `PathError` says
                `changed`.
            executable: Whether the file may be executed; None keeps what it was.

        Raises:
            PathError: The path is a folder, or its content has changed.
            RefusedError: The path, or a link in it, leads out of the workspace.
            LimitError: The file or the workspace would become too large.
        """

    async def list(self, path: str = ".", *, recursive: bool = False) -> tuple[Entry, ...]:
        """Return what is in a folder, sorted by path, or in the whole tree below it.

        Raises:
            PathError: There is no such folder.
            RefusedError: The path, or a link in it, leads out of the workspace.
            LimitError: There are more than 100,000 entries.
        """

    async def snapshot(self) -> Snapshot:
        """Return every file of the workspace, after all processes have been stopped for the time of the copy.

        Raises:
            LimitError: The workspace is larger than its limit.
        """

    async def stop_processes(self) -> None:
        """Kill every process that a command left running."""

    async def close(self) -> None:
        """Kill everything and leave nothing behind. Closing twice is harmless."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """Describe what a backend enforces on this machine, as it goes into a record.

    Attributes:
        backend: The backend's name.
        tool: What isolates, with its version.
        enforced: What the self-test found to be enforced: network, filesystem, environment, processes, and limits.
        missing: What is not enforced here -> why.
    """

    backend: str
    tool: str
    enforced: tuple[str, ...]
    missing: Mapping[str, str] = field(default_factory=dict)


class Backend(Protocol):
    """Make sandboxes. Each `canonical/sandbox/<name>.py`, or folder of that name, holds one called `BACKEND`."""

    name: str

    async def isolation(self) -> Isolation:
        """Try what is enforced here, once, and remember it.

        Raises:
            BackendUnavailableError: The backend cannot be used here; one line says what is missing.
        """

    async def open(self, start: Snapshot | None = None, *, limits: Limits | None = None) -> Sandbox:
        """Start a sandbox whose workspace holds the files of a snapshot.

        Raises:
            BackendUnavailableError: The backend cannot be used here; one line says what is missing.
            LimitError: The files do not fit.
        """

    async def aclose(self) -> None:
        """Close every sandbox that is still open, and what the backend keeps running between them."""
