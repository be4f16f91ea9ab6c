"""A session that is a WebSocket."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal

from bench.load.channel import Clock
from bench.load.tcp import TransportError
from bench.load.websocket import Connection, ConnectionLost

if TYPE_CHECKING:
    from bench.load.channel import Act
    from bench.load.plan import LoadPlan
    from bench.load.share import Assignment
    from bench.load.wire import WebSocketWire

_logger = logging.getLogger(__name__)


class WebSocketChannel:
    """Play a session over a WebSocket of its own."""

    transport: Literal["websocket"] = "websocket"

    def __init__(self, plan: LoadPlan, wire: WebSocketWire, assignment: Assignment) -> None:
        self.clock = Clock()
        self._plan, self._wire, self._assignment = plan, wire, assignment
        self._socket: Connection | None = None

    @property
    def held(self) -> Connection | None:
        """Return the WebSocket."""
        return self._socket

    def connect(self) -> Act:
        """Return how to connect and shake hands."""
        return self._open

    def reset(self) -> Act:
        """Return how to open the episode."""
        script, session = self._assignment.script, self._assignment.session
        frame = self._wire.reset(script.task, session if script.seed is None else script.seed)
        return lambda: self._wire.read_reset(self._exchange(frame))

    def step(self, turn: int) -> Act:
        """Return how to make the call of a turn."""
        frame = self._assignment.frames[turn]
        return lambda: self._wire.read_step(self._exchange(frame))

    def score(self) -> None:
        """Return None: what a frame does not say is not scored."""

    def close(self) -> Act:
        """Return how to close, by a frame if the protocol has one; either way by a closing handshake."""
        frame = self._wire.close()
        return lambda: self._end(frame)

    def rest(self, seconds: float) -> None:
        """Wait, answering pings."""
        socket = self._opened()
        if seconds > 0 and not socket.lost:
            try:
                socket.idle(seconds)
            except TransportError:
                _logger.debug("session %d was lost while it rested", self._assignment.session)

    def drop(self) -> None:
        """Close the TCP connection."""
        if self._socket is not None:
            self._socket.abort()

    def _open(self) -> None:
        plan, endpoint = self._plan, self._assignment.endpoint
        self.clock.start()
        self._socket = Connection.open(
            endpoint.address,
            endpoint.port,
            self._wire.path,
            host=plan.host,
            query=plan.query,
            timeout=plan.connect_timeout_s,
        )
        self.clock.stop()

    def _exchange(self, frame: str) -> str:
        socket, patience = self._opened(), self._plan.reply_timeout_s
        self.clock.start()
        try:
            socket.send(frame, timeout=patience)
        except ConnectionLost:
            # A server that hangs up may have said why; that is the answer then.
            if not socket.pending:
                raise
        answer = socket.receive(timeout=patience)
        self.clock.stop()
        return answer

    def _end(self, frame: str | None) -> None:
        socket, patience = self._opened(), self._plan.close_timeout_s
        self.clock.start()
        if frame is None:
            socket.close(timeout=patience)
        else:
            try:
                socket.send(frame, timeout=patience)
                socket.wait_closed(timeout=patience)
            except ConnectionLost as e:
                # A server that closed properly before it was asked to has ended the session all the same.
                if not e.clean:
                    raise
        self.clock.stop()

    def _opened(self) -> Connection:
        if self._socket is None:
            raise AssertionError("an operation before the connection")
        return self._socket
