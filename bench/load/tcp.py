"""What the transports have in common: a TCP connection, and the ways in which it fails."""

from __future__ import annotations

import socket
import time


class TransportError(Exception):
    """Say why an operation failed on its way; the text is the same for the same cause, so that it can be counted."""


class Unreachable(TransportError):  # noqa: N818 - what happened, read as a sentence
    """Say that no TCP connection came about."""


class Timeout(TransportError):  # noqa: N818
    """Say that the peer did not answer in time."""


def open_tcp(address: str, port: int, *, timeout: float) -> socket.socket:
    """Connect, without delay for small packets.

    Args:
        address: Numeric address, so that no resolver is asked.
        port: TCP port.
        timeout: Seconds.

    Raises:
        Unreachable: There is no TCP connection to be had.
        Timeout: It took longer than `timeout`.
    """
    try:
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    except OSError as e:
        raise Unreachable(f"no socket: {explain(e)}") from e
    try:
        sock.settimeout(timeout)
        try:
            sock.connect((address, port))
        except TimeoutError:
            raise Timeout(f"no TCP connection within {timeout:g} s") from None
        except OSError as e:
            raise Unreachable(f"no TCP connection: {explain(e)}") from e
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock


def host_field(address: str, port: int, host: str | None) -> str:
    """Return the value of the Host header; `host` is another name for the address."""
    return f"{host or (f'[{address}]' if ':' in address else address)}:{port}"


def until(deadline: float) -> float:
    """Return the seconds that are left, as a socket's timeout: never 0, which would mean not to wait at all."""
    return max(deadline - time.monotonic(), 0.001)


def explain(error: OSError) -> str:
    """Return what the operating system says."""
    return error.strerror or type(error).__name__
