"""Speak HTTP/1.1 (RFC 9112) as a client, on one plain blocking socket and at the least cost per request.

A load generator holds thousands of these in one process, so a connection is a socket and a name. It is kept alive from
request to request, redirects are not followed, and nothing is cached or compressed. Event streams (`text/event-stream`)
are read as they come, until the event that ends them. Under gevent the socket is the patched one and blocking means
yielding. Section numbers in the comments are those of RFC 9112.
"""

from __future__ import annotations

import contextlib
import re
import time
from typing import TYPE_CHECKING, Final

from bench.load.tcp import Timeout, TransportError, explain, host_field, open_tcp
from bench.load.wire import Response

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Collection

    from bench.load.plan import Endpoint
    from bench.load.wire import Request

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""Default limit of one response."""

_MAX_HEAD_BYTES: Final = 65536
_MAX_LINE_BYTES: Final = 8192
_RECEIVE_BYTES: Final = 65536
_STREAM_END_PATIENCE_S: Final = 0.1
_STATUS_LINE: Final = re.compile(r"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: .*)?")
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;.*)?", re.DOTALL)
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_EVENT_STREAM: Final = "text/event-stream"
_SWITCHING_PROTOCOLS: Final = 101
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_WITHOUT_BODY: Final = frozenset({204, 304})


class ConnectionLost(TransportError):  # noqa: N818 - what happened, read as a sentence
    """Say that the connection broke before the response was complete."""


class ProtocolViolation(TransportError):  # noqa: N818
    """Say what the server sent that is not HTTP/1.1."""


def encode_request(request: Request, host: str) -> bytes:
    """Return a request as it is sent, with `Host`, and with `Content-Length` if it may have a body.

    Raises:
        ValueError: A part of it holds a character that HTTP does not allow there.
    """
    body = request.body
    lines = [f"{request.method} {request.path} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    if body is not None or request.method in _WITH_BODY:
        lines.append(f"Content-Length: {len(body or b'')}")
    head = "\r\n".join(lines)
    breaks = len(lines) - 1
    if (
        not request.path.startswith("/")
        or " " in request.path
        or not head.isascii()
        or head.count("\n") != breaks
        or head.count("\r") != breaks
        or not _TOKEN.fullmatch(request.method)
        or not all(map(_TOKEN.fullmatch, request.headers))
    ):
        raise ValueError(
            f"cannot be asked for in HTTP: {request.method!r} {request.path!r}, host {host!r}, "
            f"headers {dict(request.headers)!r}; use an absolute, quoted path and printable ASCII"
        )
    return f"{head}\r\n\r\n".encode("ascii") + (body or b"")


class ResponseDecoder:
    """Read one response from the byte stream of a server, however the stream is cut.

    Args:
        method: Method of the request; a response to HEAD has no body.
        last_events: Names of the server-sent events that complete an event stream.
        limit: Largest body that is accepted, in bytes.
    """

    __slots__ = (
        "_body",
        "_buffer",
        "_cookies",
        "_event",
        "_headers",
        "_last_events",
        "_left",
        "_limit",
        "_method",
        "_read",
        "_scanned",
        "_status",
        "is_whole",
        "keeps_alive",
        "response",
    )

    def __init__(
        self, method: str, last_events: Collection[str] = (), *, limit: int = MAX_BODY_BYTES
    ) -> None:
        self.response: Response | None = None
        """The response as soon as it is complete, be it by the event that ends its stream."""
        self.is_whole = False
        """Whether the response has been read to its last byte."""
        self.keeps_alive = False
        """Whether the server takes another request on this connection after the last byte."""
        self._method = method
        self._last_events = last_events
        self._limit = limit
        self._buffer = bytearray()
        self._body = bytearray()
        self._status = 0
        self._headers: dict[str, str] = {}
        self._cookies: dict[str, str] = {}
        self._left = 0
        self._scanned = 0
        self._event = ""
        self._read: Callable[[], bool] = self._read_head

    def feed(self, data: bytes) -> None:
        """Add received bytes.

        Raises:
            ProtocolViolation: They are not HTTP/1.1, or too many.
        """
        self._buffer += data
        while not self.is_whole and self._read():
            pass
        if self.is_whole and self._buffer:
            # Nobody asked for it; whatever it is, it must not be taken for the next answer.
            self.keeps_alive = False

    def end(self) -> None:
        """Note that the server has closed the connection.

        Raises:
            ConnectionLost: The response is not complete.
        """
        if self.response is not None:
            self.keeps_alive = False
        elif self._read == self._read_until_close:
            self._finish()
        elif self._read == self._read_head:
            what = "in the middle of the head" if self._buffer else "before it answered"
            raise ConnectionLost(f"the server hung up {what}")
        else:
            raise ConnectionLost("the server hung up in the middle of the answer")

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _MAX_HEAD_BYTES:
                raise ProtocolViolation("the head of the answer does not end")
            return False
        status_line, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        match = _STATUS_LINE.fullmatch(status_line)
        if match is None:
            raise ProtocolViolation(f"the answer is not HTTP/1.1: {status_line[:80]!r}")
        status = int(match[2])
        if status == _SWITCHING_PROTOCOLS:
            raise ProtocolViolation("the server switches protocols, which was not asked for")
        if status < 200:
            # An interim response, such as 100; the final one follows (RFC 9110, section 15.2).
            return True
        self._status = status
        self._read_fields(lines)
        tokens = self._headers.get("connection", "").lower()
        self.keeps_alive = "close" not in tokens if match[1] == "1" else "keep-alive" in tokens
        self._read = self._body_reader()
        return True

    def _read_fields(self, lines: list[str]) -> None:
        headers = self._headers
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or not _TOKEN.fullmatch(name):
                raise ProtocolViolation(f"this is no header field: {line[:80]!r}")
            name, value = name.lower(), value.strip(" \t")
            if name == "set-cookie":
                cookie, _, content = value.partition(";")[0].partition("=")
                self._cookies[cookie.strip()] = content.strip()
            else:
                headers[name] = f"{headers[name]}, {value}" if name in headers else value

    def _body_reader(self) -> Callable[[], bool]:
        """Return what reads the body; the order of the cases is that of section 6.3."""
        headers = self._headers
        if self._method == "HEAD" or self._status in _WITHOUT_BODY:
            self._left = 0
            return self._read_counted
        coding = headers.get("transfer-encoding")
        if coding is not None:
            if coding.lower() != "chunked":
                raise ProtocolViolation(f"the transfer coding {coding[:80]!r}, which was not asked for")
            return self._read_chunk_size
        length = headers.get("content-length")
        if length is None:
            self.keeps_alive = False
            return self._read_until_close
        # The same length may be said several times.
        lengths = {part.strip() for part in length.split(",")}
        text = lengths.pop()
        if lengths or not (text.isascii() and text.isdigit()):
            raise ProtocolViolation(f"the content length {length[:80]!r}")
        self._left = int(text)
        self._check_size(self._left)
        return self._read_counted

    def _read_counted(self) -> bool:
        self._take(self._left)
        if self._left == 0:
            self._finish()
        return False

    def _read_until_close(self) -> bool:
        self._take(len(self._buffer))
        return False

    def _read_chunk_size(self) -> bool:
        line = self._line()
        if line is None:
            return False
        match = _CHUNK_SIZE.fullmatch(line)
        if match is None:
            raise ProtocolViolation(f"the chunk size {line[:40]!r}")
        self._left = int(match[1], 16)
        self._read = self._read_chunk if self._left else self._read_trailer
        return True

    def _read_chunk(self) -> bool:
        self._take(self._left)
        if self._left:
            return False
        if len(self._buffer) < 2:
            return False
        if self._buffer[:2] != b"\r\n":
            raise ProtocolViolation("a chunk is longer than its size")
        del self._buffer[:2]
        self._read = self._read_chunk_size
        return True

    def _read_trailer(self) -> bool:
        line = self._line()
        if line is None:
            return False
        if not line:
            self._finish()
        return True

    def _line(self) -> bytes | None:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            if len(self._buffer) > _MAX_LINE_BYTES:
                raise ProtocolViolation("a line between the chunks does not end")
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _take(self, size: int) -> None:
        """Move up to `size` bytes to the body, and count those that are left of them."""
        part = self._buffer[:size]
        if part:
            del self._buffer[:size]
            self._body += part
            self._left = size - len(part)
            self._check_size(len(self._body))
            if self._last_events and self.response is None:
                self._look_for_last_event()

    def _check_size(self, size: int) -> None:
        if size > self._limit:
            raise ProtocolViolation(f"the answer is larger than the limit of {self._limit} bytes")

    def _look_for_last_event(self) -> None:
        """Complete the response when an event of the stream says that it is the last one."""
        if not self._headers.get("content-type", "").startswith(_EVENT_STREAM):
            self._last_events = ()
            return
        body = self._body
        while (match := _LINE_END.search(body, self._scanned)) is not None:
            if match[0] == b"\r" and match.end() == len(body):
                # The other half of the line's end may be on its way.
                return
            line = bytes(body[self._scanned : match.start()])
            self._scanned = match.end()
            field, _, value = line.partition(b":")
            if field == b"event":
                self._event = value.removeprefix(b" ").decode("utf-8", "replace")
            elif not line:
                if self._event in self._last_events:
                    self._complete(bytes(body[: self._scanned]))
                    return
                self._event = ""

    def _complete(self, body: bytes) -> None:
        self.response = Response(self._status, self._headers, self._cookies, body)

    def _finish(self) -> None:
        self.is_whole = True
        if self.response is None:
            self._complete(bytes(self._body))


class Connection:
    """Hold a TCP connection on which requests are answered one after the other; made by `Connection.open`."""

    __slots__ = ("_decoder", "_host", "_limit", "_sock")

    def __init__(self, sock: socket.socket, host: str, *, limit: int = MAX_BODY_BYTES) -> None:
        self._sock = sock
        self._host = host
        self._limit = limit
        self._decoder: ResponseDecoder | None = None

    @classmethod
    def open(
        cls,
        address: str,
        port: int,
        *,
        host: str | None = None,
        timeout: float,
        limit: int = MAX_BODY_BYTES,
    ) -> Connection:
        """Connect.

        Args:
            address: Numeric address, so that no resolver is asked.
            port: TCP port.
            host: Value of the Host header without the port; by default the address.
            timeout: Seconds.
            limit: Largest body that is accepted, in bytes.

        Raises:
            Unreachable: There is no TCP connection to be had.
            Timeout: It took longer than `timeout`.
        """
        return cls(open_tcp(address, port, timeout=timeout), host_field(address, port, host), limit=limit)

    def is_ready(self) -> bool:
        """Return whether another request can be sent: the last answer is read and the server has not hung up."""
        decoder = self._decoder
        if decoder is not None and not (decoder.is_whole and decoder.keeps_alive):
            return False
        try:
            self._sock.settimeout(0.0)
            self._sock.recv(1)
        except (BlockingIOError, TimeoutError):
            return True
        except OSError:
            return False
        # The server has hung up, or says something that nobody asked for.
        return False

    def settle(self) -> None:
        """Read on to the end of a stream whose last event has come; it should follow at once.

        When it does not, the connection is not ready for another request.
        """
        decoder = self._decoder
        deadline = time.monotonic() + _STREAM_END_PATIENCE_S
        with contextlib.suppress(OSError, TransportError):
            while decoder is not None and not decoder.is_whole:
                self._sock.settimeout(_left(deadline))
                self._receive(decoder)

    def ask(self, request: Request, *, timeout: float, last_events: Collection[str] = ()) -> Response:
        """Send a request and return its complete response. After any failure the connection must be aborted.

        Args:
            request: What is asked.
            timeout: Seconds for everything together.
            last_events: Names of the server-sent events that complete an event stream.

        Raises:
            ConnectionLost: The connection broke, or the server hung up.
            ProtocolViolation: The answer is not HTTP/1.1.
            Timeout: It took longer than `timeout`.
            ValueError: The request holds a character that HTTP does not allow there.
        """
        deadline = time.monotonic() + timeout
        data = encode_request(request, self._host)
        decoder = self._decoder = ResponseDecoder(request.method, last_events, limit=self._limit)
        sock = self._sock
        try:
            sock.settimeout(timeout)
            try:
                sock.sendall(data)
            except TimeoutError:
                raise
            except OSError as e:
                # A server that hangs up before it has read everything may have said why.
                self._hear_last_words(decoder, deadline)
                if decoder.response is None:
                    raise ConnectionLost(f"connection lost while sending: {explain(e)}") from e
            while decoder.response is None:
                sock.settimeout(_left(deadline))
                self._receive(decoder)
        except TimeoutError:
            raise Timeout(f"no answer within {timeout:g} s") from None
        except OSError as e:
            raise ConnectionLost(f"connection lost: {explain(e)}") from e
        return decoder.response

    def abort(self) -> None:
        """Close the TCP connection at once."""
        self._sock.close()

    def _receive(self, decoder: ResponseDecoder) -> None:
        data = self._sock.recv(_RECEIVE_BYTES)
        if data:
            decoder.feed(data)
        else:
            decoder.end()
            if not decoder.is_whole:
                raise ConnectionLost("the server hung up after the answer")

    def _hear_last_words(self, decoder: ResponseDecoder, deadline: float) -> None:
        try:
            while decoder.response is None:
                self._sock.settimeout(_left(deadline))
                self._receive(decoder)
        except (OSError, TransportError):
            return


def _left(deadline: float) -> float:
    """Return the seconds that are left; raises TimeoutError when none are, however busily the server is sending."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class Pool:
    """Keep connections alive between requests, the one that was used last on top.

    Args:
        dial: Opens another connection to a numeric address and a port, within a timeout in seconds.
    """

    def __init__(self, dial: Callable[[Endpoint, float], Connection]) -> None:
        self._dial = dial
        self._idle: dict[Endpoint, list[Connection]] = {}

    def take(self, endpoint: Endpoint, *, timeout: float) -> Connection:
        """Return a connection that is ready for a request; whoever takes it gives it back or aborts it.

        Raises:
            Unreachable: There is no TCP connection to be had.
            Timeout: It took longer than `timeout`, in seconds.
        """
        idle = self._idle.get(endpoint)
        while idle:
            connection = idle.pop()
            if connection.is_ready():
                return connection
            connection.abort()
        return self._dial(endpoint, timeout)

    def give(self, connection: Connection, endpoint: Endpoint) -> None:
        """Put a connection back whose answer is complete."""
        self._idle.setdefault(endpoint, []).append(connection)

    def close(self) -> None:
        """Close the connections that are idle."""
        for idle in self._idle.values():
            while idle:
                idle.pop().abort()
