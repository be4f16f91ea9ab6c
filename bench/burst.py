"""The published burst method, beside our own: how many sessions may come at once before too many of them fail.

openenv-scaling starts N coroutines of one client process at the same time, each of which connects, resets, makes one
step and closes. The largest N of which at least 95 % succeed, on the mean of three repetitions, is its figure. N is the
size of a burst: the first sessions have left before the last one has arrived, so that fewer are open together, and no
latency is asked for. How many are open at the same time follows from Little's law and stands beside it here.
"""

from __future__ import annotations

import statistics

import numpy as np
import pyarrow as pa

from bench.arrival import BURST
from bench.ceiling import Trial, evaluate_success_only
from bench.client import WorkerDied, WorkerError
from bench.machine import Pressure
from bench.plan import BURST_METHOD
from bench.progress import Progress
from bench.recording import Recording
from bench.records import Burst, End, samples_table
from bench.samples import Phase, SampleColumns, Status
from bench.server import Server, reading
from bench.stats import population
from bench.workloads import NANOSECONDS

SHARE = 0.95
"""What the mean share of success must reach."""


async def play_bursts(recording: Recording, server: Server) -> list[Burst]:
    """Play bursts of the plan's sizes, ascending, until one fails; record every one of them.

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
        found.append(await _play_size(recording, server, sessions))
        recording.writer.write(found[-1])
        if not found[-1].passed:
            break
    return found


async def _play_size(recording: Recording, server: Server, sessions: int) -> Burst:
    trials: list[Trial] = []
    seconds: list[float] = []
    means: list[float] = []
    of = recording.plan.burst_trials
    for repetition in range(of):
        recording.on_progress(Progress(f"bursts of {sessions:,}", repetition, of))
        trial, table = await _play_once(recording, server, sessions, repetition)
        trials.append(trial)
        wall_s, mean = _concurrency(table)
        seconds.append(wall_s)
        means.append(mean)
    recording.on_progress(Progress(f"bursts of {sessions:,}", of, of))
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
    recording.begin(
        cell,
        server=server,
        workload=workload,
        engine="client",
        sessions=sessions,
        repetition=repetition,
        arrival=BURST,
    )
    before, server_before = Pressure.read(), await server.read()
    batches: list[SampleColumns] = []
    loaded = server_after = failure = None
    try:
        async with server.watch():
            loaded = await recording.load(
                server,
                workload,
                batches.append,
                sessions=sessions,
                concurrency=sessions,
                # The published method asks whether an answer came, not which.
                is_checked=False,
                timeout_s=recording.plan.patience_s,
            )
        server_after = await server.settle(server_before.open_sessions, recording.plan.settle_s)
    except WorkerError as error:
        failure = error
    finally:
        recording.writer.write_samples(cell, *batches)
    peak = server.peak.open_sessions or 0
    recording.writer.write(
        End(
            cell=cell,
            status=recording.status if failure is None else "failed",
            reason=recording.reason if failure is None else str(failure),
            pressure_before=before,
            pressure_after=Pressure.read(),
            server_before=reading(server_before),
            server_peak=server.peak,
            server_after=reading(server_after) if server_after else None,
            peak_open=loaded.peak_open if loaded else None,
            opened=loaded.opened if loaded else None,
            succeeded=loaded.succeeded if loaded else None,
        )
    )
    if isinstance(failure, WorkerDied) and recording.driver.has_died:
        raise failure
    table = pa.concat_tables([samples_table(batch) for batch in batches]) if batches else None
    table = samples_table(SampleColumns()) if table is None else table.unify_dictionaries().combine_chunks()
    errors = table.filter(pa.compute.is_valid(table["error"]))["error"].to_pylist()
    trial = Trial(
        cell=cell,
        sessions=sessions,
        succeeded=loaded.succeeded if loaded else 0,
        peak_open=loaded.peak_open if loaded else None,
        server_open=max(0, peak - server_before.open_sessions),
        is_held=False,
        wait_ns=workload.tool_ns,
        connect=population(table, Phase.CONNECT),
        reset=population(table, Phase.RESET),
        step=population(table, Phase.STEP),
        generator=None,
        errors={text: errors.count(text) for text in dict.fromkeys(errors)},
    )
    return trial, table


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
