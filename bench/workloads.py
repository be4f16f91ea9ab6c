"""Workloads: which calls a session makes, how long a tool works, how many turns, how long the policy thinks."""

from __future__ import annotations

import asyncio
import copy
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from canonical.environment import Environment
from canonical.episode import Episode
from canonical.sampling import random_call
from canonical.step import Cause, StepResult
from canonical.task import Task
from canonical.tool import Tool, ToolCall

_LONGEST_SEARCH = 1000

NANOSECONDS = 1_000_000_000


class Workload(BaseModel):
    """Describe the shape of an episode under load.

    Attributes:
        turns: How many tool calls an episode makes.
        tool_ns: How long each tool works in addition to its own work, in ns.
        tool_kind: How the tool waits: `async` gives the event loop back, `sync` blocks its thread.
        think_ns: How long the policy waits before each call, in ns.
        spread_ns: Over how long the first calls of the sessions are spread, in ns.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    turns: int = Field(ge=1)
    tool_ns: int = Field(ge=0, default=0)
    tool_kind: Literal["sync", "async"] = "sync"
    think_ns: int = Field(ge=0, default=0)
    spread_ns: int = Field(ge=0, default=0)

    def describe(self) -> str:
        """Return the workload in words."""
        work = (
            f"a tool that works {self.tool_ns / 1e9:g} s ({self.tool_kind})"
            if self.tool_ns
            else "a tool that does not wait"
        )
        think = f", {self.think_ns / 1e9:g} s of thinking before each call" if self.think_ns else ""
        return f"{self.turns} calls of {work}{think}"


def apply_workload(environment: Environment[Any], workload: Workload) -> Environment[Any]:
    """Return the environment with tools that take as long as the workload says."""
    if workload.tool_ns == 0:
        return environment
    paced = tuple(_paced(tool, workload) for tool in environment.tools)
    base = type(environment)
    members = {"tools": property(lambda _self: paced), "quick": False, "__module__": base.__module__}
    # Attributes are copied, not made again, because the constructor may have had arguments that nobody kept.
    instance: Environment[Any] = copy.copy(environment)
    object.__setattr__(instance, "__class__", type(base.__name__, (base,), members))
    return instance


def _paced(tool: Tool, workload: Workload) -> Tool:
    seconds = workload.tool_ns / NANOSECONDS
    function: Callable[..., Any] = tool.function
    if workload.tool_kind == "async" or tool.is_async:

        async def work(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(seconds)
            output = function(*args, **kwargs)
            return await output if tool.is_async else output

        return replace(tool, function=work, is_async=True)

    def work_in_thread(*args: Any, **kwargs: Any) -> Any:
        time.sleep(seconds)
        return function(*args, **kwargs)

    return replace(tool, function=work_in_thread)


async def play_unfinished(
    environment: Environment[Any], task: Task, *, seed: int, turns: int
) -> list[tuple[ToolCall, StepResult]]:
    """Return up to `turns` calls on a task, with the reference's answers, that do not end the episode before the last.

    The calls are a pure function of the arguments. Fewer come back when the environment leaves no other choice.
    """
    rng = random.Random(f"{task.id}/{seed}")  # noqa: S311 - reproducible on purpose
    calls: list[ToolCall] = []
    played: list[StepResult] = []
    for _ in range(_LONGEST_SEARCH):
        if len(calls) >= turns:
            break
        tried = [*calls, random_call(environment, task, rng)]
        episode = await Episode.open_async(environment, task, seed=seed)
        try:
            results = [await episode.step_async(call) for call in tried]
        finally:
            await episode.close_async()
        is_last = len(tried) == turns
        if results[-1].observation.error is None and (results[-1].cause is None or is_last):
            calls, played = tried, results
    return list(zip(calls, played, strict=True))


async def return_when_left(
    environment: Environment[Any], task: Task, *, seed: int, calls: Sequence[ToolCall]
) -> float:
    """Return what an episode is worth that is left after some calls: cancelled where it is not over, and scored."""
    episode = await Episode.open_async(environment, task, seed=seed)
    try:
        for call in calls:
            await episode.step_async(call)
        if episode.cause is None:
            await episode.truncate(Cause.CANCELLED)
        return episode.total
    finally:
        await episode.close_async()
