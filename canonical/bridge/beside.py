"""A server of a source's own framework, run beside the bridge: in the same process, on the loop of another thread."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Protocol

from canonical.bridge.source import LiftError
from canonical.listening import url_of

log = logging.getLogger(__name__)

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

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until `should_exit` is set."""


@cache
def servers_loop() -> asyncio.AbstractEventLoop:
    """Return the loop of all servers of this process, which runs in a thread of its own.

    Some frameworks keep parts of their server for the process, which belong to the first loop that they meet.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="servers", daemon=True).start()
    return loop


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
    serving = asyncio.run_coroutine_threadsafe(_serve(server, listener), servers_loop())
    try:
        waited = 0.0
        while not server.started:
            if serving.done():
                raise LiftError("the source's server ended before it had started; its last words say why")
            if waited > _START_S:
                raise LiftError(f"the source's server did not start within {_START_S:g} s")
            await asyncio.sleep(_PAUSE_S)
            waited += _PAUSE_S
        yield url_of(listener)
    finally:
        server.should_exit = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await asyncio.wrap_future(serving)
        listener.close()


async def _serve(server: ServerProgram, listener: socket.socket) -> None:
    try:
        await server.serve(sockets=[listener])
    except (SystemExit, Exception):
        # A server that exits must not end the loop of the others.
        log.exception("a source's server has failed")
