"""Environments that stand served while a test lasts, and the transcripts that are played there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import cache
from typing import Any, TypeVar

from bench.projection import project
from canonical.adapter import Adapter, Endpoint, Level, Session
from canonical.bridge import beside
from canonical.environment import Environment
from canonical.reference import ADAPTER as REFERENCE
from canonical.transcript import Action, Transcript, TranscriptStep, first_difference

NOWHERE = Endpoint(None, lambda: 0)
ResultT = TypeVar("ResultT")


class ServersLoop:
    """Be the event loop of all servers of this process, in a thread, so that clients share nothing with them but the process."""

    def __init__(self) -> None:
        self.loop = beside.servers_loop()

    def run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Do work on the loop, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)


@cache
def servers_loop() -> ServersLoop:
    """Return the loop; some frameworks keep parts of their server for the process, which belong to its first loop."""
    return ServersLoop()


class Stand:
    """Be an environment that is served, or that runs in process and only needs an object to hold it.

    Attributes:
        environment: The environment.
        adapter: The adapter that compiled it.
        compiled: What it was compiled into.
        endpoint: What `serve` yielded.
        absent: The features that the framework is declared not to carry.
    """

    def __init__(self, environment: Environment[Any], adapter: Adapter[Any], compiled: Any = None) -> None:
        self.environment = environment
        self.adapter = adapter
        self.absent = {name for name, support in adapter.features().items() if support.level is Level.ABSENT}
        self.compiled = adapter.compile(environment) if compiled is None else compiled
        self._serving: AbstractAsyncContextManager[Endpoint] | None = adapter.serve(self.compiled)
        self.endpoint = servers_loop().run(self._serving.__aenter__())  # type: ignore[arg-type]

    @property
    def url(self) -> str:
        """The address of the server."""
        assert self.endpoint.url is not None
        return self.endpoint.url

    @property
    def ws(self) -> str:
        """The address of its WebSocket, where it has one."""
        return f"{self.url.replace('http', 'ws')}/ws"

    @property
    def live(self) -> int:
        """How many episodes are live on the server's side."""
        return self.endpoint.open_sessions()

    def connect(self, adapter: Adapter[Any] | None = None) -> AbstractAsyncContextManager[Session]:
        """Return the connection of a further session; clients of a server know its address alone."""
        compiled = self.compiled if self.endpoint.url is None else None
        return (adapter or self.adapter).connect(compiled, self.endpoint)

    def becomes(self, live: int) -> bool:
        """Say whether the count of live episodes reaches a number; closing takes a server a moment."""
        deadline = time.monotonic() + 10
        while self.live != live:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True

    def closes(self, number: int | None = None) -> bool:
        """Say whether as many episodes get closed as a number says, or as were opened; the last may take a moment."""
        deadline = time.monotonic() + 10
        while len(self.environment.closed) != (self.environment.opened if number is None else number):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True

    def stop(self) -> None:
        """Leave the server's context; leaving it twice is harmless."""
        serving, self._serving = self._serving, None
        if serving is not None:
            servers_loop().run(serving.__aexit__(None, None, None))  # type: ignore[arg-type]

    async def play(self, task: str, seed: int, actions: Sequence[Action]) -> Transcript:
        """Play an episode in a session of its own."""
        async with self.connect() as session:
            return await self.transcribe(session, task, seed, actions)

    async def play_reference(self, task: str, seed: int, actions: Sequence[Action]) -> Transcript:
        """Play the same with the reference."""
        async with REFERENCE.connect(self.environment, NOWHERE) as session:
            return await self.transcribe(session, task, seed, actions)

    async def transcribe(
        self,
        session: Session,
        task: str,
        seed: int,
        actions: Iterable[Action],
        barrier: asyncio.Barrier | None = None,
    ) -> Transcript:
        """Play an episode in a session, and write down what the framework can carry of it.

        Args:
            session: The session.
            task: The id of the task.
            seed: The seed of the episode.
            actions: The actions.
            barrier: Where to wait for others before each of them.
        """
        opened = await session.open(task, seed)
        steps = []
        for action in actions:
            if barrier is not None:
                await barrier.wait()
            steps.append(TranscriptStep(action, await session.step(action)))
        transcript = Transcript(
            environment=self.environment.name,
            version=self.environment.version,
            task=task,
            seed=seed,
            prompt=opened.prompt,
            tools=opened.tools,
            steps=tuple(steps),
        )
        return project(transcript, self.absent)

    def compare(self, task: str, seed: int, actions: Sequence[Action]) -> Transcript:
        """Play an episode here and with the reference, hold them against each other byte for byte, and return it."""

        async def both() -> tuple[Transcript, Transcript]:
            return await self.play_reference(task, seed, actions), await self.play(task, seed, actions)

        wanted, seen = asyncio.run(both())
        assert first_difference(wanted, seen) is None
        assert wanted.to_line() == seen.to_line()
        return seen


@contextmanager
def standing(environment: Environment[Any], adapter: Adapter[Any], compiled: Any = None) -> Iterator[Stand]:
    """Serve an environment while the context lasts."""
    stand = Stand(environment, adapter, compiled)
    try:
        yield stand
    finally:
        stand.stop()
