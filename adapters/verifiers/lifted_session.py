"""A session in the place of the model of a rollout that Verifiers takes by itself. No framework is imported here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from adapters.verifiers.messages import read_content
from adapters.verifiers.turns import Asked, Outcome, Turns
from canonical.adapter import Opened, SessionError
from canonical.bridge.source import SourceFacts
from canonical.content import JSON, Block, Message, Observation
from canonical.dialect import write_calls
from canonical.step import StepResult
from canonical.tool import ToolCall, ToolSpec
from canonical.transcript import Action

Rollout = Callable[[str, Turns], Coroutine[Any, Any, Outcome]]
"""Take a rollout of a task whose model the turns are."""


class LiftedSession:
    """Be the model of one rollout after another.

    Args:
        roll: Takes a rollout.
        loop: The loop that rollouts run on.
    """

    def __init__(self, roll: Rollout, loop: asyncio.AbstractEventLoop) -> None:
        self._roll = roll
        self._loop = loop
        self._turns: Turns | None = None
        self._outcome: Outcome | None = None

    async def open(self, task: str, seed: int) -> Opened:  # noqa: ARG002 - Verifiers has no seeds
        """Begin a rollout, and show what it asks its model first.

        Raises:
            SessionError: It failed, or ended without asking.
        """
        await self.close()
        turns = self._turns = Turns(self._loop)
        asked = await turns.begin(self._roll(task, turns))
        if asked is None:
            self._outcome = turns.outcome()
            raise SessionError(f"the rollout of {task} ended before it had asked its model for anything")
        return Opened(tuple(map(_read_message, asked.messages)), read_tools(asked))

    async def step(self, action: Action) -> StepResult:
        """Answer as the model, and return what the rollout shows next.

        Raises:
            SessionError: It failed, or is over.
        """
        turns = self._turns
        if turns is None or self._outcome is not None:
            raise SessionError("there is no rollout that goes on")
        asked = await turns.say(action)
        if asked is not None:
            return StepResult(Observation(_blocks(after_model(asked.messages))))
        outcome = self._outcome = turns.outcome()
        observation = Observation(_blocks(outcome.after))
        return StepResult(observation, outcome.reward, outcome.reward, outcome.cause)

    async def public_state(self) -> JSON:
        """Return what trainers get of a rollout that has ended."""
        return None if self._outcome is None else self._outcome.shown

    async def reported_return(self) -> float:
        """Return the reward of the rollout; one that goes on is scored as it is.

        Raises:
            SessionError: There is no rollout, or it failed.
        """
        turns = self._turns
        if turns is None:
            raise SessionError("open an episode first")
        if self._outcome is None:
            if await turns.say(None) is not None:
                raise SessionError("the rollout goes on though nothing more is played")
            self._outcome = turns.outcome()
        return self._outcome.reward

    async def close(self) -> None:
        """Give the rollout up, where it goes on. Closing twice is harmless."""
        turns, self._turns, self._outcome = self._turns, None, None
        if turns is not None:
            await turns.stop()


def after_model(messages: Sequence[Any]) -> Sequence[Any]:
    """Return the messages that follow the last one of the model."""
    roles = [_plain(message)["role"] for message in messages]
    last = max((place for place, role in enumerate(roles) if role == "assistant"), default=-1)
    return messages[last + 1 :]


def read_tools(asked: Asked) -> tuple[ToolSpec, ...]:
    """Return the tools that a model is told of, with their schemas as they are."""
    tools = []
    for tool in asked.tools:
        value = _plain(tool)
        value = value.get("function", value)
        parameters = value.get("parameters") or {"type": "object", "properties": {}}
        tools.append(ToolSpec(value["name"], value.get("description") or "", parameters))
    return tuple(tools)


def _plain(value: Any) -> Mapping[str, Any]:
    plain: Mapping[str, Any] = value if isinstance(value, Mapping) else value.model_dump(exclude_none=True)
    return plain


def _read_message(message: Any) -> Message:
    value = _plain(message)
    try:
        content = value.get("content")
        blocks = read_content(content) if content else ()
        calls = [_read_call(call) for call in value.get("tool_calls") or ()]
        if calls:
            blocks += read_content(write_calls(calls))
        return Message("system" if value["role"] == "developer" else value["role"], blocks)
    except (KeyError, TypeError, ValueError) as error:
        raise SessionError(f"a message of the rollout cannot be shown: {error}") from error


def _read_call(call: Any) -> ToolCall:
    value = _plain(json.loads(call) if isinstance(call, str) else call)
    value = value.get("function", value)
    return ToolCall(value["name"], json.loads(value["arguments"]))


def _blocks(messages: Sequence[Any]) -> tuple[Block, ...]:
    return tuple(block for message in messages for block in _read_message(message).blocks)


@dataclass(frozen=True, slots=True)
class LiftedSource:
    """Hold a source whose episodes are rollouts of Verifiers.

    Attributes:
        facts: What is known of it.
        roll: Takes a rollout.
        loop: The loop that rollouts run on.
    """

    facts: SourceFacts
    roll: Rollout
    loop: asyncio.AbstractEventLoop

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[LiftedSession]:
        """Yield a session; leaving the context gives its rollout up."""
        session = LiftedSession(self.roll, self.loop)
        try:
            yield session
        finally:
            await session.close()
