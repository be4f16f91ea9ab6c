"""Adapters that are wrong in one way each, called by what they get wrong. Conformance must catch every one of them."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from canonical.adapter import Endpoint, Feature, Level, Opened, Support
from canonical.content import Message, Observation, Text
from canonical.environment import Environment
from canonical.episode import Episode
from canonical.reference import ReferenceAdapter, ReferenceSession
from canonical.step import Cause, StepResult
from canonical.tool import ToolCall, ToolSpec
from canonical.transcript import Action


class Honest(ReferenceSession):
    """Lie about nothing."""

    opened_now = 0

    def __init__(self, environment: Environment[Any]) -> None:
        super().__init__(environment)
        self.steps = 0

    async def open(self, task: str, seed: int) -> Opened:
        type(self).opened_now += 1
        return await super().open(task, seed)

    async def step(self, action: Action) -> StepResult:
        self.steps += 1
        return await super().step(action)

    async def close(self) -> None:
        if self.episode is not None and self.episode.cause is not Cause.CANCELLED:
            type(self).opened_now -= 1
            await super().close()
            self.episode = None


class RewardDoubledAfterTheEnd(Honest):
    async def step(self, action: Action) -> StepResult:
        was_over = self.episode is not None and self.episode.cause is not None
        result = await super().step(action)
        return dataclasses.replace(result, reward=result.total) if was_over else result


class SeedDropped(Honest):
    async def open(self, task: str, seed: int) -> Opened:
        return await super().open(task, 0)


class AnswerInState(Honest):
    async def public_state(self) -> Any:
        assert self.episode is not None
        return {"info": {"task": dict(self.episode.task.secret)}}


class OffByOneTurnBudget(Honest):
    async def step(self, action: Action) -> StepResult:
        result = await super().step(action)
        assert self.episode is not None
        if result.cause is None and self.episode.turn == self.episode.environment.max_turns - 1:
            return dataclasses.replace(result, cause=Cause.BUDGET)
        return result


class ErrorTextSwallowed(Honest):
    async def step(self, action: Action) -> StepResult:
        result = await super().step(action)
        if result.observation.error is None:
            return result
        return dataclasses.replace(result, observation=Observation.of("error", result.observation.error))


class SharedGenerator(Honest):
    shared: random.Random | None = None

    async def open(self, task: str, seed: int) -> Opened:
        opened = await super().open(task, seed)
        assert self.episode is not None
        if hasattr(self.episode.state, "rng"):
            SharedGenerator.shared = SharedGenerator.shared or self.episode.state.rng
            self.episode.state.rng = SharedGenerator.shared
        return opened


class TruncatedReportedAsTerminated(Honest):
    async def step(self, action: Action) -> StepResult:
        result = await super().step(action)
        return dataclasses.replace(result, cause=Cause.FAILED) if result.cause is Cause.BUDGET else result


class DefaultArgumentLost(Honest):
    async def step(self, action: Action) -> StepResult:
        if isinstance(action, ToolCall) and action.name == "echo" and "times" not in action.arguments:
            action = ToolCall(action.name, {**action.arguments, "times": None})
        return await super().step(action)


class CloseLeaksASession(Honest):
    async def close(self) -> None:
        before = type(self).opened_now
        await super().close()
        type(self).opened_now = before


class UnicodeDamaged(Honest):
    async def step(self, action: Action) -> StepResult:
        result = await super().step(action)
        blocks = tuple(
            Text(block.text.encode("ascii", "replace").decode()) if isinstance(block, Text) else block
            for block in result.observation.blocks
        )
        return dataclasses.replace(result, observation=Observation(blocks, result.observation.error))


class EnumLostFromSchema(Honest):
    async def open(self, task: str, seed: int) -> Opened:
        opened = await super().open(task, seed)
        tools = []
        for spec in opened.tools:
            properties = {
                name: {key: value for key, value in schema.items() if key != "enum"}
                for name, schema in spec.parameters["properties"].items()  # type: ignore[union-attr]
            }
            tools.append(ToolSpec(spec.name, spec.description, {**spec.parameters, "properties": properties}))
        return Opened(opened.prompt, tuple(tools))


class PromptRetyped(Honest):
    async def open(self, task: str, seed: int) -> Opened:
        opened = await super().open(task, seed)
        return Opened(
            tuple(Message("user", (Text(m.text.strip() + " "),)) for m in opened.prompt), opened.tools
        )


class TaskIgnored(Honest):
    async def open(self, task: str, seed: int) -> Opened:
        return await super().open(
            "train/0000" if task != "train/0000" and "/00" in task and len(task) > 8 else task, seed
        )


class ImagesDropped(Honest):
    async def step(self, action: Action) -> StepResult:
        result = await super().step(action)
        return dataclasses.replace(
            result, observation=Observation.of(result.observation.text, result.observation.error)
        )


class WhiteSpaceStripped(Honest):
    async def step(self, action: Action) -> StepResult:
        result = await super().step(action)
        blocks = tuple(
            Text(block.text.strip()) if isinstance(block, Text) else block
            for block in result.observation.blocks
        )
        return dataclasses.replace(result, observation=Observation(blocks, result.observation.error))


class StepsAfterTheEndPlayOn(Honest):
    async def step(self, action: Action) -> StepResult:
        assert self.episode is not None
        if self.episode.cause is not None:
            self.episode.cause = None
        return await super().step(action)


class SessionsMixedUp(Honest):
    latest: Episode[Any] | None = None

    async def open(self, task: str, seed: int) -> Opened:
        opened = await super().open(task, seed)
        SessionsMixedUp.latest = self.episode
        return opened

    async def step(self, action: Action) -> StepResult:
        mine, self.episode = self.episode, SessionsMixedUp.latest
        try:
            return await super().step(action)
        finally:
            self.episode = mine


class StatusRaisedAsCrash(Honest):
    async def step(self, action: Action) -> StepResult:
        result = await super().step(action)
        if result.observation.error is not None:
            raise RuntimeError("a tool failed")
        return result


class ReturnMisread(Honest):
    async def reported_return(self) -> float:
        return await super().reported_return() / 2


class _Liar(ReferenceAdapter):
    def __init__(self, kind: type[Honest | _Forgetful]) -> None:
        self.name = kind.__name__
        self._kind = kind

    @asynccontextmanager
    async def serve(
        self, compiled: Environment[Any], /, *, host: str = "127.0.0.1", port: int = 0
    ) -> AsyncIterator[Endpoint]:
        yield Endpoint(None, lambda: self._kind.opened_now)

    @asynccontextmanager
    async def connect(
        self, compiled: Environment[Any] | None, endpoint: Endpoint, /
    ) -> AsyncIterator[Honest]:  # type: ignore[override]
        assert compiled is not None
        session = self._kind(compiled)
        try:
            yield session
        finally:
            await session.close()


class _Declares(_Liar):
    """Play honestly, and lie about what it can do."""

    def __init__(self, **lies: Support) -> None:
        super().__init__(Honest)
        self.name = "Declares"
        self._lies = {Feature(name): lie for name, lie in lies.items()}

    def features(self) -> Mapping[Feature, Support]:
        return {**super().features(), **self._lies}


class _Forgetter(_Liar):
    """Have sessions that forget, and a list of tasks that forgets one."""

    def __init__(self) -> None:
        super().__init__(_Forgetful)

    async def list_tasks(self, compiled: Environment[Any], endpoint: Endpoint, split: str, /) -> list[str]:
        return list(await super().list_tasks(compiled, endpoint, split))[1:]


class _Forgetful(ReferenceSession):
    """Forget which task was asked for, what a reward was made of, and where a snapshot was taken."""

    opened_now = 0

    async def open(self, task: str, seed: int) -> Opened:
        return await super().open("train/00", seed)

    async def step(self, action: Action) -> StepResult:
        return dataclasses.replace(await super().step(action), components={})

    async def restore(self, snapshot: Any) -> None:
        """Stay where it is."""


KINDS = {kind.__name__: kind for kind in Honest.__subclasses__()}


ADAPTERS = {
    "Honest": _Liar(Honest),
    **{name: _Liar(kind) for name, kind in KINDS.items()},
    "OverDeclares": _Declares(remote=Support(Level.EMULATED, "by carrier pigeon")),
    "UnderDeclares": _Declares(
        snapshot=Support(Level.ABSENT, "nobody can go back"), cause=Support(Level.ABSENT, "who knows why")
    ),
    "Forgetful": _Forgetter(),
}
