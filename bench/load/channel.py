"""How a session reaches the server: one channel per transport, all of them with the same acts and the same clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from bench.load.barrier import Held
    from bench.load.wire import Reply, Transport

Act: TypeAlias = "Callable[[], Reply | None]"
"""One operation, ready to be carried out. It raises `bench.load.tcp.TransportError`, `Refused`, or ValueError for an
answer that was not understood; it returns None where an answer says nothing."""


class Refused(Exception):  # noqa: N818 - what happened, read as a sentence
    """Carry the failure that the framework answered with."""


class Clock:
    """Say from when to when the server had something to do; the rest of an act is the generator's own work."""

    __slots__ = ("answered_ns", "asked_ns")

    def __init__(self) -> None:
        self.asked_ns = 0
        self.answered_ns = 0

    def start(self) -> None:
        """Note that the first question of an act is about to be sent."""
        self.asked_ns, self.answered_ns = time.perf_counter_ns(), 0

    def wait(self) -> None:
        """Note that another question of the same act is about to be sent."""
        self.answered_ns = 0

    def stop(self) -> None:
        """Note that an answer is complete."""
        self.answered_ns = time.perf_counter_ns()

    def span(self) -> tuple[int, int]:
        """Return from when to when; until now if the last question has no answer."""
        return self.asked_ns, self.answered_ns or time.perf_counter_ns()


class Channel(Protocol):
    """The way of one session to the server. What it says there it learns from the wire of the framework."""

    @property
    def transport(self) -> Transport:
        """Return what it travels by."""

    @property
    def clock(self) -> Clock:
        """Return the clock of the act that was carried out last."""

    @property
    def held(self) -> Held | None:
        """Return the connection that is the session, and must be looked after while nothing is asked; else None."""

    def connect(self) -> Act:
        """Return how to connect."""

    def reset(self) -> Act:
        """Return how to open the episode of the session's task."""

    def step(self, turn: int) -> Act:
        """Return how to make the call of a turn."""

    def score(self) -> Act | None:
        """Return how to have the episode scored; None where the framework has no such thing."""

    def close(self) -> Act | None:
        """Return how to end the session; None where nothing is to be said."""

    def rest(self, seconds: float) -> None:
        """Do nothing for a while, but keep the session alive."""

    def drop(self) -> None:
        """Let go of everything without a word; harmless when there is nothing."""
