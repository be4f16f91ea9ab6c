"""The frames between a source and whoever plays it: one JSON object per line, one connection per session.

A connection begins with `facts` or `open`. Its end frees the session, whatever the reason, so nothing outlives whoever plays.
"""

from __future__ import annotations

import json
import os
from typing import Any

LINE_LIMIT = 1 << 28
"""The longest frame, in bytes."""

SCHEME = "bridge:"
"""What the name of an environment begins with that is played over a bridge; the address follows."""


def write_frame(value: Any) -> bytes:
    """Return a frame. Text may hold lone surrogates, hence ASCII."""
    return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"


def split_address(address: str) -> tuple[str, int] | str:
    """Return host and port, or the path of a Unix socket.

    Raises:
        ValueError: It is neither.
    """
    if address.startswith("/"):
        return os.path.normpath(address)
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"{address!r} is neither the path of a socket nor host:port")
    return host, int(port)
