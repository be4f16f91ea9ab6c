"""A server of a source's own framework, run beside the bridge: in the same process, in a thread and a loop of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from canonical.bridge.source import LiftError
from canonical.listening import url_of

_PAUSE_S = 0.005
_START_S = 120.0
_END_S = 15.0


class ServerProgram(Protocol):
    """Be a server as uvicorn makes them.

    Attributes:
        started: Whether it answers.
        should_exit: Whether it is to end.
    """

    started: bool
    should_exit: bool

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until `should_exit` is set."""


@asynccontextmanager
async def serve_beside(server: ServerProgram, listener: socket.socket) -> AsyncIterator[str]:
    """Run a server; leaving the context ends it.

    What blocks the server's loop holds up the sessions of that server, and not whoever plays them.

    Args:
        server: The server, not yet running.
        listener: The listening socket that it takes over.

    Yields:
        Its HTTP address.

    Raises:
        LiftError: It ended before it answered, or did not answer in time.
    """
    thread = threading.Thread(target=server.run, args=([listener],), name="source-server", daemon=True)
    thread.start()
    try:
        waited = 0.0
        while not server.started:
            if not thread.is_alive():
                raise LiftError("the source's server ended before it had started; its last words say why")
            if waited > _START_S:
                raise LiftError(f"the source's server did not start within {_START_S:g} s")
            await asyncio.sleep(_PAUSE_S)
            waited += _PAUSE_S
        yield url_of(listener)
    finally:
        server.should_exit = True
        await asyncio.to_thread(thread.join, _END_S)
        listener.close()
