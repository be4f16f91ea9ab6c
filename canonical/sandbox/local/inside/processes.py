"""Commands of a sandbox: started, fed, read, watched, and ended with everything that they started.

Every command carries a number that the kernel hands down to whatever it starts: the hard limit of real-time processor
time, which nothing here can use and which a process can lower but never raise. Numbers count downwards, so no process
can pass for one of an older command that was allowed to leave something in the background.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # the public module costs every sandbox more
import errno
import os
import resource
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TAG_TOP = 1 << 40
_TICK_HZ = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_READ = 1 << 16
# What is still read from a pipe whose writers were left alive on purpose.
_LAST_READ = 1 << 20
# Inodes take memory that the size of a file system does not count; a kibibyte each is close on every kernel.
_MAX_INODES = 200_000
SIGKILL = 9
PR_SET_DUMPABLE = 4
_SIGSTOP, _SIGCONT, _SIGXCPU, _SIGXFSZ, _SIGPIPE = 19, 18, 24, 25, 13


class Settings:
    """Hold the limits of a sandbox and where it is."""

    def __init__(self, fields: Mapping[bytes, bytes]) -> None:
        self.root = fields[b"root"]
        self.isolated = fields[b"isolated"] == b"1"
        self.places = [place for place in fields[b"places"].split(b"\0") if place]
        self.environment = dict(pair.split(b"=", 1) for pair in fields[b"environment"].split(b"\0") if pair)
        self.tag_top = _TAG_TOP + int(fields[b"salt"]) * (1 << 20)
        self.cpu_s = float(fields[b"cpu_s"])
        self.memory_bytes = int(fields[b"memory_bytes"])
        self.processes = int(fields[b"processes"])
        self.file_bytes = int(fields[b"file_bytes"])
        self.disk_bytes = int(fields[b"disk_bytes"])
        self.output_bytes = int(fields[b"output_bytes"])
        self.open_files = int(fields[b"open_files"])


class Output:
    """Keep the head and the tail of a stream, and count what was left out between them."""

    def __init__(self, cap: int) -> None:
        self._head_cap, self._tail_cap = cap // 2, cap - cap // 2
        self._head, self._tail = bytearray(), bytearray()
        self._total = 0

    def add(self, data: bytes) -> None:
        """Take bytes of the stream."""
        self._total += len(data)
        room = self._head_cap - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_cap + _READ:
            del self._tail[: len(self._tail) - self._tail_cap]

    def kept(self) -> bytes:
        """Return head and tail."""
        del self._tail[: max(0, len(self._tail) - self._tail_cap)]
        return bytes(self._head + self._tail)

    def dropped(self) -> int:
        """Return how many bytes are missing between them."""
        return self._total - len(self.kept())


class StartError(Exception):
    """Report a command that could not be started.

    Attributes:
        code: `command` or `limit`.
        detail: The name of the limit, or nothing.
        text: A sentence for the reader.
    """

    def __init__(self, code: bytes, detail: bytes, text: str) -> None:
        super().__init__(text)
        self.code, self.detail, self.text = code, detail, text


class Command:
    """Hold one command that runs."""

    def __init__(self, call: int, tag: int, cap: int) -> None:
        self.call, self.tag = call, tag
        self.pid = 0
        self.stdin: int | None = None
        self.pending = memoryview(b"")
        self.streams: dict[int, Output] = {}
        self.stdout, self.stderr = Output(cap), Output(cap)
        self.keep = False
        self.deadline = 0.0
        self.cpu_s = 0.0
        self.reaped_cpu_s = 0.0
        self.seen_cpu_s = 0.0
        self.looked = 0.0
        self.idle_told = False
        self.status: int | None = None
        self.outcome = b""
        self.text = ""


class Processes:
    """Start and end the processes of one sandbox."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._next = settings.tag_top
        self.running: dict[int, Command] = {}
        # Commands that are over and were allowed to leave processes behind.
        self.kept: set[int] = set()
        self.drains: set[int] = set()
        self._again_until = 0.0

    # Starting

    def start(
        self,
        call: int,
        argv: Sequence[bytes],
        stdin: bytes,
        cwd: bytes,
        env: Mapping[bytes, bytes],
        *,
        timeout_s: float,
        keep: bool,
    ) -> Command:
        """Start a command; it is in `running` from now on.

        Raises:
            StartError: There is no such program or folder, or no more processes may be made.
        """
        self._next -= 1
        command = Command(call, self._next, self._settings.output_bytes)
        command.keep = keep
        ours: list[int] = []
        theirs: list[int] = []
        try:
            if stdin:
                theirs_in, command.stdin = os.pipe2(os.O_CLOEXEC)
                ours.append(command.stdin)
                command.pending = memoryview(stdin)
            else:
                theirs_in = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
            theirs.append(theirs_in)
            for stream in (command.stdout, command.stderr):
                here, there = os.pipe2(os.O_CLOEXEC)
                ours.append(here)
                theirs.append(there)
                command.streams[here] = stream
            report, reporting = os.pipe2(os.O_CLOEXEC)
            ours.append(report)
            theirs.append(reporting)
            for fd in ours:
                os.set_blocking(fd, False)
            os.set_blocking(report, True)
            whole = {**self._settings.environment, **env}
            pid = os.fork()
            if pid == 0:
                self._become(argv, theirs, cwd, whole, command.tag)
        except OSError as error:
            for fd in ours + theirs:
                os.close(fd)
            raise self._no_start(error) from None
        command.pid = pid
        for fd in theirs:
            os.close(fd)
        trouble = os.read(report, 64)
        os.close(report)
        if trouble:
            os.waitpid(pid, 0)
            for fd in [*command.streams, *([command.stdin] if command.stdin is not None else [])]:
                os.close(fd)
            raise _trouble(trouble, argv, cwd)
        command.looked = time.monotonic()
        command.deadline = command.looked + timeout_s
        command.seen_cpu_s = 0.0
        self.running[call] = command
        return command

    def _no_start(self, error: OSError) -> StartError:
        if error.errno in {errno.EAGAIN, errno.ENOMEM}:
            return StartError(b"limit", b"processes", "no more processes can be started in the sandbox")
        return StartError(b"command", b"", f"the command could not be started: {error.strerror}")

    def _become(
        self, argv: Sequence[bytes], fds: Sequence[int], cwd: bytes, env: Mapping[bytes, bytes], tag: int
    ) -> None:
        """Turn this child into the command. Never returns."""
        stage = b"start"
        try:
            stdin, stdout, stderr, reporting = fds
            os.setsid()
            for fd, place in ((stdin, 0), (stdout, 1), (stderr, 2)):
                os.dup2(fd, place)
            limits = self._settings
            for number, most in (
                (resource.RLIMIT_CORE, 0),
                (resource.RLIMIT_CPU, int(limits.cpu_s) + 2),
                (resource.RLIMIT_FSIZE, limits.file_bytes),
                (resource.RLIMIT_NOFILE, limits.open_files),
                (resource.RLIMIT_MEMLOCK, 1 << 16),
                (resource.RLIMIT_MSGQUEUE, 1 << 16),
                (resource.RLIMIT_DATA, limits.memory_bytes),
                (resource.RLIMIT_RTTIME, tag),
            ):
                _lower(number, most)
            if limits.isolated:
                # One more than allowed: the program that runs this is counted too.
                _lower(resource.RLIMIT_NPROC, limits.processes + 1)
            os.closerange(3, reporting)
            os.closerange(reporting + 1, 1 << 10)
            _raise_oom_score()
            for signal in (_SIGPIPE, _SIGXFSZ, _signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP):
                _signal.signal(signal, _signal.SIG_DFL)
            stage = b"folder"
            os.chdir(cwd)
            stage = b"program"
            _execute(list(argv), {**env, b"PWD": os.getcwdb()})
        except OSError as error:
            os.write(reporting, b"%s %d" % (stage, error.errno or 0))
        except BaseException:  # noqa: BLE001 - nothing but the command may ever run on in this child
            os.write(reporting, b"%s 0" % stage)
        finally:
            os._exit(127)

    # Ending

    def reap(self) -> None:
        """Take note of every process that has ended, orphans included."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._reaped(pid, status, usage.ru_utime + usage.ru_stime)

    def _reaped(self, pid: int, status: int, cpu_s: float) -> None:
        commands = list(self.running.values())
        mine = next((command for command in commands if command.pid == pid), None)
        if mine is not None:
            mine.status = os.waitstatus_to_exitcode(status)
        elif len(commands) == 1 and not self.kept:
            mine = commands[0]
        if mine is not None:
            mine.reaped_cpu_s += cpu_s

    def end(self, tags: set[int]) -> None:
        """Kill every process of some commands, and wait until none is left.

        Whatever carries the number of no living command goes too.
        """
        others = {command.tag for command in self.running.values()} | self.kept
        others -= tags
        self.kept -= tags
        if not others:
            self.end_all()
            return
        # Stopped first, all at once: a process that is stopped cannot fork past the search.
        self.freeze()
        for pid in self.pids():
            if _tag_of(pid) not in others:
                _kill(pid, SIGKILL)
        self.thaw()
        last = time.monotonic() + 2
        while time.monotonic() < last:
            self.reap()
            left = [pid for pid in self.pids() if _tag_of(pid) not in others and _state_of(pid) != b"Z"]
            if not left:
                return
            for pid in left:
                _kill(pid, SIGKILL)
            time.sleep(0.001)

    def end_all(self) -> None:
        """Kill every process of the sandbox but this one, and wait until none is left."""
        self.kept.clear()
        if not self._settings.isolated:
            self._end_ours()
            return
        _kill(-1, SIGKILL)
        last = time.monotonic() + 2
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid:
                self._reaped(pid, status, usage.ru_utime + usage.ru_stime)
            elif time.monotonic() > last:
                return
            else:
                _kill(-1, SIGKILL)
                time.sleep(0.0005)

    def _end_ours(self) -> None:
        """Kill every process that carries one of our numbers, where killing all would reach the user's own."""
        last = time.monotonic() + 2
        while time.monotonic() < last:
            left = [pid for pid in self.pids() if _state_of(pid) != b"Z"]
            for pid in left:
                _kill(pid, SIGKILL)
            self.reap()
            if not left:
                return
            time.sleep(0.001)

    def freeze(self) -> None:
        """Stop every process, and wait until all stand still."""
        self._signal_all(_SIGSTOP)
        began = time.monotonic()
        while (now := time.monotonic()) < began + 1:
            # A process that waits in the kernel may be in the middle of a fork, or wait for as long as it likes.
            still = b"TtZXx" if now < began + 0.05 else b"TtZXxD"
            if all(_state_of(pid) in still for pid in self.pids()):
                return
            time.sleep(0.0005)

    def thaw(self) -> None:
        """Let every process go on."""
        self._signal_all(_SIGCONT)
        # The kernel hands a stop that comes during a fork on to the child, and not the continuation that follows.
        self._again_until = time.monotonic() + 2

    def _signal_all(self, signal: int) -> None:
        if self._settings.isolated:
            _kill(-1, signal)
            return
        for pid in self.pids():
            _kill(pid, signal)

    def pids(self) -> list[int]:
        """Return the processes of the sandbox, without this one."""
        me = os.getpid()
        found = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != me]
        if self._settings.isolated:
            return found
        top = self._settings.tag_top
        return [pid for pid in found if top - (1 << 20) <= _tag_of(pid) < top]

    # Watching

    def watch(self, now: float) -> list[Command]:
        """Look at every process once, mark what went over a limit, and return the commands that are idle since before."""
        if now < self._again_until:
            self._signal_all(_SIGCONT)
        total = 0
        used: dict[int, float] = {}
        several = len(self.running) + len(self.kept) > 1
        only = next(iter(self.running.values())).tag if self.running else 0
        pids = self.pids()
        for pid in pids:
            cpu_s, rss = _usage(pid)
            total += rss
            tag = _tag_of(pid) if several else only
            used[tag] = used.get(tag, 0.0) + cpu_s
        over = self._over_memory(total, pids)
        idle = []
        for command in self.running.values():
            command.cpu_s = used.get(command.tag, 0.0) + command.reaped_cpu_s
            if over:
                command.outcome, command.text = b"memory", over
            elif command.cpu_s > self._settings.cpu_s:
                command.outcome = b"cpu"
                command.text = f"the command used more than {self._settings.cpu_s:g} s of processor time"
            elif now - command.looked >= 0.2:
                if (
                    command.cpu_s - command.seen_cpu_s < 0.1 * (now - command.looked)
                    and not command.idle_told
                ):
                    command.idle_told = True
                    idle.append(command)
                command.seen_cpu_s, command.looked = command.cpu_s, now
        full = self._too_many_inodes()
        for command in self.running.values():
            if full and not command.outcome:
                command.outcome, command.text = b"disk", full
        if (over or full) and not self.running:
            self.end_all()
        return idle

    def _over_memory(self, resident: int, pids: list[int]) -> str:
        most = self._settings.memory_bytes
        if resident <= most:
            return ""
        # Pages that processes share were counted for each of them; the exact sum is dear, so it is only asked for now.
        if sum(_proportional(pid) for pid in pids) <= most:
            return ""
        return f"the processes of the sandbox used more than {most} bytes of memory"

    def _too_many_inodes(self) -> str:
        for place in self._settings.places:
            found = os.statvfs(place)
            if found.f_files - found.f_ffree > _MAX_INODES:
                return f"there are more than {_MAX_INODES} files in {place.decode()}"
        return ""

    def disk_is_full(self) -> bool:
        """Say whether a place where commands write has no room left."""
        return any(os.statvfs(place).f_bavail == 0 for place in self._settings.places)


