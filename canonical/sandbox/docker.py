"""Sandboxes in containers of a Docker Engine, through its official SDK: `pip install "rosetta-environments[docker]"`.

The variables of the Docker command line choose the engine (`DOCKER_HOST` and its companions); `ROSETTA_DOCKER_IMAGE`
names another image, which needs `python3` (3.10 or newer), `bash` and the usual tools.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import threading
from typing import Any

from canonical.sandbox.protocol import BackendUnavailableError, Limits
from canonical.sandbox.remote.backend import ROOT, TEMPORARY, RemoteBackend, one_line

IMAGE = "python:3.11-slim"
"""The image, unless `ROSETTA_DOCKER_IMAGE` names another."""
VARIABLE = "ROSETTA_DOCKER_IMAGE"

_STDOUT, _STDERR = 1, 2
_HEAD = struct.Struct(">BxxxL")
# The program that serves the sandbox is counted by the engine, too.
_OWN_PROCESSES, _OWN_MEMORY_BYTES = 4, 64 << 20
_TIMEOUT_S = 60


class DockerCarriage:
    """Be one container, and two threads that carry bytes to and from its first process."""

    def __init__(self, api: Any, container: str, stream: Any, end: socket.socket) -> None:
        self._api, self._container, self._stream, self._end = api, container, stream, end
        # The SDK wraps what it was given; writing needs the socket itself.
        self._raw = getattr(stream, "_sock", stream)
        self._said = b""
        for work in (self._outward, self._inward):
            threading.Thread(target=work, name=f"docker-{container[:12]}", daemon=True).start()

    def _inward(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._end.recv(1 << 16):
                self._raw.sendall(data)
        self._hang_up()

    def _outward(self) -> None:
        """Take the engine's frames apart: a stream's number, a length, and as many bytes."""
        with contextlib.suppress(OSError, ValueError):
            while head := self._exactly(_HEAD.size):
                number, length = _HEAD.unpack(head)
                while length:
                    data = self._raw.recv(min(length, 1 << 16))
                    if not data:
                        return self._hang_up()
                    length -= len(data)
                    if number == _STDOUT:
                        self._end.sendall(data)
                    elif number == _STDERR:
                        self._said = (self._said + data)[-2000:]
        return self._hang_up()

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more: bytes = self._raw.recv(count - len(data))
            if not more:
                return b""
            data += more
        return data

    def _hang_up(self) -> None:
        for one in (self._end, self._raw):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    async def end(self) -> None:
        """Remove the container."""
        await asyncio.to_thread(self._remove)

    def _remove(self) -> None:
        from docker.errors import APIError, DockerException  # noqa: PLC0415 - imported when used

        try:
            self._api.remove_container(self._container, force=True)
        except APIError as error:
            # Gone already, or going: the engine removes it when its first process ends.
            if error.status_code not in {404, 409}:
                raise BackendUnavailableError(
                    f"the container {self._container[:12]} cannot be removed: {one_line(error)}"
                ) from error
        except (DockerException, OSError) as error:
            raise BackendUnavailableError(
                f"the container {self._container[:12]} cannot be removed: {one_line(error)}"
            ) from error
        finally:
            self._hang_up()
            self._end.close()
            # Closing the stream alone leaves the answer open that it was taken from.
            answer = getattr(self._stream, "_response", self._stream)
            for one in (self._stream, answer, self._raw, self._api):
                with contextlib.suppress(Exception):
                    one.close()


class Docker:
    """Start containers."""

    name = "docker"
    relayed = False
    remains = ""

    def __init__(self) -> None:
        self._version = ""

    def tool(self) -> str:
        """Return the version of the engine that was spoken to."""
        return f"docker {self._version}, image {_image()}"

    async def start(
        self, command: tuple[str, ...], limits: Limits, uid: int, end: socket.socket
    ) -> DockerCarriage:
        """Start a container; see `canonical.sandbox.remote.backend.Service.start`."""
        return await asyncio.to_thread(self._start, command, limits, uid, end)

    def _start(
        self, command: tuple[str, ...], limits: Limits, uid: int, end: socket.socket
    ) -> DockerCarriage:
        try:
            import docker  # noqa: PLC0415 - imported when used
            from docker.errors import DockerException, ImageNotFound  # noqa: PLC0415
        except ImportError as error:
            end.close()
            raise BackendUnavailableError(
                'the docker sandbox needs the Docker SDK: pip install "rosetta-environments[docker]"'
            ) from error
        container = ""
        api = None
        try:
            api = docker.from_env(version="auto", timeout=_TIMEOUT_S).api
            self._version = str(api.version().get("Version", "of unknown version"))
            container = api.create_container(**_creation(api, command, limits, uid))["Id"]
            # Attached first, so that nothing is lost. When this process dies, so does the stream, and with it the container.
            stream = api.attach_socket(container, {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
            getattr(stream, "_sock", stream).settimeout(None)
            api.start(container)
            return DockerCarriage(api, container, stream, end)
        except ImageNotFound as error:
            reason = f"the docker sandbox needs the image {_image()}: docker pull {_image()}"
            raise BackendUnavailableError(reason) from _tidy(api, container, end, error)
        except (DockerException, OSError) as error:
            reason = (
                "the docker sandbox needs a Docker Engine that runs and that this user may use "
                f"(DOCKER_HOST names another one): {one_line(error)}"
            )
            raise BackendUnavailableError(reason) from _tidy(api, container, end, error)


def _tidy(api: Any, container: str, end: socket.socket, error: Exception) -> Exception:
    end.close()
    with contextlib.suppress(Exception):
        if container:
            api.remove_container(container, force=True)
    with contextlib.suppress(Exception):
        api.close()
    return error


def _image() -> str:
    return os.environ.get(VARIABLE) or IMAGE


def _creation(api: Any, command: tuple[str, ...], limits: Limits, uid: int) -> dict[str, Any]:
    """Return what a container is made of: no network, no rights, a read-only system, and limits."""
    memory = limits.memory_bytes + limits.disk_bytes * 2 + _OWN_MEMORY_BYTES
    options = f"rw,exec,nosuid,nodev,size={limits.disk_bytes}"
    return {
        "image": _image(),
        "command": list(command),
        "entrypoint": [],
        "user": f"{uid}:{uid}",
        "hostname": "sandbox",
        "stdin_open": True,
        "environment": {},
        "working_dir": ROOT,
        "labels": {"org.rosetta.sandbox": "1"},
        "host_config": api.create_host_config(
            auto_remove=True,
            network_mode="none",
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges:true"],
            ipc_mode="private",
            shm_size=min(limits.disk_bytes, 64 << 20),
            mem_limit=memory,
            memswap_limit=memory,
            pids_limit=limits.processes + _OWN_PROCESSES,
            tmpfs={
                ROOT: f"{options},uid={uid},gid={uid},mode=0755",
                TEMPORARY: f"{options},mode=1777",
            },
            # What the program says is frames for us; an engine that logged it would fill the host's disk.
            log_config={"Type": "none", "Config": {}},
        ),
    }


BACKEND = RemoteBackend(Docker())
"""The backend `docker`."""
