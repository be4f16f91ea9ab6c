"""A backend for services that start sandboxes elsewhere: they bring the bytes, this brings the meaning."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import secrets
import socket
import zlib
from itertools import count
from typing import Protocol

from canonical.sandbox.local.backend import LocalSandbox
from canonical.sandbox.local.confinement import Start
from canonical.sandbox.local.hub import Hub, hub
from canonical.sandbox.local.inside import frames
from canonical.sandbox.local.link import Link
from canonical.sandbox.program import python_program
from canonical.sandbox.protocol import (
    BackendUnavailableError,
    CommandTimeoutError,
    Isolation,
    LimitError,
    Limits,
    SandboxGoneError,
    Snapshot,
)

ROOT = "/workspace"
TEMPORARY = "/tmp"  # noqa: S108 - a folder of the sandbox
_PLACES = (ROOT, TEMPORARY)
END_WITH_HOST = "end with the host"
"""The name in `Isolation.missing` of services whose sandboxes live on for a while when the host is killed."""
_MODULES = (
    *(f"canonical.sandbox.local.inside.{name}" for name in ("frames", "tree", "processes", "serve")),
    "canonical.sandbox.remote.carrier",
)
_START_S = 120.0
_LONGEST_LINE = 1 << 18
# Engines that map users know 65,536 of them; the kernel counts processes by user, so sandboxes take turns.
_FIRST_UID, _UIDS = 10_000, 50_000
# What a sandbox can do and must not, one line for each: its name, and what went through.
_PROBE = """
import os, socket
status = dict(line.split(':', 1) for line in open('/proc/self/status'))
def tried(name, what, action):
    try:
        done = action()
    except Exception:
        return
    if done:
        print(name + '\\t' + what)
def reach():
    with socket.create_connection(('1.1.1.1', 443), 3):
        return True
tried('network', 'a connection to 1.1.1.1', reach)
tried('network', 'a look-up of example.com', lambda: socket.getaddrinfo('example.com', 443))
for place in ('/usr/bin', '/etc', '/'):
    tried('filesystem', 'writing to ' + place, lambda place=place: open(place + '/rosetta-probe', 'w'))
given = {'PATH', 'HOME', 'TMPDIR', 'LANG', 'TERM', 'PWD', 'LC_CTYPE'}
tried('environment', 'other variables', lambda: set(os.environ) - given)
tried('environment', 'those of the program inside', lambda: open('/proc/1/environ', 'rb').read())
tried('privileges', 'capabilities', lambda: int(status['CapEff'], 16) or int(status['CapPrm'], 16))
tried('privileges', 'programs with the set-user-id bit', lambda: status['NoNewPrivs'].strip() != '1')
import ctypes
libc = ctypes.CDLL(None)
if os.fork() == 0:
    os._exit(0 if libc.unshare(0x10000000) == 0 else 1)
if os.wait()[1] == 0:
    print('namespaces\\ta new user namespace')
for name in os.listdir('/proc'):
    if name.isdigit() and int(name) != os.getpid():
        tried('system calls', 'the memory of process ' + name, lambda name=name: open('/proc/' + name + '/mem', 'rb+'))
def fill(place):
    for number in range(48):
        with open(place + '/rosetta-fill%d' % number, 'wb') as file:
            file.write(bytes(1 << 20))
    return True
