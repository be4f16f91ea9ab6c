"""The planner's own test: fit a cost model from a few cells, predict others, measure them, and record both."""

from __future__ import annotations

import asyncio
import random
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
_STEPS_PER_S = 300
"""Steps that every cell asks for in a second: less than any of the servers can do with a generator beside it."""
_FIRST_USES = 4
_QUANTITIES = (
    ("server_cpu", "s"),
    ("memory", "bytes"),
    ("descriptors", "descriptors"),
    ("threads", "threads"),
)


class Stage(NamedTuple):
    """One cell that is to be measured."""

    sessions: int
    turns: int


def stages_of(loads: Sequence[int], trials: int, rng: random.Random) -> list[Stage]:
    """Return every cell of a calibration in the order in which they are measured.

    Cells that the model is fitted to and cells that it is tried on are mixed, at random within each trial: what else goes on
    in the machine drifts, and would otherwise be taken for an error of the model.

    Args:
        loads: Numbers of sessions to try the model on, ascending.
        trials: How often each cell is measured.
        rng: Decides the order.
    """
    half = max(loads[0] + 1, loads[-1] // 2)
    fitted = sorted({loads[0], (loads[0] + half) // 2, half})
    shapes = [Stage(sessions, turns) for turns in FIT_TURNS for sessions in fitted]
    shapes += [Stage(sessions, CHECK_TURNS) for sessions in loads]
    return [stage for _ in range(trials) for stage in rng.sample(shapes, len(shapes))]


def workload_of(stage: Stage) -> Workload:
    """Return what the sessions of a cell do: so much of it that all cells ask for as many steps per second.

    A server that is hardly busy wakes up for every message, and one that is behind takes many at a time, which makes each
    cheaper. Cells that were differently busy would make that look like a cost of the number of sessions.
    """
    cycle_ns = max(_TOOL_NS, NANOSECONDS * stage.sessions // _STEPS_PER_S)
    return Workload(
        turns=stage.turns,
        tool_ns=_TOOL_NS,
        tool_kind="async",
        think_ns=cycle_ns - _TOOL_NS,
        spread_ns=cycle_ns,
    )


async def calibrate(
    request: Request, loads: Sequence[int], *, trials: int = 1, on_progress: OnProgress = ignore_progress
) -> CostModel:
    """Measure the cells of a cost model and other cells, fit it to the first, try it on the others, and write a run folder.

    Every cell has a fresh server, so that memory which an earlier one left behind is not missing; what a server does once,
    when it is first used, lies before the cell. The model is fitted to numbers of sessions from the smallest load to half
    of the largest, with 2 and with 5 turns; it is tried on all loads with 4 turns, so that the largest is twice what the
    model has seen.

    Args:
        request: What to measure; the workload of its plan is replaced. Its seed decides the order of the cells.
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
    stages = stages_of(loads, trials, random.Random(request.seed))  # noqa: S311 - the order must be reproducible
    stack = request.stack
    async with start_worker(stack.python, stack.worker, label=f"the {stack.label} client") as driver:
        with RunWriter(request.folder, make_header(request, environment, driver.started)) as writer:
            longest = Stage(max(loads), max(FIT_TURNS))
            plan = request.plan.model_copy(
                update={"latency_turns": longest.turns, "held": workload_of(longest)}
            )
            recording = Recording(request, writer, driver, await make_scripts(environment, plan), on_progress)
            idle_ns = []
            for number, stage in enumerate(stages):
                on_progress(Progress("cells", number, len(stages), f"{stage.sessions} sessions"))
                idle_ns.append(await _measure(recording, stage, number))
            on_progress(Progress("cells", len(stages), len(stages)))
            # The middle one: now and then something else wakes a server up within the second.
            writer.write(Cost(name=IDLE, value=statistics.median(idle_ns), unit="ns", n=len(idle_ns)))
            run = read_run(request.folder)
            cost = _fitted(run)
            _write_cost(writer, cost)
            for sessions in loads:
                _write_predictions(writer, cost, run, sessions)
    return cost


async def _measure(recording: Recording, stage: Stage, number: int) -> float:
    """Measure a cell in a fresh server; return the CPU time, in ns, of one second before it in which nobody came."""
    workload = workload_of(stage)
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
