"""Latencies at one session: connect, reset, step and close, with the framework's own client."""

from __future__ import annotations

from bench.client import WorkerDied, WorkerError
from bench.machine import Pressure
from bench.progress import Progress
from bench.recording import Recording
from bench.records import End
from bench.samples import SampleColumns
from bench.server import Server, reading
from bench.workloads import Workload

_CELL = "latency-1"


async def time_one_session(recording: Recording, server: Server) -> None:
    """Play sessions one after the other and record every operation.

    Raises:
        WorkerDied: The client or the server died; what was measured until then is recorded.
    """
    plan = recording.plan
    workload = Workload(turns=plan.latency_turns)
    sessions = plan.latency_sessions + plan.warmup_sessions
    operations = sessions * (workload.turns + 3)
    batches: list[SampleColumns] = []

    def on_samples(batch: SampleColumns) -> None:
        batches.append(batch)
        done = sum(map(len, batches))
        recording.on_progress(Progress("latencies at one session", done, operations, "operations"))

    recording.begin(_CELL, server=server, workload=workload, engine="client")
    before, own, server_before = Pressure.read(), await recording.own_cpu_s(server), await server.read()
    loaded = server_after = failure = None
    try:
        async with server.watch():
            loaded = await recording.load(
                server, workload, on_samples, sessions=sessions, warmup=plan.warmup_sessions
            )
        server_after = await server.settle(server_before.open_sessions)
    except WorkerError as error:
        failure = error
    finally:
        recording.writer.write_samples(_CELL, *batches)
    recording.writer.write(
        End(
            cell=_CELL,
            status=recording.status if failure is None else "failed",
            reason=recording.reason if failure is None else str(failure),
            pressure_before=before,
            pressure_after=Pressure.read(),
            own_cpu_s=max(0.0, await recording.own_cpu_s(server) - own),
            server_before=reading(server_before),
            server_peak=server.peak,
            server_after=reading(server_after) if server_after else None,
            peak_open=loaded.peak_open if loaded else None,
            opened=loaded.opened if loaded else None,
            succeeded=loaded.succeeded if loaded else None,
        )
    )
    if isinstance(failure, WorkerDied):
        raise failure
