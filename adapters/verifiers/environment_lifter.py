"""Lift an environment of releases before 0.4: what `load_environment` returns, rolled out by itself."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from types import ModuleType
from typing import Any

from adapters.verifiers.environment_session import SilentClient
from adapters.verifiers.environment_target import signals_kept, types, vf
from adapters.verifiers.lifted_session import LiftedSession, LiftedSource, after_model, read_tools
from adapters.verifiers.losses import LOSSES
from adapters.verifiers.messages import clean
from adapters.verifiers.turns import Asked, Outcome, Turns, rollout_loop
from canonical.adapter import Loss, SessionError
from canonical.bridge.source import (
    LiftError,
    LiftOptions,
    SourceFacts,
    identifier,
    no_limit,
    text_spec_beside,
)
from canonical.content import JSON
from canonical.reward import Aggregation
from canonical.step import Cause
from canonical.stone import Concern, PieceName
from canonical.task import Task
from canonical.tool import ToolSpec

_BUDGETS = frozenset({"max_turns_reached", "max_total_completion_tokens_reached", "prompt_too_long"})


class _TurnsClient(SilentClient):
    """Answer one rollout as its session does."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self._turns = turns
        self._calls = 0

    async def get_native_response(
        self, prompt: Any, _model: Any = None, _sampling: Any = None, tools: Any = None, **_: Any
    ) -> Any:
        """Return the action of the session as a model's response.

        Raises:
            vf.OverlongPromptError: Nothing more is played. Verifiers then cuts the rollout off, and scores it.
        """
        action = await self._turns.ask(Asked(list(prompt), list(tools or ())))
        if action is None:
            raise vf.OverlongPromptError("nothing more is played")
        calls = None
        if not isinstance(action, str):
            self._calls += 1
            arguments = json.dumps(dict(action.arguments))
            calls = [types.ToolCall(id=f"call_{self._calls}", name=clean(action.name), arguments=arguments)]
        message = types.ResponseMessage(
            content=clean(action) if isinstance(action, str) else None,
            tool_calls=calls,
            finish_reason="tool_calls" if calls else "stop",
            is_truncated=False,
        )
        return types.Response(id="lifted", created=0, model="lifted", usage=None, message=message)


class _Environment:
    """Hold an environment and its rows.

    Args:
        environment: The environment.
    """

    def __init__(self, environment: Any) -> None:
        self.environment = environment
        self._rows = {"train": environment.get_dataset()}
        environment.build_eval_dataset()
        if environment.eval_dataset is not None:
            self._rows["eval"] = environment.eval_dataset
        self.tasks = tuple(
            Task(id=f"{split}/{place}") for split, rows in self._rows.items() for place in range(len(rows))
        )

    async def roll(self, task: str, turns: Turns) -> Outcome:
        """Take a rollout as Verifiers takes those of one group.

        Raises:
            SessionError: There is no such row, or the rollout failed.
        """
        split, _, place = task.partition("/")
        try:
            row = dict(self._rows[split][int(place)])
        except (KeyError, ValueError, IndexError) as error:
            raise SessionError(f"there is no row {task}") from error
        client = _TurnsClient(turns)
        if self.environment.requires_group_rollouts:
            (output,) = await self.environment.run_group([row], client, "lifted", {})
        else:
            output = await self.environment.run_rollout(row, client, "lifted", {})
        if output.get("error") is not None:
            raise SessionError(f"Verifiers stopped the rollout: {output['error']}")
        reward = output["reward"]
        if not isinstance(reward, int | float) or not math.isfinite(reward):
            raise SessionError(f"the rubric says no reward: {reward!r}")
        stop = output.get("stop_condition")
        cause = (
            Cause.TIMEOUT
            if stop == "timeout_reached"
            else Cause.BUDGET
            if stop in _BUDGETS
            else Cause.SUBMITTED
        )
        shown: dict[str, JSON] = {"stop_condition": stop, "metrics": dict(output.get("metrics") or {})}
        return Outcome(float(reward), cause, after_model(output["completion"] or ()), shown)


def has_environment(module: ModuleType) -> bool:
    """Say whether a module is one that Verifiers loads environments from."""
    return callable(getattr(module, "load_environment", None))


@asynccontextmanager
async def lift_environment(
    module: ModuleType, reference: str, options: LiftOptions
) -> AsyncIterator[LiftedSource]:
    """Make a source of what `load_environment` of a module returns.

    Raises:
        LiftError: It returns no environment, the environment has no rows, or the first cannot be played.
    """
    try:
        with signals_kept():
            environment = module.load_environment(**options.arguments)
    except Exception as error:
        raise LiftError(
            f"load_environment of {reference} failed: {type(error).__name__}: {error}; its keyword arguments are the "
            "arguments of the source"
        ) from error
    if not isinstance(environment, vf.Environment):
        raise LiftError(f"load_environment of {reference} returned a {type(environment).__name__}")
    try:
        lifted = await asyncio.to_thread(_Environment, environment)
    except Exception as error:
        raise LiftError(f"{reference} has no rows: {type(error).__name__}: {error}") from error
    if not lifted.tasks:
        raise LiftError(f"{reference} has no rows: its data sets are empty")
    limit = getattr(environment, "max_turns", -1)
    async with rollout_loop() as loop:
        tools = await _tools(lifted, loop, reference)
        text = text_spec_beside(tools)
        yield LiftedSource(
            SourceFacts(
                name=identifier(reference.rpartition("/")[2].removesuffix(".py").rpartition(".")[2]),
                version=version("verifiers"),
                source=f"verifiers:{reference}",
                packages={"verifiers": version("verifiers")},
                tasks=lifted.tasks,
                tools=(*tools, text),
                text_tool=text.name,
                aggregation=Aggregation.TERMINAL,
                # One more than the source's own limit, so that the source ends the episode, and not the bridge.
                max_turns=limit + 1 if isinstance(limit, int) and limit > 0 else options.max_turns,
                losses=tuple(_losses(environment, options)),
            ),
            lifted.roll,
            loop,
        )


async def _tools(lifted: _Environment, loop: asyncio.AbstractEventLoop, reference: str) -> list[ToolSpec]:
    """Return every tool that a rollout offers, by beginning the first one.

    Raises:
        LiftError: It cannot be played.
    """
    session = LiftedSession(lifted.roll, loop)
    try:
        opened = await session.open(lifted.tasks[0].id, 0)
    except SessionError as error:
        raise LiftError(f"the first row of {reference} cannot be played: {error}") from error
    finally:
        await session.close()
    environment = lifted.environment
    members: Iterable[Any] = (environment, *getattr(environment, "envs", ()))
    known = [tool for member in members for tool in read_tools(Asked((), member.tool_defs or ()))]
    tools: Mapping[str, ToolSpec] = {tool.name: tool for tool in (*known, *opened.tools)}
    return list(tools.values())


def _losses(environment: Any, options: LiftOptions) -> Iterable[Loss]:
    yield from LOSSES
    if environment.requires_group_rollouts:
        note = "the rubric compares rollouts of a group; here every group has one"
        yield Loss(PieceName.REWARD, "approximated", note, Concern.REWARD_AGGREGATION)
    if getattr(environment, "max_turns", -1) > 0:
        note = "Verifiers stops at max_turns before it carries out the last call, so the last action shows nothing"
        yield Loss(PieceName.EPISODE_END, "preserved", note, Concern.TRUNCATION)
    else:
        yield no_limit(options)
