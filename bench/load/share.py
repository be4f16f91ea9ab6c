"""The share of one generator process: its sessions, their samples, and what it costs to drive them."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import resource
import time
from array import array
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import gevent
from gevent.event import Event
from gevent.lock import BoundedSemaphore

from bench.load.barrier import Barrier, Held
from bench.load.http1 import Connection, Pool
from bench.load.http_channel import HttpChannel
from bench.load.summary import ERRORS_KEPT, EXAMPLES_KEPT, EndedBy, ShareSummary, WrongReply
from bench.load.websocket_channel import WebSocketChannel
from bench.machine import preflight
from bench.samples import SampleColumns, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from bench.load.channel import Channel
    from bench.load.plan import Endpoint, LoadPlan, Script
    from bench.load.wire import Wire
    from bench.samples import Phase

LAG_INTERVAL_S = 0.01
PROGRESS_INTERVAL_S = 0.5
STOP_PATIENCE_S = 10.0
"""How long stopped sessions may take to record what they were doing."""


class Place(NamedTuple):
    """Where a share stands among the workers of a run."""

    rank: int
    of: int
    """Workers that divide the sessions."""
    neighbours: int
    """Workers on the same machine, this one included."""


class ShareProgress(NamedTuple):
    """How far a share has come."""

    rank: int
    opened: int
    failed: int
    """Sessions that did not open."""
    steps: int
    ended: int
    """Sessions that are over."""


class Assignment(NamedTuple):
    """One session as its user plays it."""

    session: int
    script: Script
    frames: tuple[str, ...]
    """The frames of the steps, made once for all sessions that play the script; none over HTTP."""
    endpoint: Endpoint
    start_s: float
    """How long after the barrier it starts, or, in an open loop, arrives."""


class OtherClock:
    """How far the clock of the side that divides the sessions is ahead of this process's clock.

    It is asked several times; the answer that took the shortest way counts, and half of that way is the error (as in
    Cristian, *Probabilistic clock synchronization*, 1989).
    """

    def __init__(self) -> None:
        self.offset_ns: int | None = None
        self.error_ns: int | None = None

    def hear(self, asked_ns: int, now_ns: int, heard_ns: int) -> None:
        """Take an answer: `now_ns` there, to a question of `asked_ns` that came back at `heard_ns` here."""
        error = (heard_ns - asked_ns + 1) // 2
        if self.error_ns is None or error < self.error_ns:
            self.offset_ns, self.error_ns = now_ns - (asked_ns + heard_ns) // 2, error


class Share:
    """Hand out sessions, hold them at the barrier, count them, and write their samples when all are over.

    `on_progress`, `on_held` and `on_end` are told how far it is; `on_held` when every session has opened or failed to.
    """

    def __init__(
        self,
        plan: LoadPlan,
        place: Place,
        wire: Wire,
        *,
        on_progress: Callable[[ShareProgress], None],
        on_held: Callable[[], None],
        on_end: Callable[[ShareSummary], None],
    ) -> None:
        self.plan = plan
        self.place = place
        self.wire = wire
        self.samples = SampleColumns()
        self.gate: Any = BoundedSemaphore(plan.connect_gate)
        self.barrier = Barrier()
        self.clock = OtherClock()
        self.stopped_by: EndedBy | None = None
        self.ended = False
        self._sessions = plan.share(place.rank, place.of)
        self._next = iter(self._sessions)
        self._endpoints = plan.endpoints
        self._starts_s = plan.starts_s()
        self._is_open_loop = plan.arrival != "closed"
        self._frames = _step_frames(plan, wire, {session % len(plan.scripts) for session in self._sessions})
        self._pool = Pool(self._dial)
        self._dialed = 0
        self._on_progress, self._on_held, self._on_end = on_progress, on_held, on_end
        self._players: set[Any] = set()
        self._open: set[Held] = set()
        self._inside: set[Any] = set()
        self._opened = self._failed = self._succeeded = self._over = self._steps = 0
        self._peak_open = self._peak_inside = 0
        self._counted: array[int] = array("q")
        self._reached = False
        self._errors: Counter[str] = Counter()
        self._wrong: list[WrongReply] = []
        self._lags = array("q")
        self._ramp_lags = self._lags
        self._greenlets: list[Any] = []
        self._written: Any = Event()
        self._began = self._went = (0, 0.0)
        self._rss_start: int | None = None
        self._rss_held: int | None = None
        self._fault: str | None = None

    @property
    def size(self) -> int:
        """Return the number of sessions of this share."""
        return len(self._sessions)

    def obstacle(self) -> str | None:
        """Return why this machine cannot hold the sessions, or None."""
        if not self.size:
            return None
        here = math.ceil(self.plan.sessions / self.place.of) * self.place.neighbours
        found = preflight(
            here,
            server_processes=here,
            generator_processes=self.place.neighbours,
            addresses=len(self.plan.endpoints),
        )
        return next((o.sentence for o in found if o.kind in {"fds", "ports"}), None)

    def begin(self) -> None:
        """Prepare the process and start the clocks; call it before the first user starts."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        # Thousands of live sessions make full collections long, and nothing here dies in cycles.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 50, 100)
        self._rss_start = _resident_bytes()
        self._began = _clocks()
        self._greenlets = [gevent.spawn(self._probe_lag), gevent.spawn(self._tell_progress)]
        self._settle()

    def take(self, player: Any) -> Assignment | None:
        """Give the next session to a user, with the greenlet that plays it; None when all are given out."""
        session = None if self.ended or self.stopped_by else next(self._next, None)
        if session is None:
            return None
        self._players.add(player)
        number = session % len(self.plan.scripts)
        endpoint = self._endpoints[session % len(self._endpoints)]
        return Assignment(
            session,
            self.plan.scripts[number],
            self._frames.get(number, ()),
            endpoint,
            self._starts_s[session],
        )

    def channel(self, assignment: Assignment) -> Channel:
        """Return the way to the server for a session."""
        wire = self.wire
        if wire.transport == "websocket":
            return WebSocketChannel(self.plan, wire, assignment)
        pool = self._pool if wire.connection == "pool" else Pool(self._dial)
        return HttpChannel(self.plan, wire, assignment, pool)

    def opened(self, held: Held | None) -> None:
        """Count a session that has opened, with the connection that it is, if it is one."""
        self._opened += 1
        self._reached = True
        if held is not None:
            self._open.add(held)
            if self._is_open_loop:
                self._peak_open = max(self._peak_open, len(self._open))
        self._settle()

    def entered(self, player: Any) -> None:
        """Count a session that exists at the server from now on, because its reset was answered."""
        self._inside.add(player)
        self._peak_inside = max(self._peak_inside, len(self._inside))

    def failed(self, *, reached: bool) -> None:
        """Count a session that did not open; `reached` says whether the server answered at all."""
        self._failed += 1
        self._reached = self._reached or reached
        self._settle()

    def record(
        self,
        session: int,
        seq: int,
        phase: Phase,
        *,
        warmup: bool,
        span_ns: tuple[int, int],
        intended_ns: int | None,
        status: Status,
        error: str | None,
    ) -> None:
        """Keep the sample of one operation that took place in `span_ns` (start, end).

        `intended_ns` is when the schedule wanted it; None where it wants an operation when it is sent.
        """
        start, end = span_ns
        intended = start if intended_ns is None else min(intended_ns, start)
        self.samples.append(session, seq, phase, warmup, intended, start, end - start, status, error)
        if error is not None:
            self._errors[error] += 1

    def stepped(self) -> None:
        """Count a step that was answered."""
        self._steps += 1

    def differed(self, example: WrongReply) -> None:
        """Keep a wrong reply as an example, if there are not enough of them."""
        if len(self._wrong) < EXAMPLES_KEPT:
            self._wrong.append(example)

    def faulted(self, fault: Exception) -> None:
        """Note a fault of the load engine itself: the counts can then not be trusted."""
        self._fault = self._fault or f"a fault of the load engine itself: {type(fault).__name__}: {fault}"

    def over(self, player: Any, held: Held | None, *, succeeded: bool) -> None:
        """Count a session that is over, well or badly."""
        self._players.discard(player)
        self._inside.discard(player)
        if held is not None:
            self._open.discard(held)
        self._succeeded += succeeded
        self._over += 1
        if self._over == self.size and self.stopped_by is None:
            gevent.spawn(self._finish)

    def go(self) -> None:
        """Open the barrier, and count who is there."""
        # One turn of the event loop first: whoever lost the connection already learns it and is not counted.
        gevent.sleep(0)
        if self.ended:
            return
        if not self._is_open_loop:
            self._peak_open = sum(not connection.lost for connection in self._open)
        self._rss_held = _resident_bytes()
        self._went = _clocks()
        self._lags = array("q")
        self.barrier.open()

    def stop(self, why: EndedBy) -> None:
        """End all sessions now, record what they were doing, and write; returns when it is written."""
        if self.ended or self.stopped_by:
            self._written.wait(STOP_PATIENCE_S)
            return
        self.stopped_by = why
        players = list(self._players)
        for player in players:
            player.kill(block=False)
        gevent.joinall(players, timeout=STOP_PATIENCE_S)
        self._finish()

    def _dial(self, endpoint: Endpoint, timeout: float) -> Connection:
        self._dialed += 1
        return Connection.open(endpoint.address, endpoint.port, host=self.plan.host, timeout=timeout)

    def _settle(self) -> None:
        # Sessions of an open loop are not waited for: they come when it is their time.
        if self._is_open_loop and self.barrier.opened:
            return
        if self._is_open_loop or self._opened + self._failed == self.size:
            self._on_progress(self._progress())
            self._on_held()
            if not self.size:
                gevent.spawn(self._finish)

    def _probe_lag(self) -> None:
        while True:
            due = time.perf_counter_ns() + round(LAG_INTERVAL_S * 1e9)
            gevent.sleep(LAG_INTERVAL_S)
            self._lags.append(time.perf_counter_ns() - due)
            if self.barrier.opened:
                self._counted.append(
                    len(self._open) if self.wire.transport == "websocket" else len(self._inside)
                )

    def _tell_progress(self) -> None:
        while True:
            gevent.sleep(PROGRESS_INTERVAL_S)
            self._on_progress(self._progress())

    def _progress(self) -> ShareProgress:
        return ShareProgress(self.place.rank, self._opened, self._failed, self._steps, self._over)

    def _finish(self) -> None:
        if self.ended:
            return
        self.ended = True
        wall_ns, cpu_s = _clocks()
        gevent.killall(self._greenlets)
        self._on_progress(self._progress())
        file = self.plan.out / f"samples-{self.place.rank}.rows"
        part: str | None = file.name
        failure = self._fault
        try:
            _write_samples(self.samples, file)
        except OSError as e:
            part = None
            failure = f"the samples could not be written to {self.plan.out}: {e.strerror or e}"
        went = self.barrier.opened
        wire = self.wire
        self._pool.close()
        self._on_end(
            ShareSummary(
                rank=self.place.rank,
                sessions=self.size,
                opened=self._opened,
                succeeded=self._succeeded,
                mean_open=sum(self._counted) / len(self._counted) if self._counted else None,
                peak_open=self._peak_open if wire.transport == "websocket" else self._peak_inside,
                transport=wire.transport,
                connection=wire.connection if wire.transport == "http" else None,
                connections=self._dialed if wire.transport == "http" else None,
                reached=self._reached,
                samples=len(self.samples),
                part=part,
                errors=dict(self._errors.most_common(ERRORS_KEPT)),
                wrong=tuple(self._wrong),
                cpu_s=cpu_s - self._began[1],
                wall_s=(wall_ns - self._began[0]) / 1e9,
                held_cpu_s=cpu_s - self._went[1] if went else None,
                held_wall_s=(wall_ns - self._went[0]) / 1e9 if went else None,
                loop_lag_p99_ns=_p99(self._lags) if went else None,
                ramp_lag_p99_ns=_p99(self._ramp_lags),
                rss_start_bytes=self._rss_start,
                rss_held_bytes=self._rss_held,
                clock_offset_ns=self.clock.offset_ns,
                clock_error_ns=self.clock.error_ns,
                ended_by=self.stopped_by or "plan",
                failure=failure,
            )
        )
        self._written.set()


def _step_frames(plan: LoadPlan, wire: Wire, numbers: Collection[int]) -> dict[int, tuple[str, ...]]:
    if wire.transport != "websocket":
        return {}
    return {
        number: tuple(
            wire.step(call.name, call.arguments) for call in plan.scripts[number].calls[: plan.turns]
        )
        for number in numbers
    }


def _write_samples(samples: SampleColumns, file: Path) -> None:
    # As they lie in memory: to write Parquet here, a worker would import pandas for seconds, and its master would
    # take it for dead.
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(file.name + ".part")
    with unfinished.open("wb") as rows:
        samples.dump(rows)
    unfinished.replace(file)


def _clocks() -> tuple[int, float]:
    return time.perf_counter_ns(), time.process_time()


def _resident_bytes() -> int | None:
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None


def _p99(values: array[int]) -> int | None:
    """Return the 99th percentile by the nearest-rank definition."""
    return sorted(values)[math.ceil(0.99 * len(values)) - 1] if values else None
