"""A source as an environment: whatever can play, compile, serve or measure an environment can do it with a source."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, create_model

from canonical.adapter import SessionError
from canonical.bridge.client import BridgeSession, SourceGoneError, dial_source, read_facts
from canonical.bridge.source import SourceFacts
from canonical.content import JSON, Message, Observation
from canonical.environment import Environment
from canonical.reward import Aggregation, Exchange, RewardSpec, Rubric, Score
from canonical.step import Cause
from canonical.task import Task, TaskSet
from canonical.tool import Tool, ToolCall, ToolOutput, ToolSpec
from canonical.transcript import Action

RETURN_LIMIT = sys.float_info.max
"""The range that is declared for returns of sources, none of which says what its own is: whatever is a number."""


@dataclass(slots=True)
class BridgeState:
    """Hold an episode of a source.

    Attributes:
        session: The session that plays it.
        prompt: What the model reads first.
        payment: What the last action paid, by its named parts.
        cause: Why the source ended the episode, or None while it goes on.
    """

    session: BridgeSession
    prompt: tuple[Message, ...]
    payment: Mapping[str, float]
    cause: Cause | None = None


class BridgedTool(Tool):
    """Be a tool of a source: the source checks the arguments, and says in its own words what is wrong with them."""

    __slots__ = ()

    def validate(self, arguments: Mapping[str, JSON]) -> dict[str, Any]:
        """Return the arguments as they are."""
        return {"arguments": arguments}


class BridgedReward(Rubric[BridgeState]):
    """Score what the source paid."""

    is_async = True

    def __init__(self, aggregation: Aggregation) -> None:
        self._at_the_end = aggregation is Aggregation.TERMINAL

    async def evaluate(self, state: BridgeState, exchanges: Sequence[Exchange]) -> Score:  # noqa: ARG002 - the source knows them
        """Return the payment of the last action, or the return that the source reports at the end."""
        if not self._at_the_end:
            return Score(state.payment)
        if state.cause is Cause.ERROR:
            return Score({"reward": 0.0})
        return Score({"reward": await state.session.reported_return()})


class BridgedEnvironment(Environment[BridgeState]):
    """Play an environment of another framework, which runs in a process of its own.

    Attributes:
        address: Where the source is.
        facts: What it is.
    """

    address: ClassVar[str]
    facts: ClassVar[SourceFacts]
    _tasks: ClassVar[TaskSet]

    def tasks(self) -> TaskSet:
        """Return the tasks of the source."""
        return self._tasks

    async def start(self, task: Task, rng: random.Random) -> BridgeState:
        """Open a session with the source, which gets a seed of 31 bits that the episode's generator draws."""
        session = await dial_source(self.address)
        try:
            opened = await session.open(task.id, source_seed(rng))
        except BaseException:
            await session.close()
            raise
        return BridgeState(session, opened.prompt, {"reward": 0.0})

    def prompt(self, task: Task, state: BridgeState) -> Sequence[Message]:  # noqa: ARG002 - as Environment
        """Return what the source shows first."""
        return state.prompt

    def outcome(self, state: BridgeState) -> Cause | None:
        """Return why the source ended the episode."""
        return state.cause

    async def close(self, state: BridgeState) -> None:
        """Free the session of the source."""
        await state.session.close()


def source_seed(rng: random.Random) -> int:
    """Return the seed that the source gets in an episode with this generator."""
    return rng.getrandbits(31)


def bridged_environment(address: str) -> BridgedEnvironment:
    """Return the environment that a source at an address is.

    Raises:
        SourceGoneError: There is no source at the address.
    """
    facts = read_facts(address)
    members: dict[str, Any] = {
        "__doc__": f"Play {facts.source}, which runs in a process of its own.",
        "__module__": __name__,
        "name": facts.name,
        "version": facts.version,
        "max_turns": facts.max_turns,
        "reward": RewardSpec(facts.aggregation, -RETURN_LIMIT, RETURN_LIMIT),
        "rubric": BridgedReward(facts.aggregation),
        "text_tool": facts.text_tool,
        "address": address,
        "facts": facts,
        "_tasks": TaskSet(facts.tasks),
    }
    for spec in facts.tools:
        # Under a name that no method has: a source may call a tool `start` or `close`.
        members[f"tool {spec.name}"] = (
            _text_tool(spec) if spec.name == facts.text_tool else _bridged_tool(spec)
        )
    made: type[BridgedEnvironment] = type("BridgedEnvironment", (BridgedEnvironment,), members)
    return made()


def _text_tool(spec: ToolSpec) -> Tool:
    async def respond(environment: BridgedEnvironment, state: BridgeState, text: str) -> ToolOutput:
        return await _act(environment.facts.source, state, text)

    model: type[BaseModel] = create_model(spec.name, __config__=ConfigDict(extra="forbid"), text=(str, ...))
    return Tool(spec, respond, is_async=True, model=model)


def _bridged_tool(spec: ToolSpec) -> BridgedTool:
    async def call(
        environment: BridgedEnvironment, state: BridgeState, arguments: Mapping[str, JSON]
    ) -> ToolOutput:
        return await _act(environment.facts.source, state, ToolCall(spec.name, arguments))

    model: type[BaseModel] = create_model(spec.name, __config__=ConfigDict(extra="allow"))
    return BridgedTool(spec, call, is_async=True, model=model)


def failure(source: str, error: SessionError) -> Observation:
    """Return what is shown where a source did not carry an action out."""
    said = f"is gone: {error.reason}" if isinstance(error, SourceGoneError) else f"failed: {error}"
    return Observation.of(f"The source {source} {said}. This episode cannot go on.")


async def _act(source: str, state: BridgeState, action: Action) -> Observation:
    try:
        result = await state.session.step(action)
    except SessionError as error:
        state.cause, state.payment = Cause.ERROR, {"reward": 0.0}
        return failure(source, error)
    parts = result.components
    is_exact = bool(parts) and math.fsum(parts.values()) == result.reward
    state.payment, state.cause = parts if is_exact else {"reward": result.reward}, result.cause
    observation = result.observation
    # An action that failed pays nothing under the contract, so one that paid has not failed.
    return Observation(observation.blocks) if result.reward else observation