def read_some(fd: int, stream: Output | None) -> bool:
    """Read once from a pipe that has something, and say whether it is still open."""
    try:
        data = os.read(fd, _READ)
    except BlockingIOError:
        return True
    except OSError:
        return False
    if stream is not None:
        stream.add(data)
    return bool(data)


def read_rest(fd: int, stream: Output) -> bool:
    """Read what a pipe holds without waiting, and say whether it is still open."""
    taken = 0
    while taken < _LAST_READ:
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        stream.add(data)
        taken += len(data)
    return True


def judge(command: Command, exit_code: int, *, disk_is_full: bool) -> None:
    """Name the limit that ended a command, as far as its exit status tells."""
    if command.outcome:
        return
    # A shell adds 128 to the signal that ended its last command.
    for signal, name, text in (
        (_SIGXCPU, b"cpu", "the command used all of its processor time"),
        (_SIGXFSZ, b"file_size", "the command wrote a file that is larger than a file may be"),
    ):
        if exit_code in {-signal, 128 + signal}:
            command.outcome, command.text = name, text
            return
    if exit_code != 0 and disk_is_full:
        command.outcome, command.text = b"disk", "the command failed, and the disk of the sandbox is full"


def _execute(argv: list[bytes], env: dict[bytes, bytes]) -> None:
    # `os.execvpe` would import a module in every child.
    if b"/" in argv[0]:
        os.execve(argv[0], argv, env)
    found: OSError = FileNotFoundError(errno.ENOENT, "")
    for folder in env.get(b"PATH", b"/usr/bin:/bin").split(b":"):
        try:
            os.execve((folder or b".") + b"/" + argv[0], argv, env)
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTDIR}:
                found = error
    raise found


