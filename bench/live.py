"""Live episodes: how much a step costs while more and more of them are alive in one process, in each way to step them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from bench import protocol
from bench.client import RequestFailed, Worker, WorkerError, start_worker
from bench.machine import Pressure, available_bytes
from bench.progress import Progress
from bench.recording import Recording, expect
from bench.records import Live, Note, Rollouts
from bench.stats import interval_ranks
from bench.workloads import NANOSECONDS, play_unfinished
from canonical.catalogue import load_environment
from canonical.environment import Environment, NoOracleError
from canonical.episode import Episode
from canonical.step import StepResult
from canonical.task import Task
from canonical.tool import ToolCall

_TIMEOUT_S = 1800.0
_MEMORY_SHARE = 0.25
_WARMUP_BATCHES = 10
_CALLS_BEFORE = 3


async def measure_live(recording: Recording) -> None:
    """Hold live episodes in the numbers of the plan, by each executor and each rollout path of the adapter.

    Does nothing for a framework whose adapter lists none. Each executor has a process of its own, and goes upwards, so that
    memory which smaller numbers left behind is used again and counted once. What would take too long or too much memory
    is left out, and a note says so.

    Raises:
        WorkerError: A worker broke down.
    """
    ways = await recording.driver.request(
        protocol.Ways, lambda seq: protocol.ListWays(seq=seq), timeout_s=_TIMEOUT_S
    )
    environment = load_environment(recording.request.environment)
    if ways.executors and recording.plan.live:
        scripts = await _live_scripts(environment, recording)
        for name, way in ways.executors.items():
            async with _fresh_worker(recording, name) as worker:
                await _climb(recording, worker, name, way, scripts)
    if ways.rollouts and recording.plan.rollouts:
        try:
            scripts = await _whole_scripts(environment, recording)
        except NoOracleError as error:
            recording.writer.write(Note(text=f"Whole rollouts were not measured: {error}"))
            return
        for number, (name, way) in enumerate(ways.rollouts.items()):
            recording.on_progress(Progress("whole rollouts", number, len(ways.rollouts), name))
            async with _fresh_worker(recording, name) as worker:
                await _roll(recording, worker, name, way, scripts)
        recording.on_progress(Progress("whole rollouts", len(ways.rollouts), len(ways.rollouts)))


def _fresh_worker(recording: Recording, name: str) -> Any:
    stack = recording.request.stack
    return start_worker(stack.python, stack.worker, label=f"the {stack.label} process for {name}")


async def _live_scripts(environment: Environment[Any], recording: Recording) -> list[protocol.Script]:
    # Frameworks that choose tasks by seeds alone take the seed as a place in the split for training.
    tasks = environment.tasks().split(environment.tasks().training_split)
    turns = recording.plan.live_turns
    scripts = []
    for seed, task in enumerate(tasks[: recording.plan.scripts]):
        # One call more than is played, so that none of them ends the episode: a vector environment would reset it.
        played = (await play_unfinished(environment, task, seed=seed, turns=turns + 1))[:turns]
        if len(played) < turns:
            raise WorkerError(
                f"{environment.name} offers no {turns} calls on task {task.id} that leave the episode going"
            )
        scripts.append(
            protocol.Script(
                task=task.id,
                seed=seed,
                calls=[call.to_json() for call, _ in played],
                expected=[expect(result) for _, result in played],
            )
        )
    return scripts


async def _whole_scripts(environment: Environment[Any], recording: Recording) -> list[protocol.Script]:
    # A rollout lasts until its episode is over: some calls that leave it going, then what the oracle plays.
    tasks = environment.tasks().split(environment.tasks().training_split)
    scripts = []
    for task in tasks[: recording.plan.rollouts]:
        solution = environment.oracle(task)
        before = await play_unfinished(environment, task, seed=0, turns=_CALLS_BEFORE + 1)
        calls = [*(call for call, _ in before[:_CALLS_BEFORE]), *solution]
        results = await _play(environment, task, calls)
        if results[-1].cause is None:
            raise WorkerError(
                f"what the oracle of {environment.name} plays on task {task.id} does not end it"
            )
        scripts.append(
            protocol.Script(
                task=task.id,
                seed=0,
                calls=[call.to_json() for call in calls],
                expected=[expect(result) for result in results],
            )
        )
    return scripts


async def _play(environment: Environment[Any], task: Task, calls: Sequence[ToolCall]) -> list[StepResult]:
    episode = await Episode.open_async(environment, task, seed=0)
    try:
        return [await episode.step_async(call) for call in calls]
    finally:
        await episode.close_async()


async def _climb(
    recording: Recording, worker: Worker, name: str, way: protocol.Way, scripts: list[protocol.Script]
) -> None:
    plan = recording.plan
    part = f"live episodes: {name}"
    # What is loaded or built at the first use belongs to no episode.
    warm = await _step(recording, worker, name, scripts, sessions=1, batches=_WARMUP_BATCHES)
    seconds = (warm.open_ns + warm.close_ns + sum(warm.step_ns)) / _WARMUP_BATCHES / NANOSECONDS
    base = (await worker.observe(collect=True)).uss_bytes
    per_session: float | None = None
    numbers = [number for number in plan.live if way.most is None or number <= way.most]
    for place, sessions in enumerate(numbers):
        recording.on_progress(Progress(part, place, len(numbers), f"{sessions:,} alive"))
        reason = _obstacle(seconds * sessions, plan.live_budget_s, sessions * (per_session or 0))
        if reason is not None:
            recording.writer.write(
                Note(text=f"{sessions:,} live episodes by {name} were left out: {reason}.")
            )
            break
        wanted = math.ceil(plan.live_steps / (sessions * plan.live_turns))
        affordable = math.floor(plan.live_budget_s / 8 / (seconds * sessions))
        batches = max(1, min(wanted, affordable))
        before, own = Pressure.read(), await recording.own_cpu_s(worker)
        try:
            found = await _step(recording, worker, name, scripts, sessions=sessions, batches=batches)
        except RequestFailed as error:
            recording.writer.write(
                Note(text=f"{sessions:,} live episodes by {name} were not held: {error.reason}")
            )
            break
        episodes = sessions * batches
        seconds = (found.open_ns + found.close_ns + sum(found.step_ns) * sessions) / episodes / NANOSECONDS
        if base is not None and found.uss_open_bytes is not None:
            per_session = max(0, found.uss_open_bytes - base) / sessions
        used = max(0.0, await recording.own_cpu_s(worker) - own)
        recording.writer.write(
            _live(name, way, found, (sessions, batches), per_session).model_copy(
                update={"pressure_before": before, "pressure_after": Pressure.read(), "own_cpu_s": used}
            )
        )
    recording.on_progress(Progress(part, len(numbers), len(numbers)))


def _obstacle(seconds: float, budget_s: float, needed_bytes: float) -> str | None:
    if seconds > budget_s:
        return f"going by the number before, a batch would take {seconds:.0f} s, and the plan allows {budget_s:.0f} s"
    free = available_bytes()
    if free is not None and needed_bytes > _MEMORY_SHARE * free:
        return (
            f"they would need {needed_bytes / 2**30:.1f} GiB, more than {_MEMORY_SHARE:.0%} of what is free"
        )
    return None


async def _step(
    recording: Recording,
    worker: Worker,
    name: str,
    scripts: list[protocol.Script],
    *,
    sessions: int,
    batches: int,
) -> protocol.SteppedTogether:
    return await worker.request(
        protocol.SteppedTogether,
        lambda seq: protocol.StepTogether(
            seq=seq,
            environment=recording.request.environment,
            executor=name,
            sessions=sessions,
            batches=batches,
            scripts=scripts,
        ),
        timeout_s=_TIMEOUT_S,
    )


def _live(
    name: str,
    way: protocol.Way,
    found: protocol.SteppedTogether,
    shape: tuple[int, int],
    per_session: float | None,
) -> Live:
    sessions, batches = shape
    rounds = sorted(found.step_ns)
    ranks = interval_ranks(len(rounds), 0.5)
    low, high = (None, None) if ranks is None else (rounds[rank - 1] for rank in ranks)
    steps = sessions * len(rounds)
    return Live(
        executor=name,
        note=way.note,
        sessions=sessions,
        batches=batches,
        rounds=len(rounds) // batches,
        steps=steps,
        wrong=found.wrong,
        first_wrong=found.first_wrong,
        step_ns=statistics.median(rounds),
        step_low_ns=low,
        step_high_ns=high,
        step_cpu_ns=found.step_cpu_ns / steps,
        open_ns=found.open_ns / (sessions * batches),
        close_ns=found.close_ns / (sessions * batches),
        bytes_per_session=per_session,
        threads=found.threads,
    )


async def _roll(
    recording: Recording, worker: Worker, name: str, way: protocol.Way, scripts: list[protocol.Script]
) -> None:
    number = recording.plan.rollouts

    async def roll(rollouts: int) -> protocol.RolledOut:
        return await worker.request(
            protocol.RolledOut,
            lambda seq: protocol.RollOut(
                seq=seq,
                environment=recording.request.environment,
                path=name,
                rollouts=rollouts,
                scripts=scripts,
            ),
            timeout_s=_TIMEOUT_S,
        )

    try:
        # The first one pays for what is loaded once.
        await roll(1)
        found = await roll(number)
    except RequestFailed as error:
        recording.writer.write(Note(text=f"Rollouts by {name} were not measured: {error.reason}"))
        return
    recording.writer.write(
        Rollouts(
            path=name,
            note=way.note,
            rollouts=number,
            concurrency=number,
            turns=len(scripts[0].calls),
            succeeded=found.succeeded,
            first_wrong=found.first_wrong,
            wall_ns=found.wall_ns / number,
            cpu_ns=found.cpu_ns / number,
            bytes_per_rollout=None if found.growth_bytes is None else found.growth_bytes / number,
            processes=found.processes / number,
        )
    )
