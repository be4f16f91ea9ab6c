"""What a sandbox keeps its commands from on this machine, found out by trying."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from secrets import token_hex

from canonical.sandbox.local.confinement import Confinement
from canonical.sandbox.local.hub import Hub
from canonical.sandbox.protocol import (
    BackendUnavailableError,
    CommandTimeoutError,
    Exec,
    Isolation,
    Limit,
    LimitError,
    Limits,
    Sandbox,
)

# Without one of these a sandbox is none, and is not offered as one.
_ESSENTIAL = ("network", "filesystem", "environment", "processes", "namespaces", "system calls")
# Prints what it could do and must not, as JSON: name of the protection -> what went through.
_INTRUDER = r"""
import json, os, signal, sys
host = json.loads(sys.argv[1])
went = {}
def attempt(name, what, action):
    try:
        done = action()
    except Exception:
        return
    if done:
        went.setdefault(name, []).append(what)
import socket
def reach(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as peer:
        peer.settimeout(1)
        peer.connect(address)
    return True
attempt("network", "a server of the host", lambda: reach(socket.AF_INET, ("127.0.0.1", host["port"])))
attempt("network", "an abstract socket of the host", lambda: reach(socket.AF_UNIX, "\0" + host["abstract"]))
attempt("network", "an interface", lambda: [n for _, n in socket.if_nameindex() if n != "lo"])
attempt("filesystem", "a file of the host", lambda: open(host["file"]).read())
attempt("filesystem", "/etc/shadow", lambda: open("/etc/shadow").read())
for home in ("/root", "/home"):
    attempt("filesystem", "what lies in " + home, lambda home=home: os.listdir(home))
for place in ("/usr", "/usr/bin", "/etc", "/", "/dev", "/proc/sys/kernel"):
    def make(place=place):
        with open(place + "/rosetta-self-test", "w"):
            return True
    attempt("filesystem", "writing to " + place, make)
attempt("environment", "variables of the host", lambda: set(os.environ) & set(host["variables"]))
attempt("environment", "those of the program inside", lambda: open("/proc/1/environ", "rb").read())
attempt("processes", "processes of the host", lambda: len([n for n in os.listdir("/proc") if n.isdigit()]) > 8)
attempt("processes", "memory of the program inside", lambda: open("/proc/1/mem", "rb"))
attempt("processes", "descriptors of the program inside", lambda: os.listdir("/proc/1/fd"))
for number in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGSTOP, signal.SIGUSR1, signal.SIGHUP):
    attempt("signals", "sent", lambda number=number: os.kill(1, number))
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
if status["Seccomp"].strip() != "2":
    went.setdefault("system calls", []).append("no filter")
if int(status["CapEff"], 16) or int(status["CapPrm"], 16) or status["NoNewPrivs"].strip() != "1":
    went.setdefault("privileges", []).append("capabilities")
try:
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    attempt("namespaces", "a new user namespace", lambda: libc.unshare(0x10000000) == 0)
    attempt("namespaces", "a new mount", lambda: libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0)
    attempt("system calls", "ptrace", lambda: libc.ptrace(16, 1, 0, 0) == 0)
    attempt("system calls", "memory that belongs to nobody", lambda: libc.memfd_create(b"x", 0) >= 0)
except (ImportError, AttributeError, OSError):
    pass
attempt("file size", "a larger file", lambda: os.truncate(os.open("/workspace/x", os.O_CREAT | os.O_RDWR), host["file_bytes"] + 1) is None)
attempt("memory of one process", "more of it", lambda: len(bytearray(host["memory_bytes"] + (64 << 20))))
children = []
try:
    while len(children) < 2 * host["processes"]:
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
        children.append(child)
    went.setdefault("number of processes", []).append("%d at once" % len(children))
except OSError:
    pass
