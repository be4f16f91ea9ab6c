"""The WebSocket client against the frames and the server of an independent implementation, and against bad peers."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
import websockets.frames as peer
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed
from websockets.streams import StreamReader
from websockets.sync.server import ServerConnection, serve

from bench.load.tcp import Timeout, Unreachable
from bench.load.websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    Connection,
    ConnectionLost,
    Frame,
    FrameDecoder,
    HandshakeRefused,
    encode_frame,
    mask,
)

EDGES = (0, 1, 2, 3, 4, 5, 124, 125, 126, 127, 65534, 65535, 65536, 65537, 1 << 20)
PATIENCE = 10.0

payloads = st.binary(max_size=300) | st.sampled_from(EDGES).map(lambda size: b"\xc3\xa9"[:1] * size)
keys = st.binary(min_size=4, max_size=4)


def read_by_peer(data: bytes) -> peer.Frame:
    """Parse one masked frame with the other implementation."""
    stream = StreamReader()
    stream.feed_data(data)
    parsing = peer.Frame.parse(stream.read_exact, mask=True)
    with pytest.raises(StopIteration) as done:
        next(parsing)
    assert not stream.buffer
    frame: peer.Frame = done.value.value
    return frame


@given(st.binary(max_size=70), keys)
def test_masking_is_what_the_standard_says_byte_by_byte(payload: bytes, key: bytes) -> None:
    assert mask(payload, key) == bytes(byte ^ key[i % 4] for i, byte in enumerate(payload))


@given(st.sampled_from([TEXT, BINARY, CONTINUATION]), payloads, st.booleans(), keys)
@settings(deadline=None)
def test_another_implementation_reads_every_frame_that_is_written(
    opcode: int, payload: bytes, fin: bool, key: bytes
) -> None:
    frame = read_by_peer(encode_frame(opcode, payload, fin=fin, key=key))
    assert (frame.opcode, frame.fin, frame.data) == (opcode, fin, payload)


def test_masking_keys_are_fresh() -> None:
    assert len({encode_frame(TEXT, b"same") for _ in range(20)}) == 20


@given(
    st.lists(st.tuples(st.sampled_from([TEXT, BINARY, CONTINUATION]), payloads, st.booleans()), max_size=4),
    st.lists(st.integers(1, 200), min_size=1, max_size=5),
)
@settings(deadline=None, max_examples=50)
def test_frames_of_another_implementation_are_read_however_the_stream_is_cut(
    frames: list[tuple[int, bytes, bool]], cuts: list[int]
) -> None:
    stream = b"".join(
        peer.Frame(peer.Opcode(op), data, fin).serialize(mask=False) for op, data, fin in frames
    )
    decoder, read = FrameDecoder(), []
    # After the first small pieces the rest comes at once, so that a megabyte is not cut into bytes.
    starts = list(itertools.accumulate([0, *cuts]))
    for start, end in zip(starts, [*starts[1:], len(stream)], strict=True):
        decoder.feed(stream[start:end])
        while (frame := decoder.next_frame()) is not None:
            read.append(frame)
    assert read == [Frame(opcode, fin, data) for opcode, data, fin in frames]


@contextlib.contextmanager
def server(handler: Callable[[ServerConnection], None], **options: object) -> Iterator[int]:
    """Run the other implementation's server in a thread; yields its port."""
    with serve(handler, "127.0.0.1", 0, compression=None, **options) as running:  # type: ignore[arg-type]
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            yield running.socket.getsockname()[1]
        finally:
            running.shutdown()
            thread.join()


