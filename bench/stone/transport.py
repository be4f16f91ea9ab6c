"""Transport: what one episode costs on the wire, what is installed beside the trainer, and who is let in.

The episode is one of Wordle with four calls, played by the framework's own client against its own server, with a relay
between them that keeps every byte. Where a framework runs in process, the probe looks for a descriptor that was opened.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import JsonValue

from bench import protocol
from bench.client import Worker
from bench.facts import Fact, Probe
from bench.protocol import Observe, Observed
from bench.recording import expect
from bench.relay import start_relay
from bench.session import connect_session
from bench.stacks import ROOT, Stack
from bench.stone.places import code_of
from bench.stone.play import standing
from bench.stone.subject import Subject, fact_of
from bench.stone.wire import Head, count_messages, read_heads
from canonical.catalogue import load_environment
from canonical.tool import ToolCall

TABLE = "transport"
WHERE = "where it runs"
"""The row that says whether an environment is in the trainer's process, and whether it can be elsewhere."""

SOURCE = "wordle"
CREDENTIALS = ("authorization", "x-api-key", "x-secrets", "cookie")
"""Fields of a request that may say who asks."""

_TIMEOUT_S = 30.0
_ROLLOUT_S = 120.0
_WRONG = {"Authorization": "Bearer wrong", "X-API-Key": "wrong"}


@dataclass(frozen=True, slots=True)
class Recorded:
    """Hold one episode as it went over the wire.

    Attributes:
        requests: The requests of HTTP, in the order of the connections.
        connections: How many connections there were.
        asked: How many messages went to the server: requests, and messages of a WebSocket.
        answered: How many came back.
        bytes_asked: Bytes to the server.
        bytes_answered: Bytes from it.
        is_websocket: Whether a connection became a WebSocket.
    """

    requests: tuple[tuple[Head, bytes], ...]
    connections: int
    asked: int
    answered: int
    bytes_asked: int
    bytes_answered: int
    is_websocket: bool


async def gather(subject: Subject) -> list[Fact]:
    """Return what an episode shows on the wire, and what stands beside the trainer.

    Raises:
        SessionError: The framework refused the session.
        UnreadableStreamError: What was recorded is neither HTTP/1.1 nor a WebSocket.
        WorkerError: The worker broke down.
    """
    async with standing(subject, SOURCE) as url:
        if url is None:
            return await _in_process(subject)
        recorded = await record(subject.worker, url)
        admitted = await _admission(recorded, url)
    return [*_on_the_wire(subject, recorded), *_admitted(subject, recorded, admitted)]


def script() -> tuple[str, tuple[ToolCall, ...]]:
    """Return the task of the episode and its calls: three guesses that are wrong, and the oracle's."""
    environment = load_environment(SOURCE)
    task = next(iter(environment.tasks()))
    wrong = [word for word in ("crane", "slate", "pious", "mound") if word != task.secret["answer"]][:3]
    return task.id, (
        *(ToolCall("guess", {"word": word}) for word in wrong),
        *(environment.oracle(task) or ()),
    )


async def play(worker: Worker, url: str | None) -> int:
    """Play the episode, and return how many descriptors the worker has opened for it by its last call."""
    task, calls = script()
    before = await _descriptors(worker)
    async with connect_session(worker, SOURCE, url=url) as session:
        await session.open(task, 1)
        for call in calls:
            await session.step(call)
        opened = max(0, await _descriptors(worker) - before)
        await session.reported_return()
    return opened


async def record(worker: Worker, url: str) -> Recorded:
    """Play the episode through a relay, and return what went over the wire."""
    async with start_relay(url, is_recording=True) as relay:
        await play(worker, relay.url)
        # What a client says last may still be under way.
        await asyncio.sleep(0.1)
        return read_recorded(relay.conversations())


def read_recorded(conversations: Sequence[tuple[bytes, bytes]]) -> Recorded:
    """Return what was said on some connections, without the keepalives of HTTP: requests whose path ends with `/ping`.

    Raises:
        UnreadableStreamError: It is neither HTTP/1.1 nor a WebSocket.
    """
    requests: list[tuple[Head, bytes]] = []
    sizes = Counter[str]()
    for up, down in conversations:
        heads, frames = read_heads(up)
        answers, back = read_heads(down)
        place, said = 0, len(requests)
        for number, head in enumerate(heads):
            if not _shown(head).endswith("/ping"):
                requests.append((head, up[place : place + head.size]))
                sizes["asked"] += head.size
                sizes["answered"] += answers[number].size if number < len(answers) else 0
                sizes["answers"] += number < len(answers)
            place += head.size
        sizes["asked"] += len(frames)
        sizes["answered"] += len(back)
        sizes["messages asked"] += count_messages(frames)
        sizes["messages answered"] += count_messages(back)
        sizes["connections"] += len(requests) > said
    return Recorded(
        requests=tuple(requests),
        connections=sizes["connections"],
        asked=len(requests) + sizes["messages asked"],
        answered=sizes["answers"] + sizes["messages answered"],
        bytes_asked=sizes["asked"],
        bytes_answered=sizes["answered"],
        is_websocket=any(head.fields.get("upgrade", "").lower() == "websocket" for head, _ in requests),
    )


