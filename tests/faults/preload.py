"""Import a framework once, and let workers be forks of the process that has: importing takes most of a short play.

`python -P -m tests.faults.preload SOCKET ADAPTER` runs in a stack and serves; `preload.py` as a program with SOCKET in
the environment stands where a stack's Python is expected, and hands its pipes and arguments to the server. Standard
library only.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import socket
import sys
from importlib import import_module, invalidate_caches
from pathlib import Path

ADDRESS = "ROSETTA_FAULTS_SOCKET"
OWN = frozenset({"adapters", "bench", "canonical", "libraries", "reports", "rosetta", "tests"})
"""The packages of this project: each fork imports its own, from the copy that it is to play."""
_LONGEST = 1 << 20


def serve(address: str, adapter: str) -> None:
    """Import the framework of an adapter, and fork a worker for every program that asks, for ever."""
    import_module(f"adapters.{adapter}.adapter").ADAPTER.packages()
    for name in [name for name in sys.modules if name.partition(".")[0] in OWN]:
        del sys.modules[name]
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        while True:
            asking, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _become(asking)
            asking.close()


def _become(asking: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, descriptors, _, _ = socket.recv_fds(asking, _LONGEST, 3)
    wanted = json.loads(message)
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    before = os.environ.get("PYTHONPATH", "")
    os.environ.clear()
    os.environ.update(wanted["environment"])
    os.chdir(wanted["folder"])
    sys.path[:] = [wanted["environment"]["PYTHONPATH"], *(place for place in sys.path if place != before)]
    invalidate_caches()
    _, _, module, *arguments = wanted["arguments"]
    sys.argv = [module, *arguments]
    code = 1
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        asking.sendall(bytes([code]))
        os._exit(code)


def ask() -> int:
    """Have the server do what was asked of this program, wait for it, and return its code."""
    wanted = {"arguments": sys.argv[1:], "environment": dict(os.environ), "folder": str(Path.cwd())}
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(os.environ[ADDRESS])
        socket.send_fds(server, [json.dumps(wanted).encode("ascii")], [0, 1, 2])
        return (server.recv(1) or b"\1")[0]


if __name__ == "__main__":
    if ADDRESS in os.environ:
        sys.exit(ask())
    serve(*sys.argv[1:])