@contextlib.contextmanager
def raw_peer(
    *answers: bytes, upgrade: bool = True, hang_up: bool = True
) -> Iterator[tuple[int, list[bytes]]]:
    """Run a TCP peer that shakes hands, sends fixed bytes, and keeps what it receives after that."""
    received: list[bytes] = []
    over = threading.Event()

    def talk() -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                head = b""
                while b"\r\n\r\n" not in head:
                    head += connection.recv(65536)
                if upgrade:
                    key = next(
                        line for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key")
                    )
                    connection.sendall(accepting(key.split(b":")[1].strip()))
                for answer in answers:
                    connection.sendall(answer)
                connection.settimeout(0.3 if hang_up else PATIENCE)
                with contextlib.suppress(TimeoutError):
                    while data := connection.recv(65536):
                        received.append(data)
                if not hang_up:
                    over.wait(PATIENCE)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=talk)
        thread.start()
        try:
            yield listener.getsockname()[1], received
        finally:
            over.set()
            thread.join()


def accepting(key: bytes) -> bytes:
    from websockets.utils import accept_key

    accept = accept_key(key.decode())
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\n\r\n"
    ).encode()


def of_server(opcode: int, data: bytes, *, fin: bool = True) -> bytes:
    return peer.Frame(peer.Opcode(opcode), data, fin).serialize(mask=False)


@contextlib.contextmanager
def connect(port: int, **options: object) -> Iterator[Connection]:
    connection = Connection.open("127.0.0.1", port, "/ws", timeout=PATIENCE, **options)  # type: ignore[arg-type]
    try:
        yield connection
    finally:
        connection.abort()


def echo(connection: ServerConnection) -> None:
    with contextlib.suppress(ConnectionClosed):
        for message in connection:
            connection.send(message)