def fill():
    for index in range(64):
        with open("/workspace/fill%d" % index, "wb") as file:
            file.write(bytes(host["file_bytes"] // 2))
    return True
attempt("disk", "more than it holds", fill)
print(json.dumps(went))
"""
_HOG = "import os, time\nfor _ in range(3):\n if os.fork() == 0: break\nx = b'x' * (40 << 20)\ntime.sleep(5)"
_SPIN = "while True: pass"

_SMALL = Limits(
    cpu_s=0.2,
    memory_bytes=96 << 20,
    processes=24,
    file_bytes=1 << 20,
    disk_bytes=4 << 20,
    output_bytes=10_000,
    open_files=64,
)
_TRIED = (
    "network", "filesystem", "environment", "processes", "namespaces", "system calls", "signals", "privileges",
    "file size", "memory of one process", "memory of all processes", "processor time", "number of processes", "disk",
    "leftovers",
)  # fmt: skip
# Buffers of sockets and pipes, which no process counts as its own; only a control group holds them.
_KERNEL_MEMORY = "memory of the kernel"

_DECOY = "rosetta-self-test-"

Start = Callable[[Hub, Limits], Awaitable[Sandbox]]


async def self_test(name: str, home: Hub, confinement: Confinement, start: Start) -> Isolation:
    """Return what is enforced here, after having tried.

    Raises:
        BackendUnavailableError: Sandboxes do not start here, or keep less than what makes one.
    """
    if not confinement.isolated:
        tool = confinement.tool()
        return Isolation(
            name, tool, (), {"everything": "commands have every right of the user who runs them"}
        )
    while True:
        try:
            tool = await home.loop.run_in_executor(None, confinement.tool)
            sandboxes = [await start(home, _SMALL)]
            break
        except BackendUnavailableError:
            if not confinement.next_tool():
                raise
    try:
        sandboxes += await asyncio.gather(start(home, _SMALL), start(home, _SMALL))
        went, memory, cpu = await asyncio.gather(
            _intrude(sandboxes[0]),
            _is_held(sandboxes[1], _HOG, Limit.MEMORY),
            _is_held(sandboxes[2], _SPIN, Limit.CPU),
        )
        if not await _is_cleared(sandboxes[0]):
            went["leftovers"] = ["processes outlived their command"]
    finally:
        await asyncio.gather(*(sandbox.close() for sandbox in sandboxes))
    if not memory:
        went["memory of all processes"] = ["more of it"]
    if not cpu:
        went["processor time"] = ["more of it"]
    broken = [name for name in _ESSENTIAL if name in went]
    if broken:
        raise BackendUnavailableError(
            "sandboxes start here and do not hold: "
            + "; ".join(f"{name} ({', '.join(went[name])} went through)" for name in broken)
        )
    missing = {lost: f"{', '.join(what)} went through" for lost, what in went.items()}
    tried: tuple[str, ...] = _TRIED
    if home.cgroups is not None:
        tried += (_KERNEL_MEMORY,)
    else:
        missing[_KERNEL_MEMORY] = home.no_cgroups
    return Isolation(name, tool, tuple(held for held in tried if held not in missing), missing)


async def _intrude(sandbox: Sandbox) -> dict[str, list[str]]:
    with (
        decoy() as secret,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        name = f"rosetta-{token_hex(8)}"
        abstract.bind(f"\0{name}")
        abstract.listen()
        about = {
            "port": server.getsockname()[1],
            "abstract": name,
            "file": str(secret),
            "variables": sorted(set(os.environ) - {"PATH", "HOME", "TMPDIR", "LANG", "TERM", "PWD"}),
            "file_bytes": _SMALL.file_bytes,
            "memory_bytes": _SMALL.memory_bytes,
            "processes": _SMALL.processes,
        }
        try:
            done = await _python(sandbox, _INTRUDER, json.dumps(about))
        except (CommandTimeoutError, LimitError) as error:
            raise BackendUnavailableError(f"the self-test of a sandbox did not end: {error}") from error
    try:
        went: dict[str, list[str]] = json.loads(done.stdout)
    except ValueError:
        said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise BackendUnavailableError(
            f"the self-test of a sandbox ended with status {done.exit_code}: {said}"
        ) from None
    return went


@contextmanager
def decoy() -> Iterator[Path]:
    """Lend a file of the host that everyone may read, and remove those that processes have left that were killed meanwhile.

    Whoever lends one holds a lock on it as long as the process lives.
    """
    folder = Path(tempfile.gettempdir())
    for left in folder.glob(f"{_DECOY}*"):
        with suppress(OSError):
            if left.is_file():
                with left.open("rb") as file:
                    flock(file, LOCK_EX | LOCK_NB)
                    left.unlink()
    while True:
        with tempfile.NamedTemporaryFile("w", prefix=_DECOY, delete=False) as secret:
            path = Path(secret.name)
            try:
                flock(secret, LOCK_EX)
                secret.write("a secret of the host")
                secret.flush()
                os.fchmod(secret.fileno(), 0o644)  # only isolation may keep it from being read
                # Another process may have taken it for a left one before it was locked.
                if os.fstat(secret.fileno()).st_nlink:
                    yield path
                    return
            finally:
                path.unlink(missing_ok=True)


async def _is_held(sandbox: Sandbox, program: str, limit: Limit) -> bool:
    try:
        await _python(sandbox, program)
    except LimitError as error:
        return error.limit is limit
    except CommandTimeoutError:
        return False
    return False


async def _is_cleared(sandbox: Sandbox) -> bool:
    await sandbox.exec(["sh", "-c", "sleep 60 & setsid sleep 60 & exit 0"], timeout_s=10)
    done = await _python(sandbox, "import os; print(len([n for n in os.listdir('/proc') if n.isdigit()]))")
    return done.stdout.strip() == b"2"


async def _python(sandbox: Sandbox, program: str, *arguments: str) -> Exec:
    return await sandbox.exec(["python3", "-I", "-S", "-c", program, *arguments], timeout_s=10)
