"""What a load run amounts to, beside its samples: counts, the cost of generating it, and how it ended."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from bench.load.wire import Pooling, Transport

if TYPE_CHECKING:
    from collections.abc import Iterable

EndedBy: TypeAlias = Literal["plan", "time_limit", "interrupted"]
"""`plan`: every session was played to its end, well or badly."""

SUMMARY_FILE = "summary.json"

ERRORS_KEPT = 20
"""Distinct error texts that a summary keeps, the most frequent first."""
EXAMPLES_KEPT = 5
"""Wrong replies that each worker keeps in full."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Difference(_Part):
    """One piece of a reply that differs from the reference, both sides written out."""

    piece: Literal["text", "reward", "ended", "total"]
    expected: str
    got: str


class WrongReply(_Part):
    """One reply that differs from the reference."""

    session: int
    task: str
    turn: int | None = None
    """Number of the step from 0; absent for the reset and the score."""
    differences: tuple[Difference, ...]


class ShareSummary(_Part):
    """What one generator process did."""

    rank: int
    sessions: int
    opened: int = 0
    """Sessions whose connection came about."""
    succeeded: int = 0
    """Sessions whose every operation was answered, and answered rightly."""
    peak_open: int = 0
    """Sessions open at the same time. WebSockets: counted when the barrier opened. Over HTTP, where a session is no
    connection: the most that were between the answer to their reset and their end."""
    mean_open: float | None = None
    """The same on average, counted every 10 ms from the opening of the barrier until the last session was over."""
    transport: Transport | None = None
    connection: Pooling | None = None
    """Which connections the requests took, over HTTP."""
    connections: int | None = None
    """TCP connections that were opened, over HTTP."""
    reached: bool = False
    """Whether the server ever answered, be it with a refusal."""
    samples: int = 0
    part: str | None = None
    """File name of the samples, which are as `bench.samples.SampleColumns.dump` writes them."""
    errors: dict[str, int] = {}
    wrong: tuple[WrongReply, ...] = ()
    cpu_s: float = 0.0
    """CPU seconds of the process from the first handshake to the last close."""
    wall_s: float = 0.0
    held_cpu_s: float | None = None
    """CPU seconds from the opening of the barrier on; absent if it never opened."""
    held_wall_s: float | None = None
    loop_lag_p99_ns: int | None = None
    """99th percentile of how late the event loop woke a 10 ms sleeper after the barrier opened."""
    ramp_lag_p99_ns: int | None = None
    """The same, before the barrier opened."""
    rss_start_bytes: int | None = None
    """Resident memory before the first handshake."""
    rss_held_bytes: int | None = None
    """Resident memory when the barrier opened."""
    clock_offset_ns: int | None = None
    """How far the clock of the master is ahead of this worker's, whose samples tell the time by its own."""
    clock_error_ns: int | None = None
    """How far that may be off."""
    ended_by: EndedBy = "plan"
    failure: str | None = None
    """Why this worker's part of the plan could not be carried out, or its samples not be written."""


def shift_ns(share: ShareSummary) -> int:
    """Return what must be added to the times of a worker's samples to make them times of the master.

    Zero where its clock is the same, as on one machine: what cannot be told from an error is not corrected.
    """
    offset, error = share.clock_offset_ns, share.clock_error_ns
    if offset is None or error is None or abs(offset) <= error:
        return 0
    return offset


class LoadSummary(_Part):
    """What all generator processes did together."""

    sessions: int
    opened: int
    succeeded: int
    peak_open: int
    mean_open: float | None = None
    """Sessions open on average from the opening of the barrier on."""
    samples: int
    errors: dict[str, int]
    cpu_s: float
    wall_s: float
    """From the first handshake to the last close, of the worker that took longest."""
    cores: int
    """Generator processes; each keeps at most one core busy."""
    utilisation: float | None = None
    """CPU share of the busiest generator process from the opening of the barrier on."""
    loop_lag_p99_ns: int | None = None
    """Of the worker that lagged most, because percentiles are not averaged."""
    transport: Transport | None = None
    connection: Pooling | None = None
    """Which connections the requests took, over HTTP."""
    connections: int | None = None
    """TCP connections that were opened, over HTTP."""
    ended_by: EndedBy
    failure: str | None = None
    """Why the plan could not be carried out; absent when it was, however many sessions failed."""
    shares: tuple[ShareSummary, ...]


def merge(
    sessions: int, shares: Iterable[ShareSummary], *, ended_by: EndedBy, failure: str | None
) -> LoadSummary:
    """Add up the summaries of all workers of a run of `sessions` sessions."""
    shares = tuple(sorted(shares, key=lambda share: share.rank))
    errors: Counter[str] = Counter()
    for share in shares:
        errors.update(share.errors)
    lags = [share.loop_lag_p99_ns for share in shares if share.loop_lag_p99_ns is not None]
    means = [share.mean_open for share in shares if share.mean_open is not None]
    dialed = [share.connections for share in shares if share.connections is not None]
    busy = [
        share.held_cpu_s / share.held_wall_s for share in shares if share.held_cpu_s and share.held_wall_s
    ]
    return LoadSummary(
        sessions=sessions,
        opened=sum(share.opened for share in shares),
        succeeded=sum(share.succeeded for share in shares),
        peak_open=sum(share.peak_open for share in shares),
        mean_open=sum(means) if means else None,
        samples=sum(share.samples for share in shares),
        errors=dict(errors.most_common(ERRORS_KEPT)),
        cpu_s=sum(share.cpu_s for share in shares),
        wall_s=max((share.wall_s for share in shares), default=0.0),
        cores=len(shares),
        utilisation=max(busy, default=None),
        loop_lag_p99_ns=max(lags, default=None),
        transport=next((share.transport for share in shares if share.transport), None),
        connection=next((share.connection for share in shares if share.connection), None),
        connections=sum(dialed) if dialed else None,
        ended_by=ended_by,
        failure=failure,
        shares=shares,
    )
