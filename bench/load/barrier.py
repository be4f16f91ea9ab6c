"""The barrier at which opened sessions are held until all of them, in all generator processes, are open."""

from __future__ import annotations

import time
from typing import Any, Protocol

import gevent
from gevent.hub import Waiter

_READ = 1


class Held(Protocol):
    """A connection that must be looked after while it is held."""

    @property
    def lost(self) -> bool:
        """Return whether the connection is known to be gone."""

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when the peer sends something."""

    def attend(self) -> None:
        """Handle what has arrived without waiting, and raise if the connection is gone."""


class Barrier:
    """Hold greenlets until it opens, and then let each go at its own time. It opens once and stays open.

    Nobody is woken before its time: thousands of sessions that all woke up at the opening, only to sleep again,
    would keep the event loop busy for the first second of the measurement.
    """

    def __init__(self) -> None:
        self._opened_at: float | None = None
        self._opened_ns: int | None = None
        self._waiters: dict[Waiter, float] = {}

    @property
    def opened(self) -> bool:
        """Return whether the barrier is open."""
        return self._opened_at is not None

    @property
    def opened_ns(self) -> int:
        """Return when it opened, on the clock of `time.perf_counter_ns`.

        Raises:
            ValueError: It has not opened.
        """
        if self._opened_ns is None:
            raise ValueError("the barrier has not opened")
        return self._opened_ns

    def hold(self, connection: Held | None, start_s: float) -> None:
        """Wait until `start_s` seconds after the opening.

        Meanwhile attend to the connection, if there is one, so that pings are answered and a loss is noticed.

        Raises:
            Exception: What `attend` raises.
        """
        while not self._is_due(start_s):
            # Before the first wait, too: what came along with the handshake makes no descriptor readable.
            if connection is not None:
                connection.attend()
            # Attending may let others run, and one of them may open the barrier.
            if not self._is_due(start_s):
                self._wait(None if connection is None else connection.fileno(), start_s)

    def open(self) -> None:
        """Start the clock by which everybody goes on."""
        self._opened_at, self._opened_ns = time.monotonic(), time.perf_counter_ns()
        gevent.spawn(self._let_go, sorted(self._waiters.items(), key=lambda item: item[1]), self._opened_at)

    def _is_due(self, start_s: float) -> bool:
        return self._opened_at is not None and time.monotonic() >= self._opened_at + start_s

    def _let_go(self, waiters: list[tuple[Waiter, float]], opened_at: float) -> None:
        loop = gevent.get_hub().loop
        for waiter, start_s in waiters:
            early = opened_at + start_s - time.monotonic()
            if early > 0:
                gevent.sleep(early)
            if waiter in self._waiters:
                loop.run_callback(waiter.switch, None)

    def _wait(self, descriptor: int | None, start_s: float) -> None:
        """Return when the descriptor is readable or it is time to go."""
        loop = gevent.get_hub().loop
        waiter = Waiter()
        watchers: list[Any] = [] if descriptor is None else [loop.io(descriptor, _READ)]
        if self._opened_at is None:
            self._waiters[waiter] = start_s
        else:
            # Came back from a ping after the opening, when the order of going was made already.
            watchers.append(loop.timer(max(self._opened_at + start_s - time.monotonic(), 0.0)))
        try:
            for watcher in watchers:
                watcher.start(waiter.switch, None)
            waiter.get()
        finally:
            self._waiters.pop(waiter, None)
            for watcher in watchers:
                watcher.stop()
                watcher.close()
