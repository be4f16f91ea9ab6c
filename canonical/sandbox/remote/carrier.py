"""The program that is started in a remote sandbox: it prepares folders and user, and serves.

It runs inside, so it imports the standard library and the program that serves alone.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
from pathlib import Path

from canonical.sandbox.local.inside import serve

_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_NOSUID_NODEV = 2 | 4


def main() -> None:
    """Serve as the JSON text in the last argument says."""
    order = json.loads(sys.argv[-1])
    fields = {name.encode(): str(value).encode() for name, value in order["settings"].items()}
    os.environ.clear()
    if not order["relayed"]:
        os.chdir(order["settings"]["root"])
        serve.main(fields, pipes=True)
        return
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        os.dup2(theirs.fileno(), 0)
        _prepare(order)
        serve.main(fields)
    theirs.close()
    try:
        _relay(ours)
    finally:
        os.kill(child, signal.SIGKILL)
        os._exit(0)


def _prepare(order: dict[str, object]) -> None:
    """Make the folders, and become a user to whom nothing else belongs."""
    settings = order["settings"]
    assert isinstance(settings, dict)  # noqa: S101 - as the host writes it
    libc = ctypes.CDLL(None)
    os.setsid()
    if os.geteuid() == 0:
        uid = int(str(order["uid"]))
        for place in str(settings["places"]).split("\0"):
            Path(place).mkdir(parents=True, exist_ok=True)
            options = f"size={settings['disk_bytes']},mode=1777".encode()
            # Where this is not allowed, the folder stays on the sandbox's own disk; the host finds that out by trying.
            libc.mount(b"rosetta", place.encode(), b"tmpfs", _NOSUID_NODEV, options)
            Path(place).chmod(0o1777)
        os.chown(str(settings["root"]), uid, uid)
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    most = int(settings["processes"]) + 1
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    os.chdir(str(settings["root"]))


def _relay(link: socket.socket) -> None:
    """Carry bytes in as they are, and out as lines of base64, which pass through any text."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(link, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            data = os.read(fd, 1 << 16)
            if not data:
                return
            if fd == 0:
                link.sendall(data)
            else:
                line = memoryview(base64.b64encode(data) + b"\n")
                while line:
                    line = line[os.write(1, line) :]
