"""Listening: a TCP socket for a server, made the way that answers leave at once, and errors in words."""

from __future__ import annotations

import errno
import socket

_HIGHEST_PORT = 65_535


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
