"""The HTTP client against the parser and the server of the standard library, and against bad peers."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import io
import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.load.http1 import (
    Connection,
    ConnectionLost,
    Pool,
    ProtocolViolation,
    ResponseDecoder,
    encode_request,
)
from bench.load.plan import Endpoint
from bench.load.tcp import Timeout, TransportError, Unreachable
from bench.load.wire import Response

PATIENCE = 10.0


class Request(NamedTuple):
    method: str = "GET"
    path: str = "/"
    headers: Mapping[str, str] = MappingProxyType({})
    body: bytes | None = None


class Paper:
    """What the other implementation takes for a socket."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def makefile(self, *_: object) -> io.BytesIO:
        return io.BytesIO(self.data)


def read_by_peer(data: bytes, method: str) -> tuple[int, dict[str, str], bytes]:
    """Parse one response with the other implementation."""
    response = http.client.HTTPResponse(Paper(data), method=method)  # type: ignore[arg-type]
    response.begin()
    body = response.read()
    return response.status, {name.lower(): value for name, value in response.getheaders()}, body


def decode(data: bytes, cuts: list[int], method: str = "GET", last_events: tuple[str, ...] = ()) -> Response:
    decoder = ResponseDecoder(method, last_events)
    starts = list(itertools.accumulate([0, *cuts]))
    for start, end in zip(starts, [*starts[1:], len(data)], strict=True):
        if data[start:end] and decoder.response is None:
            decoder.feed(data[start:end])
    if decoder.response is None:
        decoder.end()
    assert decoder.response is not None
    return decoder.response


def chunked(parts: list[bytes]) -> bytes:
    whole = b"".join(b"%x;note=1\r\n%s\r\n" % (len(part), part) for part in parts if part)
    return whole + b"0\r\nTrailer: yes\r\n\r\n"


names = st.sampled_from(["X-One", "content-type", "Server", "x-two"])
values = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=10)


@given(
    method=st.sampled_from(["GET", "POST", "HEAD"]),
    status=st.sampled_from([200, 204, 304, 404, 422, 503]),
    fields=st.dictionaries(names, values, max_size=3),
    parts=st.lists(st.binary(max_size=200), max_size=4),
    framing=st.sampled_from(["length", "chunked", "close"]),
    interim=st.booleans(),
    cuts=st.lists(st.integers(1, 60), max_size=8),
)
@settings(deadline=None)
def test_responses_are_read_as_another_implementation_reads_them_however_the_stream_is_cut(
    *,
    method: str,
    status: int,
    fields: dict[str, str],
    parts: list[bytes],
    framing: str,
    interim: bool,
    cuts: list[int],
) -> None:
    head = f"HTTP/1.1 {status} Some Reason\r\n" + "".join(f"{n}: {v}\r\n" for n, v in fields.items())
    body = b"".join(parts)
    if method == "HEAD" or status in {204, 304}:
        data = head.encode() + b"\r\n"
    elif framing == "length":
        data = head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body
    elif framing == "chunked":
        data = head.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(parts)
    else:
        data = head.encode() + b"\r\n" + body
    data = (b"HTTP/1.1 100 Continue\r\n\r\n" if interim else b"") + data
    response = decode(data, cuts, method)
    assert (response.status, dict(response.headers), response.body) == read_by_peer(data, method)


def test_cookies_and_repeated_fields_are_kept_apart_and_together() -> None:
    fields = (
        "Set-Cookie: Server___wordle=eyJz.aX-1_q=; Path=/; HttpOnly",
        "set-cookie: other=2",
        "Via: a",
        "via: b",
    )
    head = "\r\n".join(("HTTP/1.1 200 OK", *fields, "Content-Length: 0", "", ""))
    response = decode(head.encode(), [])
    assert response.cookies == {"Server___wordle": "eyJz.aX-1_q=", "other": "2"}
    assert response.headers == {"via": "a, b", "content-length": "0"}