@pytest.mark.parametrize("size", EDGES)
def test_messages_of_every_length_form_come_back_whole(size: int) -> None:
    with server(echo, max_size=None) as port, connect(port) as connection:
        text = ("grün☕" * (size // 5 + 1))[:size]
        connection.send(text, timeout=PATIENCE)
        assert connection.receive(timeout=PATIENCE) == text
        connection.close(timeout=PATIENCE)


@given(st.lists(st.text(max_size=40), min_size=1, max_size=5))
@settings(deadline=None, max_examples=20)
def test_any_text_comes_back_in_order(texts: list[str]) -> None:
    with server(echo) as port, connect(port) as connection:
        for text in texts:
            connection.send(text, timeout=PATIENCE)
        assert [connection.receive(timeout=PATIENCE) for _ in texts] == texts


def test_a_fragmented_message_is_put_together_around_a_ping() -> None:
    word = "Straße☕".encode()
    frames = (
        of_server(TEXT, word[:6], fin=False),
        of_server(PING, b"mind"),
        of_server(CONTINUATION, b"", fin=False),
        of_server(CONTINUATION, word[6:]),
    )
    with raw_peer(*frames) as (port, received), connect(port) as connection:
        assert connection.receive(timeout=PATIENCE) == "Straße☕"
    pong = read_by_peer(b"".join(received))
    assert (pong.opcode, pong.data) == (PONG, b"mind")


def test_the_request_names_host_path_query_and_headers() -> None:
    seen: dict[str, str] = {}

    def look(connection: ServerConnection) -> None:
        assert connection.request is not None
        seen.update(connection.request.headers.raw_items(), path=connection.request.path)

    with server(look) as port:
        with connect(port, host="envs.example", query="a=1", headers={"X-Session": "7"}) as connection:
            connection.wait_closed(timeout=PATIENCE)
        assert seen["Host"] == f"envs.example:{port}"
        assert seen["path"] == "/ws?a=1"
        assert seen["X-Session"] == "7"
        assert "Sec-WebSocket-Extensions" not in seen


@pytest.mark.parametrize("target", ["ws", "/w s", "/ws\r\nX: 1", "/wß"])
def test_a_target_that_http_forbids_is_not_sent(target: str) -> None:
    with pytest.raises(ValueError, match="cannot be asked for in HTTP"):
        Connection.open("127.0.0.1", 9, target, timeout=1)


def test_pings_are_answered_while_nothing_is_asked() -> None:
    answered = threading.Event()

    def ping(connection: ServerConnection) -> None:
        if connection.ping().wait(PATIENCE):
            answered.set()
        connection.send("after the ping")

    with server(ping, ping_interval=None) as port, connect(port) as connection:
        # The server closes when it has got its pong and has said so.
        with pytest.raises(ConnectionLost):
            connection.idle(PATIENCE)
        assert answered.is_set()
        assert connection.receive(timeout=PATIENCE) == "after the ping"


def test_attending_never_waits_and_answers_what_is_there() -> None:
    with server(echo) as port, connect(port) as connection:
        connection.attend()
        assert not connection.pending


def test_closing_is_a_handshake_and_twice_is_harmless() -> None:
    codes = []

    def wait(connection: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            connection.recv()
        codes.append(connection.close_code)

    with server(wait) as port, connect(port) as connection:
        connection.close(timeout=PATIENCE)
        connection.close(timeout=PATIENCE)
        assert connection.lost
    assert codes == [1000]


def test_what_the_peer_says_when_it_closes_is_told_on_every_later_call() -> None:
    def refuse(connection: ServerConnection) -> None:
        connection.close(4001, "no room")

    with server(refuse) as port, connect(port) as connection:
        for _ in range(2):
            with pytest.raises(
                ConnectionLost, match="the server closed the connection: 4001 no room"
            ) as loss:
                connection.receive(timeout=PATIENCE)
            assert (loss.value.code, loss.value.clean) == (4001, True)
        with pytest.raises(ConnectionLost, match="4001"):
            connection.send("anyone?", timeout=PATIENCE)


def test_a_message_before_the_close_is_delivered_first() -> None:
    def explain(connection: ServerConnection) -> None:
        connection.send("full")

    with server(explain) as port, connect(port) as connection:
        with pytest.raises(ConnectionLost):
            connection.idle(PATIENCE)
        assert connection.receive(timeout=PATIENCE) == "full"
        with pytest.raises(ConnectionLost):
            connection.receive(timeout=PATIENCE)


def flood(connection: Connection) -> None:
    for _ in range(20):
        connection.send("x" * 100_000, timeout=PATIENCE)


def test_last_words_are_heard_when_sending_finds_the_connection_broken() -> None:
    closing = of_server(TEXT, b"going down") + of_server(CLOSE, b"\x03\xf3later")
    with raw_peer(closing) as (port, _), connect(port) as connection:
        # Long enough for the peer to hang up; the bytes it sent are still unread here.
        threading.Event().wait(0.6)
        with pytest.raises(ConnectionLost, match="the server closed the connection: 1011 later"):
            flood(connection)
        assert connection.receive(timeout=PATIENCE) == "going down"


def test_a_peer_that_hangs_up_without_a_word_is_a_loss() -> None:
    with raw_peer() as (port, _), connect(port) as connection:
        with pytest.raises(ConnectionLost, match="hung up without a closing handshake") as loss:
            connection.receive(timeout=PATIENCE)
        assert not loss.value.clean


def test_a_peer_that_does_not_answer_is_a_timeout_and_the_connection_stays() -> None:
    with server(echo) as port, connect(port) as connection:
        with pytest.raises(Timeout, match=r"no message within 0\.05 s"):
            connection.receive(timeout=0.05)
        connection.send("still here", timeout=PATIENCE)
        assert connection.receive(timeout=PATIENCE) == "still here"


def test_a_peer_that_does_not_close_is_a_timeout() -> None:
    with (
        raw_peer(hang_up=False) as (port, _),
        connect(port) as connection,
        pytest.raises(Timeout, match="no closing handshake"),
    ):
        connection.close(timeout=0.1)


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (b"\xc1\x00", 1002),  # reserved bit
        (b"\x83\x00", 1002),  # unknown opcode
        (b"\x81\x81abcdx", 1002),  # masked
        (b"\x09\x00", 1002),  # fragmented ping
        (b"\x89\x7e\x00\x80", 1002),  # long ping
        (b"\x80\x00", 1002),  # continuation of nothing
        (b"\x01\x01a\x81\x01b", 1002),  # message inside a message
        (b"\x88\x01\x03", 1002),  # half a close code
        (b"\x82\x01a", 1003),  # binary
        (b"\x81\x01\xff", 1007),  # not UTF-8
        (b"\x01\x02\xc3(\x80\x00", 1007),  # not UTF-8, in fragments
        (b"\x81\x7e\x03\xe9", 1009),  # announces 1,001 bytes
        (b"\x81\x7f\x7f\xff\xff\xff\xff\xff\xff\xff", 1009),  # announces all the bytes there are
        (b"\x01\x7e\x02\xbc" + b"a" * 700 + b"\x80\x7e\x02\xbc" + b"a" * 700, 1009),  # in fragments
    ],
)
def test_a_peer_that_breaks_the_protocol_is_told_so_and_left(bad: bytes, code: int) -> None:
    with raw_peer(bad) as (port, received), connect(port, limit=1000) as connection:
        with pytest.raises(ConnectionLost, match="the server broke the protocol") as loss:
            connection.receive(timeout=PATIENCE)
        assert (loss.value.code, loss.value.clean) == (code, False)
        assert connection.fileno() == -1
    closing = read_by_peer(b"".join(received))
    assert (closing.opcode, closing.data) == (CLOSE, code.to_bytes(2, "big"))


def test_nobody_listening_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Unreachable, match="no TCP connection: Connection refused"):
        Connection.open("127.0.0.1", port, "/ws", timeout=PATIENCE)


