"""The adapter for GEM: compile, and connect to environment objects that GEM makes in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any, cast

import gem

from adapters.gem.compiler import Compiled, CompiledEnvironment, Refusal, compile_environment
from adapters.gem.executors import make_executors
from adapters.gem.session import GemSession
from canonical.adapter import Endpoint, Feature, Level, SessionError, Support
from canonical.environment import Environment
from canonical.executor import Executor

MAX_THREADS = 4_096
"""How many sessions can be stepped at the same time. Threads are started when they are needed."""


class GemAdapter:
    """Run environments under GEM.

    Args:
        max_threads: In how many threads environments are stepped, as `AsyncVectorEnv` does with one thread for each; with
            0 they are stepped where the caller is, one after the other, as `SyncVectorEnv` does.
    """

    name = "gem"

    def __init__(self, *, max_threads: int = MAX_THREADS) -> None:
        self._max_threads = max_threads
        self._threads = ThreadPoolExecutor(max_threads, thread_name_prefix="gem") if max_threads else None

    def packages(self) -> Mapping[str, str]:
        """Return the installed distribution of GEM and its exact version."""
        return {"gem-llm": version("gem-llm")}

    def features(self) -> Mapping[Feature, Support]:
        """Return what the installed release supports."""
        native = Support(Level.NATIVE)
        return {
            Feature.SEEDED_RESET: native,
            Feature.TASK_SELECTION: Support(
                Level.EMULATED, "keywords of reset, task or idx; GEM's wrappers pass on the seed alone"
            ),
            Feature.SPLITS: Support(
                Level.EMULATED, "a keyword of make, as in GEM's environments over data sets"
            ),
            Feature.TOOL_CALLS: Support(
                Level.EMULATED, "a call is text in the action, in the form of GEM's MCPTool"
            ),
            Feature.TEXT_ACTIONS: native,
            Feature.TOOL_SCHEMAS: Support(
                Level.EMULATED,
                "described below the prompt in the first observation, and in the info of reset",
            ),
            Feature.ERROR_CODES: Support(Level.EMULATED, "info['error']; the observation says it in words"),
            Feature.STEP_REWARD: native,
            Feature.REWARD_COMPONENTS: Support(Level.EMULATED, "info['components']"),
            Feature.TRUNCATION: native,
            Feature.CAUSE: Support(Level.EMULATED, "info['cause']"),
            Feature.IMAGES: Support(
                Level.EMULATED,
                "info['content'] holds them; the observation, which is text, says their type and size",
            ),
            Feature.CONCURRENT_SESSIONS: native,
            Feature.REMOTE: Support(Level.ABSENT, "GEM runs environments in the trainer's process"),
            Feature.SNAPSHOT: Support(Level.NATIVE, "get_state and set_state, and spawn with same_state")
            if hasattr(gem.Env, "spawn")
            else Support(
                Level.EMULATED, "get_state and set_state; the environments of this release have no spawn"
            ),
        }

    async def list_tasks(self, compiled: Compiled, _endpoint: Endpoint, split: str, /) -> Sequence[str]:
        """Return the ids of the tasks of a split: `reset` with `idx` on an object that `make` got the split for.

        GEM has no listing, so the places are tried in order until one is refused.

        Raises:
            SessionError: There is no such split, or a task cannot be played.
        """
        return await asyncio.to_thread(_walk, compiled, split)

    def executors(self) -> Mapping[str, Executor]:
        """Return how GEM's users step many environments of one process."""
        return make_executors()

    def compile(self, environment: Environment[Any], /) -> Compiled:
        """Make a GEM `Env` class that plays the environment, and register it with GEM."""
        return compile_environment(environment)

    @asynccontextmanager
    async def serve(
        self,
        compiled: Compiled,
        /,
        *,
        host: str = "127.0.0.1",  # noqa: ARG002 - the port asks for it
        port: int = 0,  # noqa: ARG002
    ) -> AsyncIterator[Endpoint]:
        """Yield an endpoint without an address; leaving the context frees every episode that is left."""
        try:
            yield Endpoint(None, lambda: len(compiled.live), {"max_threads": self._max_threads})
        finally:
            for left in list(compiled.live):
                await asyncio.to_thread(left.close)

    @asynccontextmanager
    async def connect(
        self,
        compiled: Compiled | None,
        _endpoint: Endpoint,
        /,
    ) -> AsyncIterator[GemSession]:
        """Let GEM make an environment object; leaving the context frees its episode.

        Raises:
            SessionError: There is nothing to make it of, or it cannot be made.
        """
        if compiled is None:
            raise SessionError("GEM runs environments in process, so it needs the environment itself")
        try:
            env = cast("CompiledEnvironment", gem.make(compiled.env_id))
        except Refusal as error:
            raise SessionError(str(error)) from error
        session = GemSession(env, self._threads)
        try:
            yield session
        finally:
            await session.close()


def _walk(compiled: Compiled, split: str) -> list[str]:
    try:
        env = cast("CompiledEnvironment", gem.make(compiled.env_id, split=split))
    except Refusal as error:
        raise SessionError(str(error)) from error
    found: list[str] = []
    try:
        while True:
            _, info = env.reset(seed=0, idx=len(found))
            found.append(info["task"])
    except Refusal as error:
        if not found:
            raise SessionError(str(error)) from error
        return found
    finally:
        env.close()


ADAPTER = GemAdapter()
ADAPTERS = {"threads": ADAPTER, "inline": GemAdapter(max_threads=0)}
"""Both ways to step environments, for `adapters.gem.adapter:inline` as the name of an adapter."""