EVENTS = (
    b": event: end\r\n\r\n",
    b"event: task_id\r\ndata: 1\r\n\r\n",
    b"data: event: end\n\n",
    b"event: chunk\rdata: {}\r\r",
    b"data: {}\n\n",
    b"event: ending\r\n\r\n",
)


@given(
    before=st.lists(st.sampled_from(EVENTS), max_size=5),
    after=st.lists(st.sampled_from(EVENTS), max_size=2),
    last=st.sampled_from(
        [b"event: end\r\ndata: {}\r\n\r\n", b"event:end\ndata:\n\n", b"data: 1\revent: error\r\r"]
    ),
    cuts=st.lists(st.integers(1, 30), max_size=8),
    in_chunks=st.booleans(),
)
@settings(deadline=None)
def test_a_stream_is_complete_with_its_last_event(
    *, before: list[bytes], after: list[bytes], last: bytes, cuts: list[int], in_chunks: bool
) -> None:
    """Also when it is not over: whatever follows is not waited for, and does not belong to the answer."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    whole = b"".join([*before, last, *(after or [b": x\n"])])
    coded = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(whole), whole)
    data = head + (coded if in_chunks else b"\r\n" + whole)
    assert decode(data, cuts, last_events=("end", "error")).body == b"".join([*before, last])


def test_names_of_events_mean_nothing_outside_an_event_stream() -> None:
    body = b"event: end\r\n\r\nand so on"
    data = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    assert decode(data, [60], last_events=("end",)).body == body


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"220 mail.example ready\r\n\r\n", "the answer is not HTTP/1.1: '220 mail"),
        (b"HTTP/2 200\r\n\r\n", "is not HTTP/1.1"),
        (b"x" * 70_000, "the head of the answer does not end"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "switches protocols"),
        (b"HTTP/1.1 200 OK\r\nno field\r\n\r\n", "this is no header field: 'no field'"),
        (b"HTTP/1.1 200 OK\r\nA: 1\r\n folded\r\n\r\n", "this is no header field"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\n", "the content length '5, 6'"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "the content length '-1'"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n", "larger than the limit of 1000 bytes"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001, "larger than the limit"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "the transfer coding 'gzip'"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\n", "the chunk size b'0x1'"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", "longer than its size"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 9000,
            "between the chunks does not end",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n" + b"a" * 1000 + b"\r\n1\r\na",
            "larger than",
        ),
    ],
)
def test_what_is_no_http_is_named(data: bytes, why: str) -> None:
    decoder = ResponseDecoder("GET", limit=1000)
    with pytest.raises(ProtocolViolation) as violation:
        decoder.feed(data)
    assert why in str(violation.value)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "the server hung up before it answered"),
        (b"HTTP/1.1 200", "the server hung up in the middle of the head"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n1234",
            "the server hung up in the middle of the answer",
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n", "in the middle of the answer"),
    ],
)
def test_an_answer_that_is_cut_off_is_a_loss(data: bytes, why: str) -> None:
    decoder = ResponseDecoder("GET")
    decoder.feed(data)
    with pytest.raises(ConnectionLost, match=why):
        decoder.end()


@pytest.mark.parametrize(
    ("head", "after", "stays"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", b"", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", b"", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: Keep-Alive\r\n\r\n", b"", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 200 OK\r\n", False),
    ],
)
def test_a_connection_is_used_again_only_where_the_server_allows_it(
    head: bytes, after: bytes, stays: bool
) -> None:
    decoder = ResponseDecoder("GET")
    decoder.feed(head + after)
    assert decoder.is_whole
    assert decoder.keeps_alive == stays


@pytest.mark.parametrize(
    "request_",
    [
        Request(path="tools"),
        Request(path="/a b"),
        Request(path="/a\r\nX: 1"),
        Request(path="/ß"),
        Request(method="GET /"),
        Request(headers={"X": "1\r\nY: 2"}),
        Request(headers={"X": "1\n"}),
        Request(headers={"X Y": "1"}),
        Request(headers={"X": "☕"}),
    ],
)
def test_a_request_that_http_forbids_is_not_written(request_: Request) -> None:
    with pytest.raises(ValueError, match="cannot be asked for in HTTP"):
        encode_request(request_, "127.0.0.1:80")


class Echo(http.server.BaseHTTPRequestHandler):
    """Answer with what was asked."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length")
        asked = {
            "method": self.command,
            "path": self.path,
            "headers": dict(self.headers),
            "body": self.rfile.read(int(length)).decode() if length else None,
            "peer": self.client_address[1],
        }
        content = json.dumps(asked).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_DELETE = do_POST  # noqa: N815 - the names that the library looks for

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's own name
        pass


