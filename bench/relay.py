"""A relay between a client and a server: it keeps every byte, and it can cut the line as the death of a client does."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

_PIECE = 1 << 16
_OFFERS = re.compile(rb"(?i)(?<=\r\n)(?:Sec-WebSocket-Extensions|Accept-Encoding)(?=:)")
_CHUNK_EDGE = re.compile(rb"\r\n[0-9A-Fa-f]+\r\n")


class Piece(NamedTuple):
    """Say who sent how much at once.

    Attributes:
        connection: The place of the connection among the conversations.
        is_request: Whether the client sent it.
        size: How many bytes it has.
    """

    connection: int
    is_request: bool
    size: int


@dataclass(slots=True, eq=False)
class _Line:
    to_server: asyncio.StreamWriter
    to_client: asyncio.StreamWriter
    asked: bytearray = field(default_factory=bytearray)
    answered: bytearray = field(default_factory=bytearray)
    number: int = -1


class Relay:
    """Stand between clients and one server on 127.0.0.1. Create it with `start_relay`.

    Offers to compress are spoilt on the way, one letter each, so that what is kept is what was said.

    Attributes:
        url: Where clients reach the server through this relay.
        size: How many bytes have been kept, both ways together.
    """

    def __init__(self, target: str, *, is_recording: bool) -> None:
        place = urlsplit(target)
        self._host, self._port = place.hostname or "127.0.0.1", place.port or 80
        self._is_recording = is_recording
        self._lines: list[_Line] = []
        self._kept: list[_Line] = []
        self._pieces: list[Piece] = []
        self._talking: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self._own_port = 0
        self.url = ""
        self.size = 0

    async def listen(self) -> None:
        """Take clients, at the same address as before when there was one."""
        # The handler is no coroutine function, so that the tasks are ours to cancel.
        self._listener = await asyncio.start_server(self._meet, "127.0.0.1", self._own_port)
        self._own_port = self._listener.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self._own_port}"

    async def cut(self) -> None:
        """Break every connection without a word, and take no client until `listen` is called again."""
        if self._listener is not None:
            self._listener.close()
        for line in self._lines:
            line.to_server.transport.abort()
            line.to_client.transport.abort()
        for task in self._talking:
            task.cancel()
        await asyncio.gather(*self._talking, return_exceptions=True)

    def said(self) -> list[bytes]:
        """Return what each side has said on each connection so far, with and without the edges of HTTP's chunks."""
        streams = [bytes(stream) for line in self._kept for stream in (line.asked, line.answered)]
        return streams + [joined for stream in streams if (joined := _CHUNK_EDGE.sub(b"", stream)) != stream]

    def conversations(self) -> list[tuple[bytes, bytes]]:
        """Return what the client asked and what the server answered on each connection so far, as it was sent."""
        return [(bytes(line.asked), bytes(line.answered)) for line in self._kept]

    def pieces(self) -> list[Piece]:
        """Return in which order the bytes of all conversations came so far."""
        return list(self._pieces)

    def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._talk(reader, writer))
        self._talking.add(task)
        task.add_done_callback(self._talking.discard)

    async def _talk(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            from_server, to_server = await asyncio.open_connection(self._host, self._port)
        except OSError:
            to_client.transport.abort()
            return
        line = _Line(to_server, to_client)
        self._lines.append(line)
        if self._is_recording:
            line.number = len(self._kept)
            self._kept.append(line)
        try:
            await asyncio.gather(
                self._carry(line, from_client, to_server, is_request=True),
                self._carry(line, from_server, to_client, is_request=False),
            )
        except OSError:
            # One end is gone: that is for the other end to notice, not for the relay.
            pass
        finally:
            self._lines.remove(line)
            to_server.transport.abort()
            to_client.transport.abort()

    async def _carry(
        self, line: _Line, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_request: bool
    ) -> None:
        kept = line.asked if is_request else line.answered
        while piece := await source.read(_PIECE):
            if is_request:
                # Of equal length, so that nothing that counts bytes is put out.
                piece = _OFFERS.sub(lambda found: b"X" + found[0][1:], piece)
            if self._is_recording:
                kept += piece
                self.size += len(piece)
                self._pieces.append(Piece(line.number, is_request, len(piece)))
            sink.write(piece)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()


@asynccontextmanager
async def start_relay(target: str, *, is_recording: bool = False) -> AsyncIterator[Relay]:
    """Start a relay to a server; leaving the context cuts it.

    Args:
        target: Address of the server.
        is_recording: Whether every byte is kept.
    """
    relay = Relay(target, is_recording=is_recording)
    await relay.listen()
    try:
        yield relay
    finally:
        await relay.cut()
