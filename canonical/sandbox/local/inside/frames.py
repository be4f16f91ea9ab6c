"""Frames between host and sandbox: a length, the number of the call, a kind, and byte strings.

There is nothing in a frame but numbers and byte strings, so that reading one from a sandbox can run no code.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_PREFIX = 4
_HEAD = 5

# From the host.
LOAD = 1
READ = 2
WRITE = 3
LIST = 4
SNAPSHOT = 5
EXEC = 6
STOP = 7
CANCEL = 8
# From the sandbox.
READY = 32
PART = 33
DONE = 34
ERROR = 35
IDLE = 36


class FrameError(ValueError):
    """Report bytes that are no frame, or a frame that is larger than agreed."""


def pack(call: int, kind: int, fields: Iterable[bytes] = ()) -> bytes:
    """Return one frame as bytes, with its length in front."""
    parts = [call.to_bytes(4, "big"), kind.to_bytes(1, "big")]
    for field in fields:
        parts.append(len(field).to_bytes(4, "big"))
        parts.append(field)
    body = b"".join(parts)
    return len(body).to_bytes(_PREFIX, "big") + body


def unpack(body: bytes | memoryview) -> tuple[int, int, list[bytes]]:
    """Return call, kind and fields of a frame without its length.

    Raises:
        FrameError: The bytes do not add up.
    """
    if len(body) < _HEAD:
        raise FrameError("a frame is shorter than its head")
    fields, at, end = [], _HEAD, len(body)
    while at < end:
        stop = at + 4 + int.from_bytes(body[at : at + 4], "big")
        if at + 4 > end or stop > end:
            raise FrameError("a field reaches beyond its frame")
        fields.append(bytes(body[at + 4 : stop]))
        at = stop
    return int.from_bytes(body[:4], "big"), body[4], fields


class Inbox:
    """Cut a stream of bytes into frames, and refuse one that is longer than `cap` bytes before it is held."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterable[tuple[int, int, list[bytes]]]:
        """Take bytes in, and return the frames that are complete now.

        Raises:
            FrameError: A frame is too long, or is none.
        """
        held = self._held
        held += data
        frames, at = [], 0
        while len(held) - at >= _PREFIX:
            length = int.from_bytes(held[at : at + _PREFIX], "big")
            if length > self._cap:
                raise FrameError(f"a frame of {length} bytes is longer than {self._cap}")
            stop = at + _PREFIX + length
            if len(held) < stop:
                break
            with memoryview(held) as view, view[at + _PREFIX : stop] as body:
                frames.append(unpack(body))
            at = stop
        del held[:at]
        return frames


def number(value: int) -> bytes:
    """Return a whole number as a field."""
    return b"%d" % value


def whole(field: bytes) -> int:
    """Return the whole number of a field.

    Raises:
        FrameError: It holds something else.
    """
    if not field.removeprefix(b"-").isdigit() or len(field) > 20:
        raise FrameError("a number was expected")
    return int(field)
