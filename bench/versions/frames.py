"""Frames: what one episode is on the wire of a release, message by message, without what differs from one playing to the next.

The episode is the one of the table of transports, played by the framework's own client against its own server through a relay.
It is played several times over: a field that is not the same in all of them, such as the name of a session or a time, is
nothing that a release decides.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from bench.client import Worker
from bench.relay import Piece, start_relay
from bench.session import serve
from bench.stone.transport import SOURCE, play
from bench.stone.wire import Head, read_bodies, read_heads, read_messages
from bench.versions.cells import Frame

PLAYINGS = 3
"""How often the episode is played, to see which fields are the same each time."""
VARIES = "(varies)"

_LONGEST = 120
_KEPT = 60
_GRACE_S = 0.1
# What a library of HTTP decides, or the machine; of which version it is stands in the pins.
_UNTOLD = re.compile(
    r"date|host|server|user-agent|connection|keep-alive|transfer-encoding|content-length|upgrade|vary|"
    # The relay spoils one letter of what offers to compress.
    r"[ax]ccept(-.*)?|[sx]ec-websocket-.*"
)
_NAMES = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "(id)"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{16,}\b"), "(id)"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?"), "(time)"),
    (re.compile(r"\b(127\.0\.0\.1|localhost):\d+"), r"\1:(port)"),
)


async def record_frames(host: Worker, driver: Worker) -> tuple[Frame, ...]:
    """Play the episode through a relay, and return its messages in the order in which they were sent.

    Args:
        host: The worker that serves.
        driver: The worker with the framework's client.

    Raises:
        UnreadableStreamError: What was recorded is neither HTTP/1.1 nor a WebSocket.
        SessionError: The framework refused the session.
        WorkerError: A worker broke down, or the framework runs in process.
    """
    playings = []
    for _ in range(PLAYINGS):
        url = (await serve(host, SOURCE)).url
        if url is None:
            return ()
        async with start_relay(url, is_recording=True) as relay:
            await play(driver, relay.url)
            # What a client says last may still be under way.
            await asyncio.sleep(_GRACE_S)
            playings.append(read_frames(relay.conversations(), relay.pieces()))
    return steady(playings)


def steady(playings: Sequence[Sequence[Frame]]) -> tuple[Frame, ...]:
    """Return the frames of the first playing, with `(varies)` for the fields that are not the same in all others.

    Playings that consist of other messages are left out of account.
    """
    first = playings[0]
    alike = [one for one in playings if [frame.name for frame in one] == [frame.name for frame in first]]
    return tuple(
        Frame(
            name=frames[0].name,
            fields={
                name: value if all(one.fields.get(name) == value for one in frames) else VARIES
                for name, value in frames[0].fields.items()
            },
        )
        for frames in zip(*alike, strict=True)
    )


def read_frames(conversations: Sequence[tuple[bytes, bytes]], pieces: Sequence[Piece]) -> tuple[Frame, ...]:
    """Return the messages of some connections in the order in which they were sent, but for keepalives.

    Args:
        conversations: What the client asked and the server answered on each connection.
        pieces: In which order their bytes came.

    Raises:
        UnreadableStreamError: It is neither HTTP/1.1 nor a WebSocket.
    """
    found: list[tuple[int, Frame]] = []
    for number, (up, down) in enumerate(conversations):
        asked, answered = (
            _Moments(pieces, number, is_request=True),
            _Moments(pieces, number, is_request=False),
        )
        requests, replies = _placed(up), _placed(down)
        for index, (place, head, body) in enumerate(requests):
            method, target, _ = head.first.split(" ", 2)
            call = f"{method} {_named(urlsplit(target).path)}"
            if call.endswith("/ping"):
                continue
            found.append((asked.of(place), Frame(name=f"client: {call}", fields=_asked(head, body))))
            for begin, reply, carried in replies[index : index + 1]:
                answer = Frame(name=f"server: answer to {call}", fields=_answered(reply, carried))
                found.append((answered.of(begin), answer))
        for side, stream, moments in (("client", up, asked), ("server", down, answered)):
            rest = read_heads(stream)[1]
            begin = len(stream) - len(rest)
            for place, message in read_messages(rest):
                fields = dict(_flat("", _parsed(message)))
                kind = json.loads(fields["type"]) if "type" in fields else "without a type"
                found.append(
                    (moments.of(begin + place), Frame(name=f"{side}: message {kind}", fields=fields))
                )
    return tuple(frame for _, frame in sorted(found, key=lambda one: one[0]))


class _Moments:
    """Say when the byte at a place of one side of a connection came, as a number that grows with time."""

    def __init__(self, pieces: Sequence[Piece], number: int, *, is_request: bool) -> None:
        self._ends: list[tuple[int, int]] = []
        end = 0
        for moment, piece in enumerate(pieces):
            if (piece.connection, piece.is_request) == (number, is_request):
                end += piece.size
                self._ends.append((end, moment))

    def of(self, place: int) -> int:
        return next(moment for end, moment in self._ends if place < end)


def _placed(stream: bytes) -> list[tuple[int, Head, bytes]]:
    placed, place = [], 0
    for head, body in read_bodies(stream):
        placed.append((place, head, body))
        place += head.size
    return placed


def _asked(head: Head, body: bytes) -> dict[str, str]:
    query = parse_qsl(urlsplit(head.first.split(" ", 2)[1]).query, keep_blank_values=True)
    return {**{f"query {name}": _leaf(value) for name, value in query}, **_carried(head, body)}


def _answered(head: Head, body: bytes) -> dict[str, str]:
    return {"status": head.first.split(" ", 2)[1], **_carried(head, body)}


def _carried(head: Head, body: bytes) -> dict[str, str]:
    fields = {
        f"header {name}": _leaf(value)
        for name, value in sorted(head.fields.items())
        if not _UNTOLD.fullmatch(name)
    }
    if head.fields.get("content-type", "").startswith("text/event-stream"):
        for number, event in enumerate(_events(body)):
            fields |= {f"event {number} {name}": value for name, value in event.items()}
    elif body:
        fields |= dict(_flat("body", _parsed(body)))
    return fields


def _events(body: bytes) -> Iterator[dict[str, str]]:
    """Yield the events of a stream of them; a comment, such as what only keeps a connection alive, is none."""
    for block in re.split(r"(?:\r?\n){2,}", body.decode("utf-8", "replace")):
        lines = [line.partition(":") for line in block.splitlines() if line and not line.startswith(":")]
        said = {name: value.removeprefix(" ") for name, _, value in lines if name != "data"}
        data = "\n".join(value.removeprefix(" ") for name, _, value in lines if name == "data")
        if lines:
            yield {name: _leaf(value) for name, value in said.items()} | dict(
                _flat("data", _parsed(data.encode()))
            )


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode("utf-8", "replace")


def _flat(place: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield every value of some JSON with its place in it."""
    match value:
        case dict() if value:
            for key, part in value.items():
                yield from _flat(f"{place}.{key}" if place else str(key), part)
        case list() if value:
            for index, part in enumerate(value):
                yield from _flat(f"{place}[{index}]", part)
        case _:
            yield place or "all of it", _leaf(value)


def _leaf(value: Any) -> str:
    text = _named(value if isinstance(value, str) else "")
    shown = json.dumps(text if isinstance(value, str) else value, ensure_ascii=False)
    if len(shown) <= _LONGEST:
        return shown
    digest = hashlib.sha256(shown.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{shown[:_KEPT]}... ({len(shown):,} characters, sha256 {digest})"


def _named(text: str) -> str:
    for pattern, name in _NAMES:
        text = pattern.sub(name, text)
    return text