def _probe(sent: str, seen: str, definition: str) -> Probe:
    place = code_of(ROOT / "bench" / "stone" / "transport.py", definition)
    return Probe(
        name="transport", sent=sent, seen=seen, file=place.file, line=place.first, function=place.name
    )


def _on_the_wire(subject: Subject, recorded: Recorded) -> list[Fact]:
    # Which connection a request goes over, and so its place, differs from run to run.
    paths = sorted(Counter(_shown(head) for head, _ in recorded.requests).items())
    spoken = ", ".join(f"{count} x {path}" if count > 1 else path for path, count in paths)
    calls = len(script()[1])
    probe = _probe(
        f"an episode of Wordle, {calls} calls, by the framework's own client through a relay", spoken,
        "record",
    )  # fmt: skip
    kind = "one WebSocket" if recorded.is_websocket else "requests of HTTP"
    size = f"{rounded(recorded.bytes_asked)} bytes to the server, {rounded(recorded.bytes_answered)} back"
    # How many a pool opens depends on what is quicker, its connections or the answers.
    connections = (
        f"{recorded.connections} for the whole episode"
        if recorded.is_websocket
        else "as many as its pool opens"
    )
    rows = [
        ("spoken in an episode", f"{kind}: {spoken}"),
        ("calls of the episode", str(calls)),
        ("connections of the client", connections),
        ("messages of an episode", f"{recorded.asked} to the server, {recorded.answered} back"),
        ("bytes of an episode", size),
    ]
    where = subject.fact(
        TABLE,
        WHERE,
        f"in a server process: it is stepped by {kind}",
        "probed",
        [probe],
        {"places": ["server"]},
    )
    return [where, *(subject.fact(TABLE, row, value, "probed", [probe]) for row, value in rows)]


def _shown(head: Head) -> str:
    method, path, _ = head.first.split(" ", 2)
    return f"{method} {path.partition('?')[0]}"


def rounded(size: int) -> str:
    """Return a number of bytes with two digits that count: names of sessions differ from run to run, if only a little."""
    step = 10 ** max(0, len(str(size)) - 2)
    return f"about {round(size / step) * step:,}"


async def _in_process(subject: Subject) -> list[Fact]:
    opened, calls = await play(subject.worker, None), len(script()[1])
    probe = _probe(
        f"an episode of Wordle, {calls} calls, in the trainer's process",
        f"{opened} more descriptors than before",
        "play",
    )
    none = (
        "none: no descriptor is opened" if opened <= 0 else f"none seen, and {opened} descriptors are opened"
    )
    own = await _own_rollouts(subject)
    beside = ", and what its own rollouts start is not of this episode" if own else ""
    rows = [
        ("spoken in an episode", "nothing: methods of an object are called"),
        ("calls of the episode", str(calls)),
        ("connections of the client", none),
        ("messages of an episode", "none"),
        ("bytes of an episode", "none"),
        ("authentication", f"nobody to admit: no server stands between the caller and the object{beside}"),
        ("what a client says of itself", "nothing"),
    ]
    return [
        where_stepped(subject, probe, own),
        *(subject.fact(TABLE, row, value, "probed", [probe]) for row, value in rows),
    ]


def where_stepped(subject: Subject, stepped: Probe, own: Mapping[str, tuple[bool, Probe]]) -> Fact:
    """Return where an environment runs that is stepped in process: in its own rollouts it may be elsewhere.

    Args:
        subject: The framework.
        stepped: What showed that it is stepped in process.
        own: The framework's own ways to take whole rollouts -> whether one starts other processes, and what showed it.
    """
    told = ["in the trainer's process, where it is stepped"]
    if own:
        ways = ", ".join(
            f"by `{name}` in {'processes of their own' if is_elsewhere else 'the same process'}"
            for name, (is_elsewhere, _) in own.items()
        )
        told.append(f"in its own rollouts {ways}")
    places: list[JsonValue] = [
        "in_process",
        *(["server"] if any(is_elsewhere for is_elsewhere, _ in own.values()) else []),
    ]
    return subject.fact(
        TABLE,
        WHERE,
        "; ".join(told),
        "probed",
        [stepped, *(probe for _, probe in own.values())],
        {"places": places},
    )


