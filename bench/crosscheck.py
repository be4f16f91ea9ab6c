"""The cross-check: one point measured by both load engines, locust and the framework's own client.

Locust speaks the wire by a light codec of this project, the other engine is what a trainer uses. Where a tool takes its
time, both must find the same step; where they do not, the difference is one of clients, and no ceiling of locust's holds
for the framework's users without saying so.
"""

from __future__ import annotations

from bench.client import WorkerDied
from bench.recording import Recording
from bench.records import CrossCheck, Note
from bench.samples import Phase
from bench.server import Server
from bench.stats import Quantile, population, quantile
from bench.trials import play_client, play_trial

TOLERANCE = 0.05
"""Relative difference of the medians up to which both engines agree in any case."""


async def cross_check(recording: Recording, server: Server) -> CrossCheck | None:
    """Play the held workload with both engines at one number of sessions, and record whether their steps agree.

    Args:
        recording: Where the cells go.
        server: The server, whose tools take as long as the plan's held workload says.

    Returns:
        What was recorded; None when the plan leaves it out, when too few steps came through, or when the server died.

    Raises:
        WorkerError: The client or the load generator broke down.
    """
    sessions = min(recording.plan.cross_check, recording.plan.cap)
    if not sessions:
        return None
    played = await play_trial(
        recording,
        server,
        "cross-locust",
        sessions=sessions,
        workload=recording.plan.held,
        part=f"cross-check: {sessions:,} sessions by locust",
    )
    try:
        client = await play_client(
            recording, server, "cross-client", sessions=sessions, workload=recording.plan.held
        )
    except WorkerDied:
        # Locust's part of it has said so; the search goes on with a new server.
        if recording.driver.has_died:
            raise
        return None
    theirs = population(client.samples, Phase.STEP)
    ours, other = quantile(played.trial.step, 0.5), quantile(theirs, 0.5)
    if not (isinstance(ours, Quantile) and isinstance(other, Quantile)) or max(
        ours.high, other.high
    ) == float("inf"):
        recording.writer.write(
            Note(
                text=f"The cross-check of both load engines at {sessions} sessions came to nothing: locust has "
                f"{played.trial.step.n} steps, {played.trial.step.failures} failed; the framework's client has "
                f"{theirs.n}, {theirs.failures} failed."
            )
        )
        return None
    found = compare_engines(sessions, ours, other)
    recording.writer.write(found)
    return found


def compare_engines(sessions: int, locust: Quantile, client: Quantile) -> CrossCheck:
    """Say whether two medians of a step agree: their intervals overlap, or they lie within 5 % of each other."""
    overlap = locust.low <= client.high and client.low <= locust.high
    near = abs(locust.value - client.value) <= TOLERANCE * min(locust.value, client.value)
    return CrossCheck(
        sessions=sessions,
        phase=Phase.STEP,
        client_ns=round(client.value),
        client_low_ns=round(client.low),
        client_high_ns=round(client.high),
        client_n=client.n,
        locust_ns=round(locust.value),
        locust_low_ns=round(locust.low),
        locust_high_ns=round(locust.high),
        locust_n=locust.n,
        agrees=overlap or near,
        tolerance=TOLERANCE,
    )