tried('disk', 'more than it holds in /workspace', lambda: fill('/workspace'))
tried('disk', 'more than it holds in /tmp', lambda: fill('/tmp'))
"""
_PROBED = ("network", "filesystem", "environment", "privileges", "namespaces", "system calls", "disk")
_KEPT_INSIDE = (
    "file size",
    "memory of one process",
    "memory of all processes",
    "processor time",
    "number of processes",
)


class Carriage(Protocol):
    """Be a remote sandbox whose program talks over a socket of this machine."""

    async def end(self) -> None:
        """End the remote sandbox, and return when it is no longer there, or no longer ours to end."""


class Service(Protocol):
    """Start sandboxes elsewhere.

    Attributes:
        name: What records call it.
        relayed: Whether the program is started beside others, as root, and prepares folders and user itself;
            otherwise it is the first process of a container in which all of that is done.
        remains: What becomes of a sandbox whose host was killed; empty when it ends at once.
    """

    name: str
    relayed: bool
    remains: str

    def tool(self) -> str:
        """Return what isolates, with its version.

        Raises:
            BackendUnavailableError: It is not installed.
        """

    async def start(self, command: tuple[str, ...], limits: Limits, uid: int, end: socket.socket) -> Carriage:
        """Start a sandbox that runs a command, and carry bytes between it and one end of a socket pair.

        Args:
            command: What to run in it.
            limits: Its limits, as far as the service can hold them.
            uid: The user that commands run as.
            end: The end that belongs to the service from now on; it closes it when the sandbox ends.

        Raises:
            BackendUnavailableError: It cannot be started; one line says what is missing.
        """


class Lines:
    """Turn the lines of base64 that the carrier writes into bytes; they arrive cut anywhere."""

    def __init__(self) -> None:
        self._rest = ""

    def feed(self, text: str) -> bytes:
        """Return the bytes of the lines that are whole now.

        Raises:
            ValueError: Something else arrived.
        """
        *lines, self._rest = (self._rest + text).split("\n")
        if len(self._rest) > _LONGEST_LINE:
            raise ValueError("a line is longer than the carrier writes any")
        return b"".join(base64.b64decode(line, validate=True) for line in lines)


class _Elsewhere:
    """Stand in for a way of starting sandboxes on this machine, of which there is none."""

    isolated = True

    def start(self, limits: Limits) -> Start:
        raise BackendUnavailableError(f"a remote sandbox is not started here ({limits})")

    def tool(self) -> str:
        return "elsewhere"

    def next_tool(self) -> bool:
        return False


class RemoteSandbox(LocalSandbox):
    """Be one sandbox elsewhere."""

    def __init__(self, home: Hub, link: Link, limits: Limits, carriage: Carriage) -> None:
        super().__init__(home, link, limits)
        self.home, self.link = home, link
        self._carriage = carriage
        self._ended: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """End the remote sandbox. Closing twice is harmless."""
        await super().close()
        # In a copy of the process there is nothing to end: the sandbox belongs to the one that opened it.
        if os.getpid() == self.home.pid:
            await self.home.run(self._end())

    async def _end(self) -> None:
        if self._ended is None:
            self._ended = self.home.loop.create_task(self._carriage.end())
        await asyncio.shield(self._ended)


class RemoteBackend:
    """Make sandboxes elsewhere.

    Args:
        service: Who starts them.
    """

    def __init__(self, service: Service) -> None:
        self.name = service.name
        self._service = service
        self._found: asyncio.Task[Isolation] | None = None
        self._hub: Hub | None = None
        self._open: set[RemoteSandbox] = set()
        self._uids = count(secrets.randbelow(_UIDS))

    async def isolation(self) -> Isolation:
        """Try what is enforced there, once per process, and remember it.

        Raises:
            BackendUnavailableError: The service cannot be used; one line says what is missing.
        """
        home = hub()
        return await home.run(self._isolation(home))

    async def _isolation(self, home: Hub) -> Isolation:
        if self._hub is not home or self._found is None:
            self._hub = home
            self._found = home.loop.create_task(self._probe())
        try:
            return await asyncio.shield(self._found)
        except BackendUnavailableError:
            # Whoever has started the daemon or given the key meanwhile is not sent away again.
            self._found = None
            raise

    async def _probe(self) -> Isolation:
        limits = Limits(disk_bytes=32 << 20, file_bytes=16 << 20)
        sandbox = await self._start(limits)
        try:
            done = await sandbox.exec(["python3", "-I", "-c", _PROBE], timeout_s=60)
        except (CommandTimeoutError, LimitError) as error:
            raise BackendUnavailableError(f"the self-test of a sandbox does not end: {error}") from error
        finally:
            await sandbox.close()
        if done.exit_code != 0:
            said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise BackendUnavailableError(
                f"the self-test of a sandbox ended with status {done.exit_code}: {said}"
            )
        went: dict[str, list[str]] = {}
        for line in done.stdout.decode("utf-8", "replace").splitlines():
            name, _, what = line.partition("\t")
            went.setdefault(name, []).append(what)
        missing = {name: f"{', '.join(what)} went through" for name, what in went.items()}
        if self._service.remains:
            missing[END_WITH_HOST] = self._service.remains
        return Isolation(
            self.name,
            self._service.tool(),
            tuple(name for name in (*_PROBED, *_KEPT_INSIDE) if name not in went),
            missing,
        )

    async def open(self, start: Snapshot | None = None, *, limits: Limits | None = None) -> RemoteSandbox:
        """Start a sandbox whose workspace holds the files of a snapshot.

        Raises:
            BackendUnavailableError: The service cannot be used; one line says what is missing.
            LimitError: The files do not fit.
        """
        home = hub()
        sandbox = await home.run(self._start(limits or Limits()))
        try:
            if start is not None:
                await sandbox.load(start)
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    async def _start(self, limits: Limits) -> RemoteSandbox:
        home = hub()
        async with home.starts:
            uid = _FIRST_UID + next(self._uids) % _UIDS
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            try:
                carriage = await self._service.start(self._command(limits, uid), limits, uid, theirs)
            except BaseException:
                ours.close()
                raise
            link = Link(home, _Elsewhere(), limits)
            await home.loop.create_unix_connection(lambda: link, sock=ours)
            home.live.add(link)
            sandbox = RemoteSandbox(home, link, limits, carriage)
            try:
                # The first answer says that the program is there.
                await link.call(frames.LIST, [b".", b"0"], within_s=_START_S)
            except SandboxGoneError as error:
                await sandbox.close()
                raise BackendUnavailableError(
                    f"a sandbox of {self.name} does not start: its program needs python3 (3.10 or newer) there; {error}"
                ) from None
            except BaseException:
                await sandbox.close()
                raise
        self._open = {one for one in self._open if one.link in home.live} | {sandbox}
        return sandbox

    def _command(self, limits: Limits, uid: int) -> tuple[str, ...]:
        python, *options, code = python_program(_MODULES)
        packed = base64.b85encode(zlib.compress(code.encode(), 9)).decode("ascii")
        start = f"import base64,zlib;exec(zlib.decompress(base64.b85decode({packed!r})))"
        order = {
            "settings": _settings(limits, isolated=not self._service.relayed),
            "relayed": self._service.relayed,
            "uid": uid,
        }
        return (python, *options, start, json.dumps(order))

    async def aclose(self) -> None:
        """End every sandbox that is still open."""
        await asyncio.gather(*(sandbox.close() for sandbox in self._open), return_exceptions=False)
        self._open.clear()


def _settings(limits: Limits, *, isolated: bool) -> dict[str, object]:
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": TEMPORARY,
        "TMPDIR": TEMPORARY,
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PWD": ROOT,
    }
    return {
        "root": ROOT,
        "isolated": int(isolated),
        "places": "\0".join(_PLACES),
        "environment": "\0".join(f"{name}={value}" for name, value in environment.items()),
        "salt": secrets.randbelow(1 << 19),
        "cpu_s": limits.cpu_s,
        "memory_bytes": limits.memory_bytes,
        "processes": limits.processes,
        "file_bytes": limits.file_bytes,
        "disk_bytes": limits.disk_bytes,
        "output_bytes": limits.output_bytes,
        "open_files": limits.open_files,
    }


def one_line(error: BaseException) -> str:
    """Return what an exception of a service says, as one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__
