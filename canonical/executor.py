"""Executors: the ways in which a framework's own users step many episodes of one process.

An optional part of the port, for frameworks that run in process. Each way opens a batch of episodes and steps all of them
once per round, so that whoever measures can put the clock around a round and look at what it showed afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from canonical.step import StepResult
from canonical.tool import ToolCall


class Start(NamedTuple):
    """Say which episode to open."""

    task: str
    seed: int


class Batch(Protocol):
    """Be many live episodes that are stepped together."""

    async def step(self, actions: Sequence[Any]) -> Any:
        """Step every episode once, each with its own action, and return what the framework gave, unread.

        Args:
            actions: One for each episode, as `Executor.write` made them.

        Raises:
            canonical.adapter.SessionError: The framework failed.
        """

    def read(self, shown: Any) -> Sequence[StepResult]:
        """Return what each episode showed in a round.

        Raises:
            canonical.adapter.SessionError: What the framework gave is not what a compiled environment gives.
        """

    async def close(self) -> None:
        """Free every episode."""


class Executor(Protocol):
    """Be one way to step many episodes.

    Attributes:
        note: What it is in the framework, in words.
        most: How many episodes it is meant for at the most, or None for any number.
    """

    @property
    def note(self) -> str:
        """What it is in the framework, in words."""

    @property
    def most(self) -> int | None:
        """How many episodes it is meant for at the most, or None for any number."""

    def write(self, call: ToolCall) -> Any:
        """Return a call in the form in which the framework takes actions."""

    async def open(self, compiled: Any, starts: Sequence[Start]) -> Batch:
        """Make as many episodes as there are starts, and reset each.

        Raises:
            canonical.adapter.SessionError: The framework refused or failed.
        """


@runtime_checkable
class ExecutorListing(Protocol):
    """Be an adapter that knows the ways in which its framework steps many episodes of one process."""

    def executors(self) -> Mapping[str, Executor]:
        """Return the ways by name, the plainest first."""


class Played(NamedTuple):
    """Hold what one whole rollout showed."""

    texts: Sequence[str]
    """The observations, in order."""
    total: float | None
    """The return as a trainer reads it."""


class Part(NamedTuple):
    """Say which episode a scripted model plays, and what it says."""

    start: Start
    calls: Sequence[ToolCall]


class RolloutPath(Protocol):
    """Be one of the ways in which a framework takes whole rollouts by itself, with a model in the middle."""

    @property
    def note(self) -> str:
        """What it is in the framework, in words."""

    async def roll(self, source: str, parts: Sequence[Part]) -> Sequence[Played]:
        """Take all rollouts at the same time, with a scripted model.

        Args:
            source: Name or path of the environment.
            parts: What each rollout plays, to the end of its episode.

        Raises:
            canonical.adapter.SessionError: The framework refused or failed.
        """


@runtime_checkable
class RolloutListing(Protocol):
    """Be an adapter whose framework takes whole rollouts by itself."""

    def rollout_paths(self) -> Mapping[str, RolloutPath]:
        """Return the ways by name, the framework's default first."""


class Opened(NamedTuple):
    """Hold one episode that a plain function steps."""

    step: Callable[[Any], Any]
    close: Callable[[], None]


class _Batch:
    def __init__(self, episodes: Sequence[Opened], read: Callable[[Any], StepResult]) -> None:
        self._steps = [episode.step for episode in episodes]
        self._closes = [episode.close for episode in episodes]
        self._read = read

    async def step(self, actions: Sequence[Any]) -> list[Any]:
        return [step(action) for step, action in zip(self._steps, actions, strict=True)]

    def read(self, shown: list[Any]) -> list[StepResult]:
        return [self._read(one) for one in shown]

    async def close(self) -> None:
        for close in self._closes:
            close()


class _PooledBatch(_Batch):
    def __init__(
        self, episodes: Sequence[Opened], read: Callable[[Any], StepResult], pool: ThreadPoolExecutor
    ) -> None:
        super().__init__(episodes, read)
        self._pool = pool

    async def step(self, actions: Sequence[Any]) -> list[Any]:
        loop, pool = asyncio.get_running_loop(), self._pool
        return await asyncio.gather(
            *(
                loop.run_in_executor(pool, step, action)
                for step, action in zip(self._steps, actions, strict=True)
            )
        )

    async def close(self) -> None:
        await super().close()
        self._pool.shutdown()


@dataclass(frozen=True, slots=True)
class PlainLoop:
    """Step episodes one after the other, in the thread of the caller.

    Attributes:
        note: As in `Executor`.
        write: As in `Executor`.
        make: Opens one episode of what was compiled.
        read: Reads what one step gave.
        most: As in `Executor`.
    """

    note: str
    write: Callable[[ToolCall], Any]
    make: Callable[[Any, Start], Opened]
    read: Callable[[Any], StepResult]
    most: int | None = None

    async def open(self, compiled: Any, starts: Sequence[Start]) -> Batch:
        """Make the episodes one after the other."""
        return _Batch([self.make(compiled, start) for start in starts], self.read)


@dataclass(frozen=True, slots=True)
class ThreadPool:
    """Step all episodes of a round in a pool of threads, and wait for the last: a coroutine and a hop for each step.

    Attributes:
        note: As in `Executor`.
        write: As in `Executor`.
        make: Opens one episode of what was compiled, on the event loop.
        read: Reads what one step gave.
        workers: Threads of the pool.
        most: As in `Executor`.
    """

    note: str
    write: Callable[[ToolCall], Any]
    make: Callable[[Any, Start], Opened]
    read: Callable[[Any], StepResult]
    workers: int
    most: int | None = None

    async def open(self, compiled: Any, starts: Sequence[Start]) -> Batch:
        """Make the episodes one after the other."""
        episodes = [self.make(compiled, start) for start in starts]
        return _PooledBatch(episodes, self.read, ThreadPoolExecutor(self.workers))


class Steppable(Protocol):
    """Be an episode whose step is a coroutine."""

    async def step(self, action: ToolCall) -> StepResult:
        """Carry out a call."""

    async def close(self) -> None:
        """Free the episode."""


class _CoroutineBatch:
    def __init__(self, episodes: Sequence[Steppable], *, together: bool) -> None:
        self._episodes = episodes
        self._together = together

    async def step(self, actions: Sequence[ToolCall]) -> list[StepResult]:
        pairs = zip(self._episodes, actions, strict=True)
        if self._together:
            return await asyncio.gather(*(episode.step(action) for episode, action in pairs))
        return [await episode.step(action) for episode, action in pairs]

    def read(self, shown: list[StepResult]) -> list[StepResult]:
        return shown

    async def close(self) -> None:
        for episode in self._episodes:
            await episode.close()


@dataclass(frozen=True, slots=True)
class Coroutines:
    """Step episodes whose step is a coroutine, one after the other or all of a round as tasks of the event loop.

    Attributes:
        note: As in `Executor`.
        make: Opens one episode of what was compiled.
        together: Whether the steps of a round are tasks side by side.
        most: As in `Executor`.
    """

    note: str
    make: Callable[[Any, Start], Awaitable[Steppable]]
    together: bool
    most: int | None = None

    def write(self, call: ToolCall) -> ToolCall:
        """Return the call as it is."""
        return call

    async def open(self, compiled: Any, starts: Sequence[Start]) -> Batch:
        """Make the episodes one after the other."""
        return _CoroutineBatch([await self.make(compiled, start) for start in starts], together=self.together)
