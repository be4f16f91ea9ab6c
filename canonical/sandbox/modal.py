"""Sandboxes of Modal, through its official SDK: `pip install "rosetta-environments[modal]"`.

The SDK reads its token as its own command line does: from `MODAL_TOKEN_ID` and `MODAL_TOKEN_SECRET`, or from the file
that `modal token new` writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from importlib.metadata import version
from typing import Any

from canonical.sandbox.protocol import BackendUnavailableError, Limits
from canonical.sandbox.remote.backend import Lines, RemoteBackend, one_line

APP = "rosetta-sandboxes"
"""The app under which sandboxes appear in Modal; it is made at the first use."""
LIFE_S = 3600
"""Seconds after which the service itself ends a sandbox, whatever happened to us."""

_PYTHON = "3.11"
_OWN_MEMORY_BYTES = 128 << 20
_MIB = 1 << 20


class ModalCarriage:
    """Be one sandbox of Modal, and the command in it that serves."""

    def __init__(self, sandbox: Any, process: Any, end: socket.socket) -> None:
        self._sandbox, self._process, self._end = sandbox, process, end
        self._lines = Lines()
        self._work = [asyncio.create_task(self._inward()), asyncio.create_task(self._outward())]

    async def _inward(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while data := await loop.sock_recv(self._end, 1 << 16):
                self._process.stdin.write(data)
                await self._process.stdin.drain.aio()
        except Exception:  # noqa: BLE001 - whatever breaks the stream, the other side sees that the sandbox is gone
            self._end.close()

    async def _outward(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            async for data in self._process.stdout:
                await loop.sock_sendall(self._end, self._lines.feed(data.decode("ascii")))
        except Exception:  # noqa: BLE001, S110 - as above
            pass
        self._end.close()

    async def end(self) -> None:
        """End the sandbox."""
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        self._end.close()
        try:
            await self._sandbox.terminate.aio()
        except Exception as error:
            raise BackendUnavailableError(
                f"a sandbox of Modal cannot be ended, and lives on for at most {LIFE_S} s: {one_line(error)}"
            ) from error


class Modal:
    """Start sandboxes of Modal."""

    name = "modal"
    relayed = True
    remains = f"a sandbox whose host was killed lives on until the service ends it, {LIFE_S} s after its start at most"

    def tool(self) -> str:
        """Return the SDK's version and the image."""
        return f"Modal, SDK {version('modal')}, debian slim with Python {_PYTHON}"

    async def start(
        self, command: tuple[str, ...], limits: Limits, uid: int, end: socket.socket
    ) -> ModalCarriage:
        """Start a sandbox; see `canonical.sandbox.remote.backend.Service.start`."""
        del uid
        end.setblocking(False)
        sandbox = None
        try:
            import modal  # noqa: PLC0415 - imported when used

            app = await modal.App.lookup.aio(APP, create_if_missing=True)
            memory = -(-(limits.memory_bytes + 2 * limits.disk_bytes + _OWN_MEMORY_BYTES) // _MIB)
            sandbox = await modal.Sandbox.create.aio(
                app=app,
                image=modal.Image.debian_slim(python_version=_PYTHON),
                timeout=LIFE_S,
                block_network=True,
                memory=(min(memory, 512), memory),
            )
            process = await sandbox.exec.aio(*command, text=False)
        except ImportError as error:
            end.close()
            raise BackendUnavailableError(
                'the modal sandbox needs the Modal SDK: pip install "rosetta-environments[modal]"'
            ) from error
        except BaseException as error:
            end.close()
            if sandbox is not None:
                with contextlib.suppress(Exception):
                    await sandbox.terminate.aio()
            if not isinstance(error, Exception):
                raise
            if type(error).__name__ == "AuthError":
                raise BackendUnavailableError(
                    "the modal sandbox needs a token of Modal: run `modal token new`, or set MODAL_TOKEN_ID and "
                    f"MODAL_TOKEN_SECRET ({one_line(error)})"
                ) from error
            raise BackendUnavailableError(f"Modal does not start a sandbox: {one_line(error)}") from error
        return ModalCarriage(sandbox, process, end)


BACKEND = RemoteBackend(Modal())
"""The backend `modal`."""
