"""The planner's own test: fit a cost model from a few cells, predict others, measure them, and record both."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from bench.benchmark import make_header
from bench.ceiling import Ask
from bench.client import WorkerError, start_worker
from bench.held import hold
from bench.planner import CHECK_TURNS, IDLE, CostModel, NotEnough, Observation, cost_of, observations
from bench.progress import OnProgress, Progress, ignore_progress
from bench.recording import Recording, Request, make_scripts
from bench.records import Cost, Note, Prediction, Run, RunWriter, read_run
from bench.server import start_server
from bench.workloads import NANOSECONDS, Workload
from canonical.catalogue import load_environment

FIT_TURNS = (2, 5)
"""Turns of the cells that the cost model is fitted to; others than `CHECK_TURNS`."""

_TOOL_NS = NANOSECONDS // 5
_FIRST_USES = 4
_QUANTITIES = (
    ("server_cpu", "s"),
    ("memory", "bytes"),
    ("descriptors", "descriptors"),
    ("threads", "threads"),
)


class _Stage(NamedTuple):
    sessions: int
    turns: int
    is_last: bool
    """Whether it is the last trial of its shape."""


async def calibrate(
    request: Request, loads: Sequence[int], *, trials: int = 1, on_progress: OnProgress = ignore_progress
) -> CostModel:
    """Measure the cells of a cost model, fit it, predict other cells, measure those too, and write a run folder.

    Every cell has a fresh server, so that memory which an earlier one left behind is not missing; what a server does once,
    when it is first used, lies before the cell. The model is fitted to numbers of sessions from the smallest load to half
    of the largest, with 2 and with 5 turns; it is tried on all loads with 4 turns, so that the largest is twice what the
    model has seen.

    Args:
        request: What to measure; the workload of its plan is replaced.
        loads: Numbers of sessions to try it on, ascending.
        trials: How often each cell is measured; predictions are held against the trial in the middle.
        on_progress: Hears how far it has come.

    Raises:
        WorkerError: A worker broke down, or a cell of the fit did not come to its end.
        ValueError: There are fewer than two loads, or the framework runs in process.
    """
    if len(loads) < 2 or sorted(set(loads)) != list(loads):
        raise ValueError("it takes at least two loads, ascending")
    if request.stack.facts.kind != "server":
        raise ValueError(
            f"{request.stack.facts.title} runs environments in process, so it has no replicas to plan"
        )
    environment = load_environment(request.environment)
    half = max(loads[0] + 1, loads[-1] // 2)
    fitted = sorted({loads[0], (loads[0] + half) // 2, half})
    stages = [
        *(
            _Stage(sessions, turns, trial == trials - 1)
            for trial in range(trials)
            for turns in FIT_TURNS
            for sessions in fitted
        ),
        *(
            _Stage(sessions, CHECK_TURNS, trial == trials - 1)
            for sessions in loads
            for trial in range(trials)
        ),
    ]
    stack = request.stack
    async with start_worker(stack.python, stack.worker, label=f"the {stack.label} client") as driver:
        with RunWriter(request.folder, make_header(request, environment, driver.started)) as writer:
            most = max(FIT_TURNS)
            plan = request.plan.model_copy(update={"latency_turns": most, "held": _workload(most)})
            recording = Recording(request, writer, driver, await make_scripts(environment, plan), on_progress)
            cost: CostModel | None = None
            idle_ns: list[float] = []
            for number, stage in enumerate(stages):
                on_progress(Progress("cells", number, len(stages), f"{stage.sessions} sessions"))
                if stage.turns == CHECK_TURNS and cost is None:
                    writer.write(Cost(name=IDLE, value=statistics.mean(idle_ns), unit="ns", n=len(idle_ns)))
                    cost = _fitted(read_run(request.folder))
                    _write_cost(writer, cost)
                idle_ns.append(await _measure(recording, stage, number))
                if stage.turns == CHECK_TURNS and stage.is_last and cost is not None:
                    _write_predictions(writer, cost, read_run(request.folder), stage.sessions)
            on_progress(Progress("cells", len(stages), len(stages)))
    if cost is None:
        raise WorkerError("no cell was measured")
    return cost


def _workload(turns: int) -> Workload:
    return Workload(turns=turns, tool_ns=_TOOL_NS, tool_kind="async", spread_ns=_TOOL_NS)


async def _measure(recording: Recording, stage: _Stage, number: int) -> float:
    """Measure a cell in a fresh server; return the CPU time, in ns, of one second before it in which nobody came."""
    workload = _workload(stage.turns)
    plan = recording.plan.model_copy(update={"held": workload})
    recording.request = replace(recording.request, plan=plan)
    request = recording.request
    async with start_server(
        request.stack, request.environment, client=recording.driver, workload=workload
    ) as server:
        # What is loaded or built at the first use is no cost of a session.
        await recording.load(server, Workload(turns=1), lambda _: None, sessions=_FIRST_USES)
        before = await server.read()
        for _ in range(2):
            await asyncio.sleep(0.5)
            after = await server.read()
        await hold(recording, Ask(stage.sessions, "confirm", fresh_server=True), server, number)
    return float(after.cpu_ns - before.cpu_ns)


def _fitted(run: Run) -> CostModel:
    try:
        return cost_of(run)
    except NotEnough as error:
        raise WorkerError(str(error)) from error


def _write_cost(writer: RunWriter, cost: CostModel) -> None:
    for name, value, unit in (
        ("server_cpu_per_session", cost.session_s * NANOSECONDS, "ns"),
        ("server_cpu_per_step", cost.step_s * NANOSECONDS, "ns"),
        ("server_memory_base", cost.memory_base, "bytes"),
        ("server_memory_per_session", cost.memory_session, "bytes"),
        ("server_descriptors_base", cost.fds_base, "descriptors"),
        ("server_descriptors_per_session", cost.fds_session, "descriptors"),
        ("server_threads_base", cost.threads_base, "threads"),
        ("server_threads_per_session", cost.threads_session, "threads"),
    ):
        writer.write(Cost(name=name, value=value, unit=unit, n=cost.cells))


def _write_predictions(writer: RunWriter, cost: CostModel, run: Run, sessions: int) -> None:
    seen = [one for one in observations(run) if one.turns == CHECK_TURNS and one.sessions == sessions]
    if not seen:
        writer.write(
            Note(
                text=f"The cell with {sessions:,} sessions did not come to its end, so nothing is compared there."
            )
        )
        return
    for place, (quantity, unit) in enumerate(_QUANTITIES):
        # Of several trials the one in the middle counts, by what is compared.
        chosen = sorted(seen, key=lambda one: measure(one)[place])[len(seen) // 2]
        writer.write(
            Prediction(
                cell=chosen.cell,
                sessions=sessions,
                quantity=quantity,
                unit=unit,
                predicted=predict(cost, chosen)[place],
                measured=measure(chosen)[place],
            )
        )


def predict(cost: CostModel, seen: Observation) -> tuple[float, float, float, float]:
    """Return CPU seconds, memory, descriptors and threads that the model predicts for a cell of this shape."""
    return (
        cost.cpu_s(sessions=seen.sessions, turns=seen.turns, wall_s=seen.wall_s),
        cost.memory_bytes(seen.sessions),
        cost.fds(seen.sessions),
        cost.threads(seen.sessions),
    )


def measure(seen: Observation) -> tuple[float, float, float, float]:
    """Return CPU seconds, memory, descriptors and threads of a cell."""
    return seen.cpu_s, seen.memory_peak, seen.fds_peak, seen.threads_peak
