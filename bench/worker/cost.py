"""Cost: what the episode adds to a bare tool call, and what a live episode weighs. No framework takes part."""

from __future__ import annotations

import gc
import time
import tracemalloc
from typing import Any

from bench import protocol
from bench.workloads import play_unfinished
from canonical.catalogue import load_environment
from canonical.environment import Environment
from canonical.episode import Episode, episode_rng
from canonical.reward import finish
from canonical.task import Task
from canonical.tool import Tool, ToolCall

_BATCH = 200
_WEIGHED = 50


def measure_cost(request: protocol.Cost) -> protocol.Costed:
    """Time steps through the episode and bare tool calls in turns, and weigh live episodes.

    Each batch opens 200 episodes, makes one and the same call in each through the episode, and in as many fresh states
    without it. An episode is weighed after every call of the longest known unfinished game, and the heaviest counts.

    Raises:
        RuntimeError: No call was found that the environment carries out without ending the episode.
    """
    environment = load_environment(request.environment)
    if any(tool.is_async for tool in environment.tools):
        raise RuntimeError(
            f"{environment.name} has coroutine tools; its cost is not a matter of microseconds"
        )
    task = next(iter(environment.tasks()))
    calls = _game(environment, task)
    tools = {tool.name: tool for tool in environment.tools}
    tool, arguments = tools[calls[0].name], tools[calls[0].name].validate(calls[0].arguments)
    step_ns: list[float] = []
    bare_ns: list[float] = []
    for _ in range(max(1, request.episodes // _BATCH)):
        step_ns.append(_time_steps(environment, task, calls[0]))
        bare_ns.append(_time_bare(environment, task, tool, arguments))
    return protocol.Costed(
        seq=request.seq,
        step_ns=step_ns,
        bare_ns=bare_ns,
        live_bytes=[_weigh(environment, task, calls) for _ in range(6)],
    )


def _game(environment: Environment[Any], task: Task) -> list[ToolCall]:
    played = finish(play_unfinished(environment, task, seed=0, turns=environment.max_turns))
    calls = [call for call, result in played if result.cause is None]
    if not calls:
        raise RuntimeError(f"no call of {environment.name} was found that leaves the episode going")
    return calls


def _time_steps(environment: Environment[Any], task: Task, call: ToolCall) -> float:
    episodes = [Episode.open(environment, task) for _ in range(_BATCH)]
    gc.collect()
    start = time.perf_counter_ns()
    for episode in episodes:
        episode.step(call)
    elapsed = time.perf_counter_ns() - start
    for episode in episodes:
        episode.close()
    return elapsed / _BATCH


def _time_bare(environment: Environment[Any], task: Task, tool: Tool, arguments: dict[str, Any]) -> float:
    states = [environment.start(task, episode_rng(environment, task, 0)) for _ in range(_BATCH)]
    function = tool.function
    gc.collect()
    start = time.perf_counter_ns()
    for state in states:
        function(environment, state, **arguments)
    elapsed = time.perf_counter_ns() - start
    for state in states:
        environment.close(state)
    return elapsed / _BATCH


def _weigh(environment: Environment[Any], task: Task, calls: list[ToolCall]) -> float:
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        episodes = [Episode.open(environment, task) for _ in range(_WEIGHED)]
        heaviest = 0
        for call in (None, *calls):
            if call is not None:
                # A call of its own per episode, as it would come from the network: its strings may stay in the state.
                for episode in episodes:
                    episode.step(
                        ToolCall(call.name, {key: _copy(value) for key, value in call.arguments.items()})
                    )
            gc.collect()
            heaviest = max(heaviest, tracemalloc.get_traced_memory()[0] - before)
        for episode in episodes:
            episode.close()
    finally:
        tracemalloc.stop()
    return heaviest / _WEIGHED


def _copy(value: Any) -> Any:
    return "".join(list(value)) if isinstance(value, str) else value
