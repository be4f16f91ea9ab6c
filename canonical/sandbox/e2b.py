"""Sandboxes in micro virtual machines of E2B, through its official SDK: `pip install "rosetta-environments[e2b]"`.

The SDK reads the key from `E2B_API_KEY` and the address of another installation from `E2B_DOMAIN`. `ROSETTA_E2B_TEMPLATE`
names another template, which needs `python3` (3.10 or newer), `bash` and the usual tools.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import socket
from importlib.metadata import version
from typing import Any

from canonical.sandbox.protocol import BackendUnavailableError, Limits
from canonical.sandbox.remote.backend import Lines, RemoteBackend, one_line

VARIABLE = "ROSETTA_E2B_TEMPLATE"

LIFE_S = 3600
"""Seconds after which the service itself ends a sandbox, whatever happened to us; the most that every account allows."""


class E2bCarriage:
    """Be one machine, and the command in it that serves."""

    def __init__(self, machine: Any, end: socket.socket) -> None:
        self._machine, self._end = machine, end
        self._lines = Lines()
        self._sending: asyncio.Task[None] | None = None

    async def serve(self, command: tuple[str, ...]) -> None:
        """Start the command, and carry bytes both ways from now on."""
        handle = await self._machine.commands.run(
            shlex.join(command),
            background=True,
            user="root",
            stdin=True,
            timeout=0,
            on_stdout=self._take,
            retain_output=False,
        )
        self._sending = asyncio.create_task(self._send(handle))

    async def _take(self, text: str) -> None:
        with contextlib.suppress(OSError):
            try:
                data = self._lines.feed(text)
            except ValueError:
                self._end.close()
                return
            await asyncio.get_running_loop().sock_sendall(self._end, data)

    async def _send(self, handle: Any) -> None:
        ended = asyncio.ensure_future(handle.wait())
        loop = asyncio.get_running_loop()
        try:
            while not ended.done():
                receiving = asyncio.ensure_future(loop.sock_recv(self._end, 1 << 16))
                await asyncio.wait({ended, receiving}, return_when=asyncio.FIRST_COMPLETED)
                if not receiving.done():
                    receiving.cancel()
                    break
                data = receiving.result()
                if not data:
                    break
                await handle.send_stdin(data)
        except Exception:  # noqa: BLE001, S110 - whatever breaks the stream, the other side sees that the sandbox is gone
            pass
        finally:
            ended.cancel()
            await asyncio.gather(ended, return_exceptions=True)
            self._end.close()

    async def end(self) -> None:
        """End the machine."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        self._end.close()
        try:
            await self._machine.kill()
        except Exception as error:
            raise BackendUnavailableError(
                f"an E2B sandbox cannot be ended, and lives on for at most {LIFE_S} s: {one_line(error)}"
            ) from error


class E2b:
    """Start machines."""

    name = "e2b"
    relayed = True
    remains = f"a sandbox whose host was killed lives on until the service ends it, {LIFE_S} s after its start at most"

    def __init__(self) -> None:
        self._version = ""

    def tool(self) -> str:
        """Return the SDK's version and the template."""
        return f"E2B, SDK {self._version}, template {os.environ.get(VARIABLE) or 'base'}"

    async def start(
        self, command: tuple[str, ...], limits: Limits, uid: int, end: socket.socket
    ) -> E2bCarriage:
        """Start a machine; see `canonical.sandbox.remote.backend.Service.start`.

        Processors and memory of a machine come from its template. The program inside holds the limits.
        """
        del limits, uid
        end.setblocking(False)
        try:
            import e2b  # noqa: PLC0415 - imported when used
        except ImportError as error:
            end.close()
            raise BackendUnavailableError(
                'the e2b sandbox needs the E2B SDK: pip install "rosetta-environments[e2b]"'
            ) from error
        self._version = version("e2b")
        if not os.environ.get("E2B_API_KEY"):
            end.close()
            raise BackendUnavailableError("the e2b sandbox needs a key of E2B: set E2B_API_KEY")
        machine = None
        try:
            machine = await e2b.AsyncSandbox.create(
                template=os.environ.get(VARIABLE) or None,
                timeout=LIFE_S,
                allow_internet_access=False,
                lifecycle={"on_timeout": "kill"},
            )
            carriage = E2bCarriage(machine, end)
            await carriage.serve(command)
        except BaseException as error:
            end.close()
            if machine is not None:
                with contextlib.suppress(Exception):
                    await machine.kill()
            if not isinstance(error, Exception):
                raise
            raise BackendUnavailableError(f"E2B does not start a sandbox: {one_line(error)}") from error
        return carriage


BACKEND = RemoteBackend(E2b())
"""The backend `e2b`."""
