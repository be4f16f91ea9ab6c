"""As much of E2B's interface as one sandbox needs, from the server classes that its SDK brings along; on 127.0.0.1.

A machine is a folderless bubblewrap: as root, commands start with root's rights in it, as they do in the real one.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from e2b.envd.process import process_connect, process_pb
from protobuf import Oneof

from tests.miniatures.machines import machine


class Envd(process_connect.Process):
    """Run processes, as the daemon inside a machine does."""

    def __init__(self) -> None:
        self.running: dict[int, asyncio.subprocess.Process] = {}
        self.machines: dict[str, list[asyncio.subprocess.Process]] = {}

    async def start(self, request: Any, ctx: Any, /) -> AsyncIterator[Any]:
        config = request.process
        process = await asyncio.create_subprocess_exec(
            *machine([config.cmd, *config.args]),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        self.running[process.pid] = process
        self.machines.setdefault(ctx.request_headers["e2b-sandbox-id"], []).append(process)
        event = process_pb.ProcessEvent
        try:
            yield self._event(Oneof("start", event.StartEvent(pid=process.pid)))
            assert process.stdout is not None
            while data := await process.stdout.read(1 << 15):
                yield self._event(Oneof("data", event.DataEvent(output=Oneof("stdout", data))))
            code = await process.wait()
            yield self._event(Oneof("end", event.EndEvent(exit_code=code, exited=True, status="exited")))
        finally:
            self.running.pop(process.pid, None)
            if process.returncode is None:
                process.kill()
                await process.wait()

    def _event(self, event: Any) -> Any:
        return process_pb.StartResponse(event=process_pb.ProcessEvent(event=event))

    async def send_input(self, request: Any, ctx: Any, /) -> Any:
        process = self.running[request.process.selector.value]
        assert process.stdin is not None
        process.stdin.write(request.input.input.value)
        await process.stdin.drain()
        return process_pb.SendInputResponse()


class Service:
    """Serve the interface that makes machines, and the daemon in all of them, at one address."""

    def __init__(self) -> None:
        self.envd = Envd()
        self.created: list[dict[str, Any]] = []
        self.alive: set[str] = set()
        self._processes = process_connect.ProcessASGIApplication(self.envd)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._server = uvicorn.Server(
            uvicorn.Config(self._app, log_level="error", interface="asgi3", lifespan="off", access_log=False)
        )
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._listener]}, daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(10)
        self._listener.close()

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        if path.startswith("/process.Process"):
            await self._processes(scope, receive, send)
            return
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        status, value = self._answer(scope["method"], path, body)
        content = json.dumps(value).encode() if value is not None else b""
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(b"content-type", b"application/json")],
            }
        )
        await send({"type": "http.response.body", "body": content})

    def _answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        if (method, path) == ("POST", "/sandboxes") or (method == "POST" and path.endswith("/sandboxes")):
            self.created.append(json.loads(body))
            name = f"machine{len(self.created)}"
            self.alive.add(name)
            return 201, {
                "templateID": "base", "sandboxID": name, "clientID": "c", "envdVersion": "0.5.0", "envdAccessToken": "t",
            }  # fmt: skip
        name = path.rpartition("/")[2]
        if method == "DELETE" and name in self.alive:
            self.alive.discard(name)
            for process in self.envd.machines.pop(name, ()):
                if process.returncode is None:
                    process.kill()
            return 204, None
        return 404, {"code": 404, "message": "no such thing"}
