"""Live: hold many episodes in this process, step all of them by one of the framework's ways, and measure each round."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import protocol
from bench.worker.compiled import CompiledEnvironments
from bench.worker.host import raise_file_limit, read_uss, trim
from canonical.adapter import Adapter
from canonical.executor import Executor, ExecutorListing, Part, RolloutListing, Start
from canonical.server_settings import SettableServer
from canonical.step import StepResult
from canonical.tool import ToolCall
from canonical.transcript import action_from_json

_SAMPLE_EVERY_S = 0.05


class UnknownWay(LookupError):  # noqa: N818 - what happened, read as a sentence
    """Report a way that an adapter does not have."""


def list_ways(adapter: Adapter[Any], seq: int) -> protocol.Ways:
    """Say in which ways an adapter steps many episodes of one process, takes whole rollouts, and serves."""
    executors = adapter.executors() if isinstance(adapter, ExecutorListing) else {}
    paths = adapter.rollout_paths() if isinstance(adapter, RolloutListing) else {}
    return protocol.Ways(
        seq=seq,
        executors={
            name: protocol.Way(note=executor.note, most=executor.most) for name, executor in executors.items()
        },
        rollouts={name: protocol.Way(note=path.note) for name, path in paths.items()},
        settings=dict(adapter.alternatives()) if isinstance(adapter, SettableServer) else {},
    )


async def step_together(
    adapter: Adapter[Any], compiled: CompiledEnvironments, request: protocol.StepTogether
) -> protocol.SteppedTogether:
    """Make, step and close batches of live episodes; only rounds are timed, and what they showed is checked between them.

    The garbage collector runs as it does in a trainer: with its own thresholds, over everything that is alive.

    Raises:
        UnknownWay: The adapter has no such executor.
        canonical.adapter.SessionError: The framework refused or failed.
    """
    raise_file_limit()
    executors = adapter.executors() if isinstance(adapter, ExecutorListing) else {}
    if request.executor not in executors:
        raise UnknownWay(
            f"{adapter.name} has no executor {request.executor!r}; there are {', '.join(executors)}"
        )
    crowd = _Crowd(executors[request.executor], compiled.get(request.environment), request)
    for batch in range(request.batches):
        await crowd.play(weigh=batch == 0)
    return protocol.SteppedTogether(
        seq=request.seq,
        step_ns=crowd.step_ns,
        step_cpu_ns=crowd.step_cpu_ns,
        open_ns=crowd.open_ns,
        close_ns=crowd.close_ns,
        wrong=crowd.wrong,
        first_wrong=crowd.first_wrong,
        uss_open_bytes=crowd.uss_open,
        threads=crowd.threads,
    )


class _Crowd:
    def __init__(self, executor: Executor, compiled: Any, request: protocol.StepTogether) -> None:
        self._executor = executor
        self._compiled = compiled
        self._sessions = request.sessions
        self._scripts = request.scripts
        self._rounds = len(request.scripts[0].calls)
        # The text of an action is what the model writes; making it is no part of a step.
        written = [[executor.write(call) for call in calls_of(script)] for script in request.scripts]
        self._actions = [
            [written[index % len(written)][turn] for index in range(self._sessions)]
            for turn in range(self._rounds)
        ]
        self._starts = [
            Start(script.task, script.seed)
            for script in (self._scripts[index % len(self._scripts)] for index in range(self._sessions))
        ]
        self.step_ns: list[float] = []
        self.step_cpu_ns = self.open_ns = self.close_ns = 0
        self.wrong = 0
        self.first_wrong: str | None = None
        self.uss_open: int | None = None
        self.threads = 0

    async def play(self, *, weigh: bool) -> None:
        start = time.perf_counter_ns()
        batch = await self._executor.open(self._compiled, self._starts)
        self.open_ns += time.perf_counter_ns() - start
        try:
            if weigh:
                self.uss_open = _weigh()
            for turn, actions in enumerate(self._actions):
                start, cpu = time.perf_counter_ns(), time.process_time_ns()
                shown = await batch.step(actions)
                self.step_ns.append((time.perf_counter_ns() - start) / self._sessions)
                self.step_cpu_ns += time.process_time_ns() - cpu
                self.threads = max(self.threads, threading.active_count())
                self._check(turn, batch.read(shown))
        finally:
            start = time.perf_counter_ns()
            await batch.close()
            self.close_ns += time.perf_counter_ns() - start

    def _check(self, turn: int, results: Sequence[StepResult]) -> None:
        for session, result in enumerate(results):
            wanted = (self._scripts[session % len(self._scripts)].expected or [])[turn]
            is_over = result.cause is not None
            if (result.observation.text, result.reward, is_over) != (
                wanted.text,
                wanted.reward,
                wanted.ended,
            ):
                self.wrong += 1
                self.first_wrong = self.first_wrong or (
                    f"session {session}, turn {turn}: {result.observation.text!r}, {result.reward}, {is_over} "
                    f"for {wanted.text!r}, {wanted.reward}, {wanted.ended}"
                )


def calls_of(script: protocol.Script) -> list[ToolCall]:
    """Return the calls of a script.

    Raises:
        TypeError: It holds a text.
    """
    actions = [action_from_json(call) for call in script.calls]
    calls = [action for action in actions if isinstance(action, ToolCall)]
    if len(calls) < len(actions):
        raise TypeError("a script of live episodes holds calls only")
    return calls


def _weigh() -> int | None:
    gc.collect()
    trim()
    return read_uss()


async def roll_out(adapter: Adapter[Any], request: protocol.RollOut) -> protocol.RolledOut:
    """Take whole rollouts along one of the framework's paths, at the same time, with a scripted model.

    Raises:
        UnknownWay: The adapter has no such path.
        canonical.adapter.SessionError: The framework refused or failed.
    """
    raise_file_limit()
    paths = adapter.rollout_paths() if isinstance(adapter, RolloutListing) else {}
    if request.path not in paths:
        raise UnknownWay(f"{adapter.name} has no rollout path {request.path!r}; there are {', '.join(paths)}")
    scripts = [request.scripts[index % len(request.scripts)] for index in range(request.rollouts)]
    parts = [Part(Start(script.task, script.seed), calls_of(script)) for script in scripts]
    family = _Family()
    stop = threading.Event()
    watching = threading.Thread(target=family.watch, args=(stop,), daemon=True)
    gc.collect()
    trim()
    family.begin()
    cpu, start = _family_cpu_ns(), time.perf_counter_ns()
    watching.start()
    try:
        played = await paths[request.path].roll(request.environment, parts)
        wall_ns = time.perf_counter_ns() - start
    finally:
        stop.set()
        await asyncio.to_thread(watching.join)
    wrong: list[str] = []
    for number, (script, shown) in enumerate(zip(scripts, played, strict=True)):
        expected = script.expected or []
        if list(shown.texts) != [one.text for one in expected] or (
            shown.total is not None and expected and shown.total != expected[-1].total
        ):
            wrong.append(
                f"rollout {number} showed {list(shown.texts)} and returned {shown.total}, for "
                f"{[one.text for one in expected]} and {expected[-1].total if expected else None}"
            )
    return protocol.RolledOut(
        seq=request.seq,
        wall_ns=wall_ns,
        cpu_ns=_family_cpu_ns() - cpu,
        succeeded=len(scripts) - len(wrong),
        first_wrong=wrong[0] if wrong else None,
        growth_bytes=family.growth,
        processes=family.most,
    )


def _family_cpu_ns() -> int:
    """Return the CPU time of this process and of all descendants that have ended and were waited for."""
    times = os.times()
    return round((times.user + times.system + times.children_user + times.children_system) * 1e9)


class _Family:
    """Watch the memory and the number of this process and its descendants while something goes on."""

    def __init__(self) -> None:
        self._before: int | None = None
        self._most_bytes = 0
        self.most = 0

    def begin(self) -> None:
        self._before = _pss(os.getpid())

    @property
    def growth(self) -> int | None:
        return None if self._before is None else max(0, self._most_bytes - self._before)

    def watch(self, stop: threading.Event) -> None:
        while not stop.wait(_SAMPLE_EVERY_S):
            others = _descendants(os.getpid())
            self.most = max(self.most, len(others))
            sizes = [size for pid in (os.getpid(), *others) if (size := _pss(pid)) is not None]
            self._most_bytes = max(self._most_bytes, sum(sizes))


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        for listing in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                children = [int(word) for word in listing.read_text(encoding="ascii").split()]
            except OSError:
                continue
            found += children
            waiting += children
    return found


def _pss(pid: int) -> int | None:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), None)
