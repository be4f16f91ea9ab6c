"""Listening: a TCP socket for a server, made the way that answers leave at once, and a door that new sessions find shut."""

from __future__ import annotations

import errno
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

DRAINING = "This service is being stopped and takes no new sessions."
"""What a client is told that begins a session while the open ones come to their end."""
_HIGHEST_PORT = 65_535

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]


class Door:
    """Be an ASGI application that stands before another: once it is shut, requests that begin a session get status 503.

    Args:
        app: What stands behind it.
        beginnings: Paths of the requests that begin a session; without any, every request and every WebSocket does. What
            began before is never touched.
    """

    def __init__(self, app: Callable[..., Awaitable[None]], *beginnings: str) -> None:
        self._app = app
        self._beginnings = frozenset(beginnings)
        self._is_shut = False

    def shut(self) -> None:
        """Let no session begin from now on."""
        self._is_shut = True

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """Answer one connection of ASGI."""
        if self._is_shut and scope["type"] != "lifespan":
            path = str(scope["path"]).rstrip("/")
            if not self._beginnings or path in self._beginnings:
                await _refuse(scope, receive, send)
                return
        await self._app(scope, receive, send)


async def _refuse(scope: _Message, receive: _Receive, send: _Send) -> None:
    prefix = ""
    if scope["type"] == "websocket":
        await receive()
        if "websocket.http.response" not in (scope.get("extensions") or {}):
            # The server makes a refusal of its own of it, with status 403.
            await send({"type": "websocket.close"})
            return
        prefix = "websocket."
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    await send({"type": f"{prefix}http.response.start", "status": 503, "headers": headers})
    await send({"type": f"{prefix}http.response.body", "body": DRAINING.encode() + b"\n"})


def listen(host: str, port: int, backlog: int) -> socket.socket:
    """Return a listening socket.

    asyncio switches Nagle's algorithm off only where a socket says that it speaks TCP, and `socket.create_server`
    leaves that out: an answer in several parts would then wait 40 ms for the acknowledgement of its first.

    Args:
        host: Name or address to listen on.
        port: Port to listen on; 0 picks a free one.
        backlog: How many connections may wait to be accepted.

    Raises:
        OSError: The port is in use, not allowed or no port; the text says so and what to do.
    """
    if not 0 <= port <= _HIGHEST_PORT:
        raise OSError(f"cannot serve on {host}, port {port}: ports go from 0 to {_HIGHEST_PORT}")
    listener = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(backlog)
    except OSError as error:
        if listener is not None:
            listener.close()
        reason = (error.strerror or str(error)).lower()
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            hint = f"; {host} is no address of this machine, which another port does not change: choose 127.0.0.1, or 0.0.0.0 for all"
        else:
            hint = "; choose another port, or 0 for a free one" if port else ""
        raise OSError(error.errno, f"cannot serve on {host}, port {port}: {reason}{hint}") from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the HTTP address of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
