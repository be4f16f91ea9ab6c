"""A session that is a series of HTTP requests, bound together by what its wire remembers."""

from __future__ import annotations

import http
import time
from typing import TYPE_CHECKING, Literal

import gevent

from bench.load.channel import Clock, Refused
from bench.load.tcp import Timeout, until

if TYPE_CHECKING:
    from bench.load.channel import Act
    from bench.load.http1 import Pool
    from bench.load.plan import LoadPlan
    from bench.load.share import Assignment
    from bench.load.wire import HttpWire, Memory, Operation, Reply, Request, Response

EXCERPT_CHARACTERS = 160
"""How much of the body of an unexpected response an error text holds."""


class HttpChannel:
    """Play a session by requests.

    Args:
        plan: What is carried out.
        wire: What is said.
        assignment: The session.
        pool: Where its connections come from: its own, or that of all sessions of the process.
    """

    transport: Literal["http"] = "http"
    held = None

    def __init__(self, plan: LoadPlan, wire: HttpWire, assignment: Assignment, pool: Pool) -> None:
        self.clock = Clock()
        self._plan, self._wire, self._assignment, self._pool = plan, wire, assignment, pool
        self._memory: Memory = {}

    def connect(self) -> Act:
        """Return how to have a TCP connection, and a session if the framework makes one before the task is known."""
        operation = self._wire.connect(self._memory)
        return lambda: self._connect(operation)

    def reset(self) -> Act:
        """Return how to open the episode."""
        script, session = self._assignment.script, self._assignment.session
        seed = session if script.seed is None else script.seed
        return self._act(self._wire.reset(self._memory, script.task, seed), self._plan.reply_timeout_s)

    def step(self, turn: int) -> Act:
        """Return how to make the call of a turn."""
        call = self._assignment.script.calls[turn]
        operation = self._wire.step(self._memory, call.name, call.arguments)
        return self._act(operation, self._plan.reply_timeout_s)

    def score(self) -> Act | None:
        """Return how to have the episode scored, or None."""
        operation = self._wire.score(self._memory)
        return None if operation is None else self._act(operation, self._plan.reply_timeout_s)

    def close(self) -> Act | None:
        """Return how to end the session, or None."""
        operation = self._wire.close(self._memory)
        return None if operation is None else self._act(operation, self._plan.close_timeout_s)

    def rest(self, seconds: float) -> None:
        """Wait. A connection that the server closes meanwhile is replaced at the next request."""
        if seconds > 0:
            gevent.sleep(seconds)

    def drop(self) -> None:
        """Close the connections of this session, if it has any of its own."""
        if self._wire.connection == "session":
            self._pool.close()

    def _connect(self, operation: Operation | None) -> Reply | None:
        if operation is not None:
            return self._converse(operation, self._plan.connect_timeout_s)
        endpoint = self._assignment.endpoint
        self.clock.start()
        self._pool.give(self._pool.take(endpoint, timeout=self._plan.connect_timeout_s), endpoint)
        self.clock.stop()
        return None

    def _act(self, operation: Operation, patience: float) -> Act:
        return lambda: self._converse(operation, patience)

    def _converse(self, operation: Operation, patience: float) -> Reply:
        clock = self.clock
        deadline = time.monotonic() + patience
        clock.start()
        try:
            request = next(operation)
            # Again: writing the first request is work of the generator, not of the server.
            clock.start()
            while True:
                try:
                    response = self._ask(request, deadline)
                except Timeout:
                    raise Timeout(f"no answer within {patience:g} s") from None
                _check_status(request, response)
                request = operation.send(response)
                clock.wait()
        except StopIteration as done:
            reply: Reply = done.value
            return reply
        finally:
            operation.close()

    def _ask(self, request: Request, deadline: float) -> Response:
        endpoint = self._assignment.endpoint
        connection = self._pool.take(endpoint, timeout=until(deadline))
        try:
            response = connection.ask(request, timeout=until(deadline), last_events=self._wire.last_events)
            self.clock.stop()
            connection.settle()
        except BaseException:
            connection.abort()
            raise
        self._pool.give(connection, endpoint)
        return response


def _check_status(request: Request, response: Response) -> None:
    status = response.status
    is_redirect, is_failure = 300 <= status < 400, status >= 500
    if not (is_redirect or is_failure):
        return
    try:
        phrase = f" {http.HTTPStatus(status).phrase}"
    except ValueError:
        phrase = ""
    if is_redirect:
        more = f" to {response.headers.get('location', 'nowhere')}, and redirects are not followed"
    else:
        excerpt = " ".join(response.body[: 4 * EXCERPT_CHARACTERS].decode("utf-8", "replace").split())
        more = f": {excerpt[:EXCERPT_CHARACTERS]}" if excerpt else ""
    raise Refused(f"{request.method} {request.path.partition('?')[0]}: {status}{phrase}{more}")
