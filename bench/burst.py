"""The published burst method, beside our own: how many sessions may come at once before too many of them fail.

openenv-scaling starts N coroutines of one client process at the same time, each of which connects, resets, makes one
step and closes. The largest N of which at least 95 % succeed, on the mean of three repetitions, is its figure. N is the
size of a burst: the first sessions have left before the last one has arrived, so that fewer are open together, and no
latency is asked for. How many are open at the same time follows from Little's law and stands beside it here.
"""

from __future__ import annotations

import statistics
from collections import Counter

import numpy as np
import pyarrow as pa

from bench.arrival import BURST
from bench.ceiling import Trial, evaluate_success_only
from bench.client import WorkerDied
from bench.plan import BURST_METHOD
from bench.progress import Progress
from bench.recording import Recording
from bench.records import Burst
from bench.samples import Phase, Status
from bench.server import Server
from bench.stats import population
from bench.trials import play_client
from bench.workloads import NANOSECONDS

SHARE = 0.95
"""What the mean share of success must reach."""


async def play_bursts(recording: Recording, server: Server) -> list[Burst]:
    """Play bursts of the plan's sizes, ascending, until one fails or the server dies; record every one of them.

    Args:
        recording: Where the cells go.
        server: The server, whose tools take as long as the plan's held workload says.

    Returns:
        What was recorded, one for each size.

    Raises:
        WorkerError: The client broke down.
    """
    found: list[Burst] = []
    for sessions in recording.plan.burst:
        burst = await _play_size(recording, server, sessions)
        if burst is None:
            break
        found.append(burst)
        recording.writer.write(burst)
        if not burst.passed:
            break
    return found


async def _play_size(recording: Recording, server: Server, sessions: int) -> Burst | None:
    trials: list[Trial] = []
    seconds: list[float] = []
    means: list[float] = []
    of = recording.plan.burst_trials
    for repetition in range(of):
        recording.on_progress(Progress(f"bursts of {sessions:,}", repetition, of))
        try:
            trial, table = await _play_once(recording, server, sessions, repetition)
        except WorkerDied:
            # It was the one before that ended the server, and it has been judged.
            if recording.driver.has_died:
                raise
            break
        trials.append(trial)
        wall_s, mean = _concurrency(table)
        seconds.append(wall_s)
        means.append(mean)
    recording.on_progress(Progress(f"bursts of {sessions:,}", of, of))
    if not trials:
        return None
    verdict = evaluate_success_only(trials, SHARE)
    recording.writer.write(verdict)
    wall_s = statistics.median(seconds)
    return Burst(
        method=BURST_METHOD,
        sessions=sessions,
        repetitions=len(trials),
        mean_success=sum(trial.succeeded for trial in trials) / (sessions * len(trials)),
        passed=verdict.passed,
        wall_s=wall_s,
        peak_open=max((trial.peak_open or 0 for trial in trials), default=0),
        server_open=max((trial.server_open or 0 for trial in trials), default=0),
        mean_open=statistics.median(means),
        executing=sessions * recording.plan.held.tool_ns / NANOSECONDS / wall_s if wall_s else 0.0,
        tool_ns=recording.plan.held.tool_ns,
    )


async def _play_once(
    recording: Recording, server: Server, sessions: int, repetition: int
) -> tuple[Trial, pa.Table]:
    workload = recording.plan.held.model_copy(update={"turns": 1, "think_ns": 0, "spread_ns": 0})
    cell = f"burst-{sessions:05d}-{repetition:02d}"
    loaded, samples, server_open = await play_client(
        recording,
        server,
        cell,
        sessions=sessions,
        workload=workload,
        arrival=BURST,
        repetition=repetition,
        # The published method asks whether an answer came, not which.
        is_checked=False,
    )
    errors = Counter(text for text in samples["error"].to_pylist() if text is not None)
    trial = Trial(
        cell=cell,
        sessions=sessions,
        succeeded=loaded.succeeded if loaded else 0,
        peak_open=loaded.peak_open if loaded else None,
        server_open=server_open,
        is_held=False,
        wait_ns=workload.tool_ns,
        connect=population(samples, Phase.CONNECT),
        reset=population(samples, Phase.RESET),
        step=population(samples, Phase.STEP),
        generator=None,
        errors=errors,
    )
    return trial, samples


def _concurrency(table: pa.Table) -> tuple[float, float]:
    """Return how long a burst lasted in seconds, and how many sessions were open on average by Little's law.

    Sessions that did everything leave the system at a rate of their number over that time, and each was in it from the
    end of its connect to the end of its close: rate times time is how many were open.
    """
    if not table.num_rows:
        return 0.0, 0.0
    start, ns = table["start_ns"].to_numpy(), table["ns"].to_numpy()
    phase = np.array(table["phase"].to_pylist())
    good = np.array(table["status"].to_pylist()) == str(Status.OK)
    session, end = table["session"].to_numpy(), start + ns
    wall_s = float(end.max() - start.min()) / NANOSECONDS
    begun = {
        int(one): int(at) for one, at in zip(*_of(session, end, (phase == "connect") & good), strict=True)
    }
    left = {int(one): int(at) for one, at in zip(*_of(session, end, (phase == "close") & good), strict=True)}
    inside = sum(left[one] - begun[one] for one in left.keys() & begun.keys()) / NANOSECONDS
    return wall_s, inside / wall_s if wall_s else 0.0


def _of(session: np.ndarray, end: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return session[which], end[which]
