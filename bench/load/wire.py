"""The seam between the load engine and the wire protocol of a framework.

The engine knows connections, sessions and time; what a framework says over them it learns from
`adapters/<name>/wire.py`, which is loaded by name at run time and defines one object `WIRE`: a `WebSocketWire` or an
`HttpWire`, as its `transport` says. Adapters know nothing of the bench, so the types here are structural: whatever has
the named attributes will do, such as a NamedTuple of the adapter's own.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Generator, Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from canonical.content import JSON


class Reply(Protocol):
    """What an answer of the server says."""

    @property
    def text(self) -> str:
        """Return the observation as a model reads it; ignored for `connect`, `score` and `close`."""

    @property
    def reward(self) -> float | None:
        """Return the reward of the step, or the total of a `score`.

        None where the protocol does not say; it is not compared then.
        """

    @property
    def ended(self) -> bool | None:
        """Return whether the episode is over.

        None where the protocol does not say; it is not compared then.
        """

    @property
    def error(self) -> str | None:
        """Return the failure of the protocol: the server refused or crashed.

        A tool's own error is an observation, not this. Equal causes should give equal texts, so that they can be counted.
        """


class WebSocketWire(Protocol):
    """Translate between calls and the frames of one framework; stateless, one object for all sessions.

    The WebSocket is the session: it is opened by connecting, and over when it closes.
    """

    @property
    def transport(self) -> Literal["websocket"]:
        """Return how frames travel."""

    @property
    def path(self) -> str:
        """Return the absolute path of the endpoint, such as `/ws`."""

    def reset(self, task: str, seed: int) -> str:
        """Return the frame that opens an episode of a task."""

    def step(self, name: str, arguments: Mapping[str, JSON]) -> str:
        """Return the frame of one tool call. The same call always gives the same frame."""

    def close(self) -> str | None:
        """Return the frame that makes the server end the session and close the connection.

        None means that the transport's own closing says it.
        """

    def read_reset(self, frame: str) -> Reply:
        """Read the answer to `reset`; raises ValueError for a frame that the protocol does not know."""

    def read_step(self, frame: str) -> Reply:
        """Read the answer to `step`; raises ValueError for a frame that the protocol does not know."""


class Request(Protocol):
    """One HTTP request. The engine adds `Host`, and `Content-Length` where there may be a body; nothing else."""

    @property
    def method(self) -> str:
        """Return the method, such as `POST`."""

    @property
    def path(self) -> str:
        """Return the absolute path with its query, quoted as HTTP wants it."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the header fields: content type, session, cookies."""

    @property
    def body(self) -> bytes | None:
        """Return the content, or None."""


class Response(NamedTuple):
    """A complete HTTP response, never a redirect (3xx) and never a failure of the server (5xx)."""

    status: int
    headers: Mapping[str, str]
    """Header fields by their names in lower case; repeated ones are joined by a comma. Without `Set-Cookie`."""
    cookies: Mapping[str, str]
    """What `Set-Cookie` says, name to value; attributes such as `Path` are left out."""
    body: bytes
    """The content, decoded from its chunks. For an event stream: all of it, up to and with the event that ends it."""


Operation: TypeAlias = Generator[Request, Response, Reply]
"""One operation of a session as a generator: it yields requests, is sent their responses, and returns what they say.

    def reset(self, memory, task, seed):
        created = yield Request("POST", "/create", {"X-Session-ID": memory["session"]}, body)
        if created.status != 200:
            return Reply("", None, None, error=f"not created: status {created.status}")
        prompt = yield Request("GET", "/wordle/prompt", {"X-Session-ID": memory["session"]}, None)
        return Reply(text_of(prompt.body), None, False, None)

The clock starts when the first request is sent and stops when the last response is complete, so writing the first one
and reading the last one costs the framework nothing. The engine ends an operation itself when a request is not answered
in time, when the connection breaks, and when the server answers with 3xx or 5xx; the generator is then closed. Anything
else, such as 404 and 422, is for the wire to judge. It raises ValueError for a response that the protocol does not know.
"""