async def _own_rollouts(subject: Subject) -> dict[str, tuple[bool, Probe]]:
    """Play the episode once by each way in which the framework takes whole rollouts, and say which start processes."""
    worker, (task, calls) = subject.worker, script()
    ways = await worker.request(protocol.Ways, lambda seq: protocol.ListWays(seq=seq), timeout_s=_TIMEOUT_S)
    if not ways.rollouts:
        return {}
    async with connect_session(worker, SOURCE, url=None) as session:
        await session.open(task, 1)
        expected = [expect(await session.step(call)) for call in calls]
    one = protocol.Script(task=task, seed=1, calls=[call.to_json() for call in calls], expected=expected)
    found = {}
    for name in ways.rollouts:
        rolled = await _roll_out(worker, name, one)
        # How many there are at a time differs from run to run.
        beside = "other processes ran beside it" if rolled.processes else "no other process ran"
        sent = f"a whole rollout of the episode by the path `{name}`, with a scripted model"
        seen = f"{rolled.succeeded} of 1 succeeded; {beside}"
        found[name] = (rolled.processes > 0, _probe(sent, seen, "_own_rollouts"))
    return found


async def _roll_out(worker: Worker, path: str, one: protocol.Script) -> protocol.RolledOut:
    return await worker.request(
        protocol.RolledOut,
        lambda seq: protocol.RollOut(seq=seq, environment=SOURCE, path=path, rollouts=1, scripts=[one]),
        timeout_s=_ROLLOUT_S,
    )


async def _descriptors(worker: Worker) -> int:
    observed = await worker.request(Observed, lambda seq: Observe(seq=seq), timeout_s=_TIMEOUT_S)
    return observed.fds


def installed(stack: Stack, count: int, shown: Probe) -> Fact:
    """Return what stands beside a trainer, as a fresh installation of the release has it; what an adapter needs is not in it.

    Args:
        stack: The framework.
        count: How many distributions there are, the framework's own included.
        shown: What has counted them.
    """
    package, others = stack.release.package, count - 1
    value = (
        f"client and server are one distribution: {package} and {others} others on both sides"
        if stack.facts.kind == "server"
        else f"the environment runs beside the trainer: {package} and {others} others"
    )
    return fact_of(stack, TABLE, "installed beside the trainer", value, "introspected", [shown], count)


async def _admission(recorded: Recorded, url: str) -> list[tuple[str, int, int]]:
    """Return for each path what a server answers to the client's request without any credential, and with wrong ones."""
    found: dict[str, tuple[str, int, int]] = {}
    for head, whole in recorded.requests:
        shown = _shown(head)
        if shown not in found:
            found[shown] = (
                shown,
                await _status(url, _asking(whole, {})),
                await _status(url, _asking(whole, _WRONG)),
            )
    return list(found.values())


def _asking(whole: bytes, added: dict[str, str]) -> bytes:
    """Return a request with its credentials taken away and others added, which ends its connection."""
    head, _, body = whole.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    dropped = {*CREDENTIALS, "connection"}
    is_upgrade = any(line.lower().startswith(b"upgrade:") for line in lines)
    kept = [
        line for line in lines if line.partition(b":")[0].strip().decode("latin-1").lower() not in dropped
    ]
    kept += [f"{name}: {value}".encode() for name, value in added.items()]
    kept.append(b"Connection: Upgrade" if is_upgrade else b"Connection: close")
    return b"\r\n".join([first, *kept, b"", body])


async def _status(url: str, request: bytes) -> int:
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            writer.write(request)
            await writer.drain()
            line = await reader.readline()
        return int(line.split()[1])
    finally:
        writer.transport.abort()


def _admitted(subject: Subject, recorded: Recorded, admitted: Sequence[tuple[str, int, int]]) -> list[Fact]:
    refused = [path for path, without, wrong in admitted if {without, wrong} & {401, 403}]
    seen = ", ".join(f"{path}: {without} and {wrong}" for path, without, wrong in sorted(admitted))
    probe = _probe(
        "each request of the client again, without credentials and with wrong ones", seen, "_admission"
    )
    value = (
        f"asked for at {', '.join(sorted(refused))}"
        if refused
        else "none: no request is refused for want of a credential, or for a wrong one"
    )
    said = {name: "" for head, _ in recorded.requests for name in CREDENTIALS if name in head.fields}
    told = ", ".join(f"`{name}`" for name in sorted(said)) or "nothing"
    own = _probe("the fields of the client's requests that may say who asks", told, "record")
    return [
        subject.fact(TABLE, "authentication", value, "probed", [probe]),
        subject.fact(TABLE, "what a client says of itself", told, "probed", [own]),
    ]
