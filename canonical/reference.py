"""The reference adapter: an `Episode` in process. Baseline, golden transcripts, and the other side of every proof."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from canonical.adapter import Endpoint, Feature, Level, Opened, SessionError, Support
from canonical.content import JSON
from canonical.environment import Environment
from canonical.episode import Episode, Snapshot, SnapshotError, StartError
from canonical.reward import ScoringError
from canonical.step import StepResult
from canonical.task import UnknownTaskError
from canonical.transcript import Action


class ReferenceSession:
    """Be a session that is nothing but an episode."""

    def __init__(self, environment: Environment[Any]) -> None:
        self._environment = environment
        self.episode: Episode[Any] | None = None

    async def open(self, task: str, seed: int) -> Opened:
        """Start an episode; one that is still open is closed first."""
        await self.close()
        try:
            self.episode = await Episode.open_async(self._environment, task, seed=seed)
        except (UnknownTaskError, StartError) as error:
            raise SessionError(str(error)) from error
        return Opened(self.episode.prompt, tuple(tool.spec for tool in self._environment.tools))

    async def step(self, action: Action) -> StepResult:
        """Carry out an action."""
        if self.episode is None:
            raise SessionError("open an episode before stepping")
        try:
            return await self.episode.step_async(action)
        except ScoringError as error:
            raise SessionError(str(error)) from error

    async def public_state(self) -> JSON:
        """Return nothing: an episode shows no more than its step results."""
        return {}

    async def reported_return(self) -> float:
        """Return what the ledger of the episode says."""
        if self.episode is None or self.episode.cause is None:
            raise SessionError("the episode is not over, so that it has no return yet")
        return self.episode.total

    async def snapshot(self) -> Snapshot:
        """Return the episode as data."""
        try:
            return self._playing().snapshot()
        except SnapshotError as error:
            raise SessionError(str(error)) from error

    async def restore(self, snapshot: Snapshot) -> None:
        """Set the episode to what a snapshot holds."""
        try:
            self._playing().restore(snapshot)
        except SnapshotError as error:
            raise SessionError(str(error)) from error

    async def fork(self) -> ReferenceSession:
        """Return a session with a copy of the episode."""
        child = type(self)(self._environment)
        try:
            (child.episode,) = self._playing().fork(1)
        except SnapshotError as error:
            raise SessionError(str(error)) from error
        return child

    def _playing(self) -> Episode[Any]:
        if self.episode is None:
            raise SessionError("open an episode first")
        return self.episode

    async def close(self) -> None:
        """Free the episode."""
        if self.episode is not None:
            await self.episode.close_async()


class ReferenceAdapter:
    """Run environments as they are."""

    name = "reference"

    def packages(self) -> Mapping[str, str]:
        """Return this project's own version."""
        return {"rosetta-environments": version("rosetta-environments")}

    def features(self) -> Mapping[Feature, Support]:
        """Return what the canonical episode supports: everything but a network."""
        support = dict.fromkeys(Feature, Support(Level.NATIVE))
        support[Feature.REMOTE] = Support(Level.ABSENT, "the reference runs in process")
        return support

    async def list_tasks(
        self, compiled: Environment[Any], _endpoint: Endpoint, split: str, /
    ) -> Sequence[str]:
        """Return the ids of the tasks of a split."""
        try:
            return [task.id for task in compiled.tasks().split(split)]
        except UnknownTaskError as error:
            raise SessionError(str(error)) from error

    def compile(self, environment: Environment[Any], /) -> Environment[Any]:
        """Return the environment itself."""
        return environment

    @asynccontextmanager
    async def serve(
        self,
        compiled: Environment[Any],  # noqa: ARG002 - the port asks for it
        /,
        *,
        host: str = "127.0.0.1",  # noqa: ARG002
        port: int = 0,  # noqa: ARG002
    ) -> AsyncIterator[Endpoint]:
        """Yield an endpoint without an address."""
        yield Endpoint(None, lambda: 0)

    @asynccontextmanager
    async def connect(
        self, compiled: Environment[Any] | None, _endpoint: Endpoint, /
    ) -> AsyncIterator[ReferenceSession]:
        """Yield a session; leaving the context frees its episode."""
        if compiled is None:
            raise SessionError("the reference runs in process, so it needs the environment itself")
        session = ReferenceSession(compiled)
        try:
            yield session
        finally:
            await session.close()


ADAPTER = ReferenceAdapter()