Pooling: TypeAlias = Literal["session", "pool"]
"""Which TCP connections requests take; they are kept alive either way.

`session`: every session has one of its own. `pool`: the sessions of a generator process share as many as there are
requests in flight, the one used last first, as clients with a connection pool do.
"""

Memory: TypeAlias = dict[str, Any]
"""What a session must remember between its operations, such as a session id or cookies; empty before `connect`.

It belongs to the wire, which reads and changes it inside its operations. The engine never looks inside.
"""


class HttpWire(Protocol):
    """Translate between calls and the requests of one framework; stateless, one object for all sessions.

    Whatever a session must remember is in its `memory`. Nothing is sent before an operation is run, and an operation may
    be made and thrown away: what has a side effect belongs into the generator, not before it.
    """

    @property
    def transport(self) -> Literal["http"]:
        """Return how requests travel."""

    @property
    def connection(self) -> Pooling:
        """Return which TCP connection a request takes.

        A connection that the server closed while it was idle is replaced, and no session is lost by that.
        """

    @property
    def last_events(self) -> Collection[str]:
        """Return the names of the server-sent events that complete an event stream (`text/event-stream`).

        The response is complete with the first of them, also when the server keeps the stream open. Empty: it is
        complete when the stream ends.
        """

    def connect(self, memory: Memory) -> Operation | None:
        """Return the operation that makes a session before any task is known.

        None means that there is no such request; connecting is then to have a TCP connection. With one, the phase
        `connect` is both together.
        """

    def reset(self, memory: Memory, task: str, seed: int) -> Operation:
        """Return the operation that opens an episode of a task, until its prompt is there: the text of the reply."""

    def step(self, memory: Memory, name: str, arguments: Mapping[str, JSON]) -> Operation:
        """Return the operation of one tool call."""

    def score(self, memory: Memory) -> Operation | None:
        """Return the operation that has the episode verified or scored; its reward is the total of the episode.

        None means that there is no such request; the phase `score` is then not recorded.
        """

    def close(self, memory: Memory) -> Operation | None:
        """Return the operation that makes the server end the session.

        None means that there is no such request; the phase `close` is then not recorded.
        """


Wire: TypeAlias = WebSocketWire | HttpWire
Transport: TypeAlias = Literal["websocket", "http"]
"""How a wire travels. Every transport has a channel of its own, see `bench.load.channel`."""

_NEEDED: dict[str, tuple[str, ...]] = {
    "websocket": ("path", "reset", "step", "close", "read_reset", "read_step"),
    "http": ("connection", "last_events", "connect", "reset", "step", "score", "close"),
}


class WireNotFound(Exception):  # noqa: N818 - what happened, read as a sentence
    """Say why the wire protocol of an adapter cannot be loaded."""


def load_wire(module: str) -> Wire:
    """Load the object `WIRE` of a module, such as `adapters.openenv.wire`.

    Raises:
        WireNotFound: There is no such module, it does not import, or it defines no complete `WIRE` of a known transport.
    """
    try:
        loaded = importlib.import_module(module)
    except Exception as e:
        raise WireNotFound(f"the wire protocol {module} does not load: {type(e).__name__}: {e}") from e
    wire: Wire | None = getattr(loaded, "WIRE", None)
    if wire is None or not hasattr(wire, "transport"):
        what = "WIRE" if wire is None else "WIRE.transport"
        raise WireNotFound(f"the module {module} does not define {what}")
    if wire.transport not in _NEEDED:
        raise WireNotFound(
            f"the transport {wire.transport!r} of {module} is not known; there are {', '.join(_NEEDED)}"
        )
    missing = [name for name in _NEEDED[wire.transport] if not hasattr(wire, name)]
    if missing:
        raise WireNotFound(f"the module {module} does not define WIRE.{', WIRE.'.join(missing)}")
    return wire
