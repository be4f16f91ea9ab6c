"""What a recorded connection carried: requests and answers of HTTP/1.1, and the messages of a WebSocket after them."""

from __future__ import annotations

from dataclasses import dataclass

_HEAD_END = b"\r\n\r\n"
_CONTINUED = 0x0
_MESSAGES = {0x1: "text", 0x2: "binary"}


class UnreadableStreamError(ValueError):
    """Report bytes that are no HTTP/1.1 and no frames of a WebSocket."""


@dataclass(frozen=True, slots=True)
class Head:
    """Hold the beginning of a request or an answer.

    Attributes:
        first: Its first line.
        fields: Its fields, with names in lower case.
        size: How many bytes it takes with its body.
    """

    first: str
    fields: dict[str, str]
    size: int


def read_heads(stream: bytes) -> tuple[list[Head], bytes]:
    """Return the requests or answers of a stream, and what follows a change to another protocol.

    Bodies are counted, or come in chunks; an answer without either ends with its head.

    Raises:
        UnreadableStreamError: The stream is not HTTP/1.1, or ends in the middle.
    """
    heads: list[Head] = []
    place = 0
    while place < len(stream):
        end = stream.find(_HEAD_END, place)
        if end < 0:
            raise UnreadableStreamError("the stream ends in the head of a message")
        first, *lines = stream[place:end].decode("latin-1").split("\r\n")
        if "HTTP/1." not in first:
            raise UnreadableStreamError(f"this is no line of HTTP: {first[:60]!r}")
        fields = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
        }
        body = end + len(_HEAD_END)
        is_upgrade = first.startswith("HTTP/1.1 101") or fields.get("upgrade", "").lower() == "websocket"
        after = body if is_upgrade else body + _body_size(stream, body, fields)
        heads.append(Head(first, fields, after - place))
        place = after
        if is_upgrade:
            return heads, stream[place:]
    return heads, b""


def _body_size(stream: bytes, start: int, fields: dict[str, str]) -> int:
    if fields.get("transfer-encoding", "").lower() != "chunked":
        return int(fields.get("content-length", "0"))
    place = start
    while True:
        line = stream.find(b"\r\n", place)
        if line < 0:
            raise UnreadableStreamError("the stream ends in a chunk")
        size = int(stream[place:line].partition(b";")[0], 16)
        place = line + 2 + size + 2
        if size == 0:
            return place - start


def read_bodies(stream: bytes) -> list[tuple[Head, bytes]]:
    """Return the requests or answers of a stream with what they carry, chunks joined.

    Raises:
        UnreadableStreamError: The stream is not HTTP/1.1, or ends in the middle.
    """
    heads, _ = read_heads(stream)
    found, place = [], 0
    for head in heads:
        _, _, body = stream[place : place + head.size].partition(_HEAD_END)
        is_chunked = head.fields.get("transfer-encoding", "").lower() == "chunked"
        found.append((head, _joined(body) if is_chunked else body))
        place += head.size
    return found


def _joined(chunks: bytes) -> bytes:
    parts, place = [], 0
    while size := int(chunks[place : (line := chunks.index(b"\r\n", place))].partition(b";")[0], 16):
        parts.append(chunks[line + 2 : line + 2 + size])
        place = line + 2 + size + 2
    return b"".join(parts)


def read_messages(frames: bytes) -> list[tuple[int, bytes]]:
    """Return the messages that the frames of one side of a WebSocket carry, each with the place where it begins.

    Pings, pongs and goodbyes are none.

    Raises:
        UnreadableStreamError: The frames end in the middle.
    """
    found: list[tuple[int, bytes]] = []
    place = 0
    while place < len(frames):
        begin = place
        if len(frames) - place < 2:
            raise UnreadableStreamError("the stream ends in a frame")
        opcode, size = frames[place] & 0x0F, frames[place + 1] & 0x7F
        is_masked = bool(frames[place + 1] & 0x80)
        place += 2
        wide = {126: 2, 127: 8}.get(size, 0)
        if wide:
            size = int.from_bytes(frames[place : place + wide], "big")
        place += wide
        mask = frames[place : place + 4] if is_masked else b""
        place += len(mask)
        body = frames[place : place + size]
        place += size
        if place > len(frames):
            raise UnreadableStreamError("the stream ends in a frame")
        if mask:
            body = bytes(byte ^ mask[index % 4] for index, byte in enumerate(body))
        if opcode in _MESSAGES:
            found.append((begin, body))
        elif opcode == _CONTINUED and found:
            found[-1] = (found[-1][0], found[-1][1] + body)
    return found


def count_messages(frames: bytes) -> int:
    """Return how many messages the frames of one side of a WebSocket carry; pings, pongs and goodbyes are none.

    Raises:
        UnreadableStreamError: The frames end in the middle.
    """
    return len(read_messages(frames))