def test_a_refusal_carries_the_status_line() -> None:
    def full(connection: ServerConnection, _: object) -> object:
        return connection.respond(503, "full\n")

    with server(echo, process_request=full) as port, pytest.raises(HandshakeRefused) as refusal:
        Connection.open("127.0.0.1", port, "/ws", timeout=PATIENCE)
    assert refusal.value.status_line == "HTTP/1.1 503 Service Unavailable"


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (b"220 mail.example ready\r\n\r\n", "220 mail"),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
            "wrong Sec-WebSocket",
        ),
        (b"x" * 70_000, "does not end"),
    ],
)
def test_an_answer_that_is_no_upgrade_is_refused(head: bytes, why: str) -> None:
    with raw_peer(head, upgrade=False) as (port, _), pytest.raises(HandshakeRefused, match=why):
        Connection.open("127.0.0.1", port, "/ws", timeout=PATIENCE)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ((b"Connection: keep-alive, Upgrade", b"Connection: close"), "not an upgrade"),
        ((b"Upgrade: websocket", b"Upgrade: h2c"), "not an upgrade"),
        ((b"\r\n\r\n", b"\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"), "was not asked for"),
        ((b"\r\n\r\n", b"\r\nSec-WebSocket-Protocol: chat\r\n\r\n"), "was not asked for"),
    ],
)
def test_an_upgrade_to_something_else_is_refused(
    change: tuple[bytes, bytes], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = accepting
    monkeypatch.setitem(globals(), "accepting", lambda key: accept(key).replace(*change))
    with raw_peer() as (port, _), pytest.raises(HandshakeRefused, match=why):
        Connection.open("127.0.0.1", port, "/ws", timeout=PATIENCE)


def test_a_handshake_that_is_not_answered_is_a_timeout() -> None:
    with (
        raw_peer(upgrade=False, hang_up=False) as (port, _),
        pytest.raises(Timeout, match=r"no handshake within 0\.1 s"),
    ):
        Connection.open("127.0.0.1", port, "/ws", timeout=0.1)


def test_a_frame_that_comes_with_the_handshake_is_read() -> None:
    accept = accepting
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def talk() -> None:
            connection, _ = listener.accept()
            with connection:
                head = connection.recv(65536)
                key = next(line for line in head.split(b"\r\n") if line.startswith(b"Sec-WebSocket-Key"))
                connection.sendall(accept(key.split(b":")[1].strip()) + of_server(TEXT, b"welcome"))
                connection.recv(65536)

        thread = threading.Thread(target=talk)
        thread.start()
        with connect(listener.getsockname()[1]) as connection:
            connection.attend()
            assert connection.pending
            assert connection.receive(timeout=PATIENCE) == "welcome"
        thread.join()
