"""The adapter for Gymnasium: compile, and connect to environment objects in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any, cast

import gymnasium

from adapters.gymnasium.compiler import CompiledEnvironment, compile_environment
from adapters.gymnasium.session import GymnasiumSession
from canonical.adapter import Endpoint, Feature, Level, SessionError, Support
from canonical.environment import Environment
from canonical.task import UnknownTaskError


class GymnasiumAdapter:
    """Run environments under Gymnasium."""

    name = "gymnasium"

    def packages(self) -> Mapping[str, str]:
        """Return the installed version of Gymnasium."""
        return {"gymnasium": version("gymnasium")}

    def features(self) -> Mapping[Feature, Support]:
        """Return what this adapter supports."""
        native, info = Support(Level.NATIVE), Support(Level.EMULATED, "info of the step")
        return {
            Feature.SEEDED_RESET: native,
            Feature.TASK_SELECTION: Support(Level.NATIVE, "options of reset"),
            Feature.SPLITS: Support(Level.EMULATED, "a keyword of make"),
            Feature.TOOL_CALLS: Support(Level.EMULATED, "a call is written as text"),
            Feature.TEXT_ACTIONS: native,
            Feature.TOOL_SCHEMAS: Support(Level.EMULATED, "info of reset"),
            Feature.ERROR_CODES: info,
            Feature.STEP_REWARD: native,
            Feature.REWARD_COMPONENTS: Support(Level.ABSENT, "a step has one reward"),
            Feature.TRUNCATION: native,
            Feature.CAUSE: info,
            Feature.IMAGES: Support(Level.ABSENT, "observations are texts"),
            Feature.CONCURRENT_SESSIONS: native,
            Feature.REMOTE: Support(Level.ABSENT, "Gymnasium runs in the trainer's process"),
            Feature.SNAPSHOT: Support(Level.ABSENT, "Gymnasium has no call that stores an episode"),
        }

    def compile(self, environment: Environment[Any], /) -> type[CompiledEnvironment]:
        """Return an `Env` class that plays the environment."""
        return compile_environment(environment)

    async def list_tasks(
        self, compiled: type[CompiledEnvironment], _endpoint: Endpoint, split: str, /
    ) -> Sequence[str]:
        """Return the ids of the tasks that an object made for a split plays."""
        try:
            env = gymnasium.make(compiled.env_id, split=split)
        except UnknownTaskError as error:
            raise SessionError(str(error)) from error
        return [task.id for task in cast("CompiledEnvironment", env.unwrapped).tasks]

    @asynccontextmanager
    async def serve(
        self,
        compiled: type[CompiledEnvironment],
        /,
        *,
        host: str = "127.0.0.1",  # noqa: ARG002 - the port asks for it
        port: int = 0,  # noqa: ARG002
    ) -> AsyncIterator[Endpoint]:
        """Yield an endpoint without an address; leaving the context frees every episode."""
        try:
            yield Endpoint(None, lambda: len(compiled.live))
        finally:
            for left in list(compiled.live):
                await asyncio.to_thread(left.close)

    @asynccontextmanager
    async def connect(
        self, compiled: type[CompiledEnvironment] | None, _endpoint: Endpoint, /
    ) -> AsyncIterator[GymnasiumSession]:
        """Let Gymnasium make an environment object; leaving the context frees its episode."""
        if compiled is None:
            raise SessionError("Gymnasium runs in process, so it needs the environment itself")
        session = GymnasiumSession(gymnasium.make(compiled.env_id))
        try:
            yield session
        finally:
            await session.close()


ADAPTER = GymnasiumAdapter()