@pytest.fixture(scope="module")
def echo() -> Iterator[int]:
    """Run the other implementation's server in threads; yields its port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        server.block_on_close = False
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def connect(port: int, **options: Any) -> Iterator[Connection]:
    connection = Connection.open("127.0.0.1", port, timeout=PATIENCE, **options)
    try:
        yield connection
    finally:
        connection.abort()


def ask(connection: Connection, request: Request, **options: Any) -> Any:
    return json.loads(connection.ask(request, timeout=PATIENCE, **options).body)


@given(
    method=st.sampled_from(["GET", "POST", "DELETE"]),
    path=st.sampled_from(["/", "/guess", "/a%20b?c=1&d=%C3%A9"]),
    headers=st.dictionaries(st.sampled_from(["X-Session-ID", "Cookie", "Accept"]), values, max_size=3),
    body=st.none() | st.text(max_size=300),
)
@settings(deadline=None, max_examples=30)
def test_another_implementation_reads_every_request_that_is_written(
    echo: int, method: str, path: str, headers: dict[str, str], body: str | None
) -> None:
    content = None if body is None else body.encode("utf-8", "replace")
    with connect(echo, host="envs.example") as connection:
        asked = ask(connection, Request(method, path, headers, content))
    length = {} if content is None and method != "POST" else {"Content-Length": str(len(content or b""))}
    assert asked["headers"] == {"Host": f"envs.example:{echo}", **headers, **length}
    assert (asked["method"], asked["path"]) == (method, path)
    assert (asked["body"] or "").encode() == (content or b"")


def test_requests_follow_each_other_on_one_connection(echo: int) -> None:
    with connect(echo) as connection:
        ports = set()
        for number in range(3):
            asked = ask(connection, Request("POST", "/", body=b"x" * number * 100_000))
            ports.add(asked["peer"])
            assert len(asked["body"]) == number * 100_000
            assert connection.is_ready()
        assert len(ports) == 1


@contextlib.contextmanager
def raw_peer(talk: Callable[[socket.socket], object], connections: int = 1) -> Iterator[int]:
    """Run a TCP peer that talks as it is told to on each of so many connections, one after the other."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            for _ in range(connections):
                connection, _ = listener.accept()
                with connection:
                    talk(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def hear(connection: socket.socket) -> bytes:
    heard = b""
    while b"\r\n\r\n" not in heard and (data := connection.recv(65536)):
        heard += data
    return heard


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"17\r\nevent: end\r\ndata: 1\r\n\r\n\r\n"


def test_a_stream_that_stays_open_is_answered_and_its_connection_not_used_again() -> None:
    over = threading.Event()

    def talk(connection: socket.socket) -> None:
        hear(connection)
        connection.sendall(STREAM + END)
        over.wait(PATIENCE)

    with raw_peer(talk) as port, connect(port) as connection:
        response = connection.ask(Request(), timeout=PATIENCE, last_events={"end"})
        assert response.body == b"event: end\r\ndata: 1\r\n\r\n"
        connection.settle()
        assert not connection.is_ready()
        over.set()


def test_a_stream_that_ends_after_its_last_event_leaves_its_connection_ready() -> None:
    asked = threading.Event()

    def talk(connection: socket.socket) -> None:
        hear(connection)
        connection.sendall(STREAM + END)
        asked.wait(PATIENCE)
        connection.sendall(b"0\r\n\r\n")
        hear(connection)
        connection.sendall(OK)
        hear(connection)

    with raw_peer(talk) as port, connect(port) as connection:
        connection.ask(Request(), timeout=PATIENCE, last_events={"end"})
        assert not connection.is_ready()
        asked.set()
        for _ in range(50):
            connection.settle()
        assert connection.is_ready()
        assert connection.ask(Request(), timeout=PATIENCE).body == b"{}"


def test_a_peer_that_does_not_answer_is_a_timeout() -> None:
    over = threading.Event()
    with raw_peer(lambda _: bool(over.wait(PATIENCE))) as port, connect(port) as connection:
        with pytest.raises(Timeout, match=r"no answer within 0\.05 s"):
            connection.ask(Request(), timeout=0.05)
        over.set()


def test_a_peer_that_answers_forever_is_a_timeout() -> None:
    """The patience is for the whole answer, not for each of its pieces."""
    over = threading.Event()

    def talk(connection: socket.socket) -> None:
        hear(connection)
        connection.sendall(STREAM)
        with contextlib.suppress(OSError):
            while not over.is_set():
                connection.sendall(b"7\r\n: ping\n\r\n")

    with raw_peer(talk) as port, connect(port) as connection:
        with pytest.raises(Timeout, match=r"no answer within 0\.3 s"):
            connection.ask(Request(), timeout=0.3, last_events={"end"})
        over.set()


def test_last_words_are_heard_when_sending_finds_the_connection_broken() -> None:
    refusal = b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"

    def talk(connection: socket.socket) -> None:
        connection.sendall(refusal)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass

    with raw_peer(talk) as port, connect(port) as connection:
        assert connection.ask(Request("POST", body=b"x" * 5_000_000), timeout=PATIENCE).status == 413
        assert not connection.is_ready()


def test_a_peer_that_resets_the_connection_is_a_loss() -> None:
    def talk(connection: socket.socket) -> None:
        hear(connection)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with (
        raw_peer(talk) as port,
        connect(port) as connection,
        pytest.raises(ConnectionLost, match="connection lost: Connection reset by peer"),
    ):
        connection.ask(Request(), timeout=PATIENCE)


def test_nobody_listening_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Unreachable, match="no TCP connection: Connection refused"):
        Connection.open("127.0.0.1", port, timeout=PATIENCE)


def test_a_pool_hands_out_the_connection_used_last_and_replaces_those_that_were_closed() -> None:
    served: list[int] = []

    def talk(connection: socket.socket) -> None:
        served.append(1)
        hear(connection)
        connection.sendall(OK)

    def dial(endpoint: Endpoint, timeout: float) -> Connection:
        connection = Connection.open(*endpoint, timeout=timeout)
        dialed.append(connection)
        return connection

    dialed: list[Connection] = []
    with raw_peer(talk, connections=2) as port:
        pool, endpoint = Pool(dial), Endpoint("127.0.0.1", port)
        first = pool.take(endpoint, timeout=PATIENCE)
        pool.give(first, endpoint)
        assert pool.take(endpoint, timeout=PATIENCE) is first
        assert first.ask(Request(), timeout=PATIENCE).body == b"{}"
        pool.give(first, endpoint)
        while first.is_ready():
            pass
        second = pool.take(endpoint, timeout=PATIENCE)
        assert dialed == [first, second]
        assert second.ask(Request(), timeout=PATIENCE).status == 200
        pool.give(second, endpoint)
        pool.close()
        with pytest.raises(TransportError):
            second.ask(Request(), timeout=PATIENCE)
