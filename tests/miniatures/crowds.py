"""An in-process framework with several ways to step many episodes, two of which lie about whose answer it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from canonical.catalogue import load_environment
from canonical.episode import Episode
from canonical.executor import (
    Batch,
    Coroutines,
    Executor,
    Opened,
    Part,
    PlainLoop,
    Played,
    RolloutPath,
    Start,
    ThreadPool,
)
from canonical.reference import ReferenceAdapter
from canonical.step import StepResult
from canonical.tool import ToolCall


def _make(compiled: Any, start: Start) -> Opened:
    episode = Episode.open(compiled, start.task, seed=start.seed)
    return Opened(episode.step, episode.close)


@dataclass
class _Awaited:
    episode: Episode[Any]

    async def step(self, action: ToolCall) -> StepResult:
        return await self.episode.step_async(action)

    async def close(self) -> None:
        await self.episode.close_async()


async def _make_awaited(compiled: Any, start: Start) -> _Awaited:
    return _Awaited(await Episode.open_async(compiled, start.task, seed=start.seed))


@dataclass(frozen=True)
class _Swapping:
    """Give the first two sessions each other's answers."""

    inner: Executor
    note: str = "two sessions are mixed up"
    most: int | None = None

    def write(self, call: ToolCall) -> Any:
        return self.inner.write(call)

    async def open(self, compiled: Any, starts: Sequence[Start]) -> Batch:
        batch: Any = await self.inner.open(compiled, starts)
        read = batch.read
        batch.read = lambda shown: [read(shown)[place] for place in (1, 0, *range(2, len(starts)))]
        return batch


@dataclass(frozen=True)
class _Playing:
    lies: bool
    note: str = "the reference, in a loop"

    async def roll(self, source: str, parts: Sequence[Part]) -> Sequence[Played]:
        played = []
        for part in parts:
            episode = Episode.open(load_environment(source), part.start.task, seed=part.start.seed)
            results = [episode.step(call) for call in part.calls]
            played.append(Played([result.observation.text for result in results], results[-1].total))
        return played[::-1] if self.lies else played


class CrowdsAdapter(ReferenceAdapter):
    """Be the reference, with executors and rollouts."""

    def executors(self) -> Mapping[str, Executor]:
        """Return honest ways and one that lies."""
        loop = PlainLoop("one after the other", lambda call: call, _make, lambda result: result)
        return {
            "plain loop": loop,
            "pool": ThreadPool("in threads", lambda call: call, _make, lambda result: result, 4),
            "coroutines": Coroutines("side by side", _make_awaited, together=True, most=50),
            "swapping": _Swapping(loop),
        }

    def rollout_paths(self) -> Mapping[str, RolloutPath]:
        """Return an honest way and one that lies."""
        return {"honest": _Playing(lies=False), "lying": _Playing(lies=True)}


ADAPTER = CrowdsAdapter()