def _lower(number: int, most: int) -> None:
    _, hard = resource.getrlimit(number)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(number, (most, most))


def control(option: int, value: int) -> bool:
    """Set a property of this process that the standard library has no function for; say whether it worked."""
    try:
        # The public module costs every sandbox half a mebibyte more, for one call.
        import _ctypes  # noqa: PLC0415

        this = _ctypes.dlopen(None, 0)  # type: ignore[arg-type] # None is this process
        done: int = _ctypes.call_cdeclfunction(_ctypes.dlsym(this, "prctl"), (option, value, 0, 0, 0))
    except (ImportError, AttributeError, OSError):
        return False
    return done == 0


def _raise_oom_score() -> None:
    # The kernel should take the commands before it takes the program that watches them. A process that hides itself may
    # not even change this of its own, and everything worth hiding is closed by now.
    control(PR_SET_DUMPABLE, 1)
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(fd, b"500")
    except OSError:
        pass
    finally:
        os.close(fd)


def _kill(pid: int, signal: int) -> None:
    try:
        os.kill(pid, signal)
    except (ProcessLookupError, PermissionError):
        pass


def _trouble(report: bytes, argv: Sequence[bytes], cwd: bytes) -> StartError:
    stage, _, number = report.partition(b" ")
    code = int(number) if number.isdigit() else 0
    if stage == b"folder":
        return StartError(
            b"command", b"", f"there is no folder {_shown(cwd)} to start in: {os.strerror(code)}"
        )
    if stage == b"start":
        return StartError(b"command", b"", f"the command could not be started: {os.strerror(code)}")
    if code in {errno.ENOENT, errno.ENOTDIR}:
        return StartError(b"command", b"", f"there is no program {_shown(argv[0])}")
    if code == errno.EACCES:
        return StartError(b"command", b"", f"{_shown(argv[0])} may not be executed")
    if code == errno.ENOEXEC:
        return StartError(b"command", b"", f"{_shown(argv[0])} is not a program, and names no interpreter")
    if code == errno.E2BIG:
        return StartError(b"command", b"", "the arguments and the environment are too long")
    if code in {errno.EAGAIN, errno.ENOMEM}:
        return StartError(b"limit", b"processes", "no more processes can be started in the sandbox")
    return StartError(b"command", b"", f"{_shown(argv[0])} could not be started: {os.strerror(code)}")


def _shown(name: bytes) -> str:
    return repr(name[:200].decode("utf-8", "replace"))


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, 4096)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _tag_of(pid: int) -> int:
    for line in _read(f"/proc/{pid}/limits").splitlines():
        if line.startswith(b"Max realtime timeout"):
            hard = line.split()[4]
            return int(hard) if hard.isdigit() else 0
    return 0


def _after_name(pid: int) -> list[bytes]:
    # The name of a process is its own choice, and may hold spaces and brackets.
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _state_of(pid: int) -> bytes:
    fields = _after_name(pid)
    return fields[0] if fields else b""


def _usage(pid: int) -> tuple[float, int]:
    """Return the processor seconds of a process and of its children that have ended, and its resident bytes."""
    fields = _after_name(pid)
    if len(fields) < 22:
        return 0.0, 0
    return sum(int(field) for field in fields[11:15]) / _TICK_HZ, int(fields[21]) * _PAGE


def _proportional(pid: int) -> int:
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return _usage(pid)[1]
