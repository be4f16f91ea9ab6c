"""Speak WebSocket (RFC 6455) as a client, on one plain blocking socket and at the least cost per message.

A load generator holds thousands of these in one process, so a connection is a socket, a receive buffer and a few
flags, without threads, tasks or extensions. Under gevent the socket is the patched one and blocking means yielding.
Section numbers in the comments are those of RFC 6455.
"""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import struct
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from bench.load.tcp import Timeout, TransportError, explain, host_field, open_tcp, until

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTINUATION: Final = 0x0
TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA

NORMAL_CLOSURE: Final = 1000
PROTOCOL_ERROR: Final = 1002
UNSUPPORTED_DATA: Final = 1003
INVALID_TEXT: Final = 1007
MESSAGE_TOO_BIG: Final = 1009

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""Default limit of one received message."""

_KNOWN_OPCODES: Final = frozenset({CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG})
_ACCEPT_SALT: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_MAX_HEAD_BYTES: Final = 65536
_RECEIVE_BYTES: Final = 65536
_SHORT_PAYLOAD: Final = 125
_EOF_PATIENCE_S: Final = 1.0


class HandshakeRefused(TransportError):  # noqa: N818 - what happened, read as a sentence
    """Carry the status line with which the server declined the upgrade."""

    def __init__(self, status_line: str, why: str = "") -> None:
        super().__init__(f"handshake refused: {status_line}" + (f" ({why})" if why else ""))
        self.status_line = status_line


class ConnectionLost(TransportError):  # noqa: N818
    """Say that the connection is gone, with the close code if the peer sent one.

    `clean` is true when the peer ended the connection by a closing handshake, whatever the code.
    """

    def __init__(self, why: str, *, code: int | None = None, clean: bool = False) -> None:
        super().__init__(why)
        self.code = code
        self.clean = clean


class _ProtocolViolation(Exception):  # noqa: N818
    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class Frame(NamedTuple):
    """Hold one frame as it was read."""

    opcode: int
    fin: bool
    payload: bytes


def mask(payload: bytes, key: bytes) -> bytes:
    """XOR a payload with the repeated four-byte key; applied twice it is the identity (section 5.3)."""
    size = len(payload)
    if not size:
        return b""
    pattern = (key * (size // 4 + 1))[:size]
    # One XOR of two big integers: linear in the size and without a Python loop.
    return (int.from_bytes(payload, "little") ^ int.from_bytes(pattern, "little")).to_bytes(size, "little")


def encode_frame(opcode: int, payload: bytes, *, fin: bool = True, key: bytes | None = None) -> bytes:
    """Return a masked client frame; `key` is the masking key, by default four fresh random bytes."""
    key = os.urandom(4) if key is None else key
    size = len(payload)
    first = (0x80 if fin else 0) | opcode
    if size <= _SHORT_PAYLOAD:
        head = bytes((first, 0x80 | size))
    elif size <= 0xFFFF:
        head = struct.pack("!BBH", first, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", first, 0x80 | 127, size)
    return head + key + mask(payload, key)


class FrameDecoder:
    """Cut the byte stream of a server into frames."""

    __slots__ = ("_buffer", "_limit")

    def __init__(self, limit: int = MAX_MESSAGE_BYTES) -> None:
        self._buffer = bytearray()
        self._limit = limit

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._buffer += data

    def next_frame(self) -> Frame | None:
        """Return the next complete frame, or None if more bytes are needed."""
        buffer = self._buffer
        have = len(buffer)
        if have < 2:
            return None
        first, size = buffer[0], buffer[1]
        _check_head(first, size)
        start = 2
        if size >= 126:
            start, layout = (4, "!H") if size == 126 else (10, "!Q")
            if have < start:
                return None
            (size,) = struct.unpack_from(layout, buffer, 2)
            # Checked before the payload has arrived: an announced size must not make this process buffer it.
            _check_size(size, self._limit)
        end = start + size
        if have < end:
            return None
        with memoryview(buffer) as view:
            payload = bytes(view[start:end])
        del buffer[:end]
        return Frame(first & 0x0F, bool(first & 0x80), payload)


def _check_head(first: int, second: int) -> None:
    opcode = first & 0x0F
    if first & 0x70:
        raise _ProtocolViolation(PROTOCOL_ERROR, "a reserved bit is set, but no extension was agreed")
    if opcode not in _KNOWN_OPCODES:
        raise _ProtocolViolation(PROTOCOL_ERROR, f"unknown opcode {opcode:#x}")
    if second & 0x80:
        raise _ProtocolViolation(PROTOCOL_ERROR, "a server must not mask its frames")
    if opcode >= CLOSE and (second > _SHORT_PAYLOAD or not first & 0x80):
        raise _ProtocolViolation(PROTOCOL_ERROR, "a control frame is fragmented or longer than 125 bytes")


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise _ProtocolViolation(MESSAGE_TOO_BIG, f"a message is larger than the limit of {limit} bytes")


class Connection:
    """Hold an open WebSocket connection; made by `Connection.open`.

    One greenlet or thread uses a connection at a time. Every method that talks to the peer raises `ConnectionLost`
    when the connection is gone (again on every later call) and `Timeout` when its time is over; the connection is
    still open then, and should be aborted.
    """

    __slots__ = ("_decoder", "_fragments", "_inbox", "_limit", "_loss", "_mute", "_sock")

    def __init__(self, sock: socket.socket, received: bytes = b"", *, limit: int = MAX_MESSAGE_BYTES) -> None:
        self._sock = sock
        self._limit = limit
        self._decoder = FrameDecoder(limit)
        self._decoder.feed(received)
        self._fragments: bytearray | None = None
        self._inbox: deque[str] | None = None
        # True once this side may send nothing more.
        self._mute = False
        self._loss: ConnectionLost | None = None

    @classmethod
    def open(
        cls,
        address: str,
        port: int,
        path: str,
        *,
        host: str | None = None,
        query: str = "",
        headers: Mapping[str, str] | None = None,
        timeout: float,
        limit: int = MAX_MESSAGE_BYTES,
    ) -> Connection:
        """Connect and shake hands.

        Args:
            address: Numeric address, so that no resolver is asked.
            port: TCP port.
            path: Absolute path of the endpoint, such as `/ws`.
            host: Value of the Host header without the port; by default the address.
            query: Query string without the question mark.
            headers: Further request headers.
            timeout: Seconds for everything together.
            limit: Largest message that is accepted, in bytes.

        Raises:
            Unreachable: There is no TCP connection to be had.
            HandshakeRefused: The server answered with something other than a valid upgrade.
            ConnectionLost: The server hung up before it answered.
            Timeout: It took longer than `timeout`.
            ValueError: A part of the request holds a character that HTTP does not allow there.
        """
        deadline = time.monotonic() + timeout
        key = base64.b64encode(os.urandom(16)).decode()
        request = _request(
            path + (f"?{query}" if query else ""), host_field(address, port, host), key, headers or {}
        )
        sock = open_tcp(address, port, timeout=timeout)
        try:
            head, rest = _exchange_heads(sock, request, deadline, timeout)
            _check_upgrade(head, key)
        except BaseException:
            sock.close()
            raise
        return cls(sock, rest, limit=limit)

    @property
    def lost(self) -> bool:
        """Return whether the connection is known to be gone."""
        return self._loss is not None

    @property
    def pending(self) -> bool:
        """Return whether a received message waits for `receive`; it may be the last word of a lost connection."""
        return bool(self._inbox)

    def fileno(self) -> int:
        """Return the file descriptor, for waiting until something can be read; -1 when the connection is gone."""
        return self._sock.fileno()

    def send(self, text: str, *, timeout: float) -> None:
        """Send a text message as one frame."""
        self._check()
        self._transmit(encode_frame(TEXT, text.encode()), time.monotonic() + timeout)

    def receive(self, *, timeout: float) -> str:
        """Return the next text message, answering pings until it comes."""
        deadline = time.monotonic() + timeout
        while not self._inbox:
            self._check()
            self._advance(deadline, f"no message within {timeout:g} s")
        return self._inbox.popleft()

    def idle(self, seconds: float) -> None:
        """Wait, and answer pings meanwhile; messages that arrive are kept for `receive`."""
        deadline = time.monotonic() + seconds
        self._check()
        try:
            while True:
                self._advance(deadline, "")
        except Timeout:
            return

    def attend(self) -> None:
        """Handle what has arrived, without waiting."""
        self._check()
        try:
            while True:
                self._advance(0.0, "")
        except Timeout:
            return

    def close(self, *, timeout: float) -> None:
        """Close by a closing handshake (section 7.1.2); harmless on a connection that is gone."""
        if self._loss is not None:
            return
        deadline = time.monotonic() + timeout
        self._send_close(NORMAL_CLOSURE, deadline)
        self._await_close(deadline, timeout)

    def wait_closed(self, *, timeout: float) -> None:
        """Wait until the peer closes, and complete the closing handshake; harmless on a connection that is gone."""
        if self._loss is None:
            self._await_close(time.monotonic() + timeout, timeout)

    def abort(self) -> None:
        """Drop the connection at once."""
        if self._loss is None:
            self._loss = ConnectionLost("the connection was aborted by this side")
        self._sock.close()

    def _await_close(self, deadline: float, timeout: float) -> None:
        try:
            while True:
                self._advance(deadline, f"no closing handshake within {timeout:g} s")
        except ConnectionLost as e:
            if not e.clean:
                raise

    def _check(self) -> None:
        if self._loss is not None:
            # A fresh exception each time: a kept one would grow its traceback with every raise.
            raise ConnectionLost(str(self._loss), code=self._loss.code, clean=self._loss.clean)

    def _lose(self, why: str, *, code: int | None = None, clean: bool = False) -> NoReturn:
        self._loss = ConnectionLost(why, code=code, clean=clean)
        self._sock.close()
        self._check()
        raise AssertionError

    def _transmit(self, data: bytes, deadline: float) -> None:
        try:
            self._sock.settimeout(until(deadline))
            self._sock.sendall(data)
        except TimeoutError:
            # Part of a frame may be out: nothing can follow it on this connection.
            self.abort()
            raise Timeout("the server did not take the message in time") from None
        except OSError as e:
            self._hear_last_words()
            self._lose(f"connection lost while sending: {explain(e)}")

    def _hear_last_words(self) -> None:
        """Read what came before the connection broke; raises if it says how the connection ended."""
        self._mute = True
        try:
            while True:
                self._advance(0.0, "")
        except Timeout:
            return

    def _advance(self, deadline: float, late: str) -> None:
        """Handle one frame, or else read once from the socket."""
        try:
            frame = self._decoder.next_frame()
            if frame is not None:
                self._handle(frame)
                return
        except _ProtocolViolation as e:
            self._send_close(e.code, time.monotonic() + _EOF_PATIENCE_S)
            self._lose(f"the server broke the protocol: {e}", code=e.code)
        remaining = deadline - time.monotonic()
        try:
            self._sock.settimeout(max(remaining, 0.0))
            data = self._sock.recv(_RECEIVE_BYTES)
        except (TimeoutError, BlockingIOError):
            raise Timeout(late) from None
        except OSError as e:
            self._lose(f"connection lost: {explain(e)}")
        if not data:
            self._lose("the server hung up without a closing handshake")
        self._decoder.feed(data)

    def _handle(self, frame: Frame) -> None:
        opcode = frame.opcode
        if opcode >= CLOSE:
            if opcode == CLOSE:
                self._closed_by_peer(frame.payload)
            elif opcode == PING and not self._mute:
                self._transmit(encode_frame(PONG, frame.payload), time.monotonic() + _EOF_PATIENCE_S)
            return
        if opcode == BINARY:
            raise _ProtocolViolation(UNSUPPORTED_DATA, "a binary message, where only text is spoken")
        if (opcode == CONTINUATION) != (self._fragments is not None):
            why = "a message began inside another one" if self._fragments else "a continuation of no message"
            raise _ProtocolViolation(PROTOCOL_ERROR, why)
        if self._fragments is None and frame.fin:
            self._deliver(frame.payload)
            return
        self._fragments = (self._fragments or bytearray()) + frame.payload
        _check_size(len(self._fragments), self._limit)
        if frame.fin:
            message, self._fragments = self._fragments, None
            self._deliver(message)

    def _deliver(self, payload: bytes | bytearray) -> None:
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            raise _ProtocolViolation(INVALID_TEXT, "a text message is not UTF-8") from None
        if self._inbox is None:
            self._inbox = deque()
        self._inbox.append(text)

    def _closed_by_peer(self, payload: bytes) -> None:
        if len(payload) == 1:
            raise _ProtocolViolation(PROTOCOL_ERROR, "a close frame with half a status code")
        code = int.from_bytes(payload[:2], "big") if payload else None
        try:
            reason = payload[2:].decode()
        except UnicodeDecodeError:
            raise _ProtocolViolation(INVALID_TEXT, "the reason of a close frame is not UTF-8") from None
        if not self._mute:
            self._send_close(code or NORMAL_CLOSURE, time.monotonic() + _EOF_PATIENCE_S)
        self._await_eof()
        text = (
            "the server closed the connection"
            + (f": {code}" if code else "")
            + (f" {reason}" if reason else "")
        )
        self._lose(text, code=code, clean=True)

    def _send_close(self, code: int, deadline: float) -> None:
        self._mute = True
        try:
            self._sock.settimeout(until(deadline))
            self._sock.sendall(encode_frame(CLOSE, struct.pack("!H", code)))
        except OSError:
            # The read that follows every close frame finds out how the connection ended, and says so.
            return

    def _await_eof(self) -> None:
        # The server should be the side that ends the TCP connection (section 7.1.1): the port then waits at its
        # side, and a client that opens thousands of connections does not run out of ports.
        deadline = time.monotonic() + _EOF_PATIENCE_S
        try:
            while (remaining := deadline - time.monotonic()) > 0:
                self._sock.settimeout(remaining)
                if not self._sock.recv(_RECEIVE_BYTES):
                    return
        except OSError:
            return


def _request(target: str, host: str, key: str, headers: Mapping[str, str]) -> bytes:
    lines = [
        f"GET {target} HTTP/1.1",
        f"Host: {host}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Version: 13",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    if (
        not target.startswith("/")
        or " " in target
        or not all(line.isascii() and line.isprintable() for line in lines)
    ):
        raise ValueError(
            f"cannot be asked for in HTTP: target {target!r}, host {host!r}, headers {dict(headers)!r}; "
            "use an absolute path and printable ASCII without spaces in the target"
        )
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _exchange_heads(
    sock: socket.socket, request: bytes, deadline: float, timeout: float
) -> tuple[bytes, bytes]:
    received = bytearray()
    try:
        sock.sendall(request)
        while (end := received.find(b"\r\n\r\n")) < 0:
            if len(received) > _MAX_HEAD_BYTES:
                raise HandshakeRefused("the head of the answer does not end")
            sock.settimeout(until(deadline))
            data = sock.recv(_RECEIVE_BYTES)
            if not data:
                raise ConnectionLost("the server hung up during the handshake")
            received += data
    except TimeoutError:
        raise Timeout(f"no handshake within {timeout:g} s") from None
    except OSError as e:
        raise ConnectionLost(f"connection lost during the handshake: {explain(e)}") from e
    return bytes(received[:end]), bytes(received[end + 4 :])


def _check_upgrade(head: bytes, key: str) -> None:
    status_line, *lines = head.decode("latin-1").split("\r\n")
    version, _, status = status_line.partition(" ")
    if not version.startswith("HTTP/1.1") or status.split(" ")[0] != "101":
        raise HandshakeRefused(status_line[:200])
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    expected = base64.b64encode(hashlib.sha1(key.encode() + _ACCEPT_SALT).digest()).decode()  # noqa: S324 - section 4.2.2
    if headers.get("sec-websocket-accept") != expected:
        raise HandshakeRefused(status_line, "wrong Sec-WebSocket-Accept")
    tokens = {token.strip().lower() for token in headers.get("connection", "").split(",")}
    if headers.get("upgrade", "").lower() != "websocket" or "upgrade" not in tokens:
        raise HandshakeRefused(status_line, "not an upgrade to WebSocket")
    for name in ("sec-websocket-extensions", "sec-websocket-protocol"):
        if headers.get(name):
            raise HandshakeRefused(status_line, f"{name} was not asked for")
