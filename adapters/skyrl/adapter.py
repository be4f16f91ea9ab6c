"""The adapter for SkyRL Gym: compile, and connect as the trainer's generator does. There is nothing to serve."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cache, cached_property
from importlib.metadata import version
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv
from skyrl_gym.envs.registration import EnvSpec

from adapters.skyrl.compiler import CompiledEnvironment, compile_environment
from adapters.skyrl.executors import make_executors
from adapters.skyrl.session import SkyRLSession
from canonical.adapter import Endpoint, Feature, Level, SessionError, Support
from canonical.environment import Environment
from canonical.episode import StartError
from canonical.executor import Executor
from canonical.task import UnknownTaskError

MAX_ENV_WORKERS = 32
"""The trainer's default for the number of threads that run environments."""


class SkyRLAdapter:
    """Run environments under SkyRL Gym.

    Args:
        max_env_workers: How many threads run `init`, `step` and `close`, as the trainer's setting of this name says;
            0 runs them on the event loop.
    """

    name = "skyrl"

    def __init__(self, *, max_env_workers: int = MAX_ENV_WORKERS) -> None:
        self._max_env_workers = max_env_workers

    @cached_property
    def _pool(self) -> ThreadPoolExecutor | None:
        if self._max_env_workers == 0:
            return None
        return ThreadPoolExecutor(self._max_env_workers, thread_name_prefix="skyrl-gym-env-")

    def packages(self) -> Mapping[str, str]:
        """Return the installed version of SkyRL Gym; the module itself says 0.0.0 in every release."""
        return {"skyrl-gym": version("skyrl-gym")}

    def features(self) -> Mapping[Feature, Support]:
        """Return what the installed release supports."""
        native = Support(Level.NATIVE)
        counted = (
            "metadata of the step and a metric of the episode" if hasattr(BaseTextEnv, "get_metrics")
            else "metadata of the step"
        )  # fmt: skip
        return {
            Feature.SEEDED_RESET: Support(
                Level.EMULATED, "SkyRL has no seed; extra_info of the row holds it"
            ),
            Feature.TASK_SELECTION: Support(Level.NATIVE, "extra_info of the row names the task"),
            Feature.SPLITS: Support(Level.EMULATED, "a data set per split; adapters.skyrl.dataset writes it"),
            Feature.TOOL_CALLS: Support(
                Level.EMULATED, "actions are text: a call is written as text, and the episode reads it"
            ),
            Feature.TEXT_ACTIONS: native,
            Feature.TOOL_SCHEMAS: Support(
                Level.EMULATED, "SkyRL passes no tools to a chat template; the system message describes them"
            ),
            Feature.ERROR_CODES: Support(Level.EMULATED, "metadata of the step"),
            Feature.STEP_REWARD: native,
            Feature.REWARD_COMPONENTS: Support(Level.EMULATED, "metadata of the step"),
            Feature.TRUNCATION: Support(Level.EMULATED, f"SkyRL has only done; {counted}"),
            Feature.CAUSE: Support(Level.EMULATED, counted),
            Feature.IMAGES: Support(
                Level.EMULATED, "parts of the chat API in a message, as SkyRL's generator for vision models passes on"
            ),
            Feature.CONCURRENT_SESSIONS: native,
            Feature.REMOTE: Support(Level.ABSENT, "SkyRL runs environments in the trainer's own process"),
            Feature.SNAPSHOT: Support(
                Level.EMULATED, "SkyRL has no call for it; copy.deepcopy of the environment forks the episode"
            ),
        }  # fmt: skip

    async def list_tasks(
        self, compiled: type[CompiledEnvironment], _endpoint: Endpoint, split: str, /
    ) -> Sequence[str]:
        """Return the ids of the tasks of a split, from the rows of the data set that SkyRL's trainer reads.

        Raises:
            SessionError: There is no such split, or a task cannot be started.
        """
        try:
            rows = await asyncio.to_thread(lambda: list(compiled.rows(split)))
        except (UnknownTaskError, StartError) as error:
            raise SessionError(str(error)) from error
        return [row["extra_info"]["task"] for row in rows]

    def executors(self) -> Mapping[str, Executor]:
        """Return how SkyRL Gym's users step many environments of one process."""
        return make_executors(MAX_ENV_WORKERS)

    def compile(self, environment: Environment[Any], /) -> type[CompiledEnvironment]:
        """Return a `BaseTextEnv` class that plays the environment."""
        return compile_environment(environment)

    @asynccontextmanager
    async def serve(
        self,
        compiled: type[CompiledEnvironment],
        /,
        *,
        host: str = "127.0.0.1",  # noqa: ARG002 - the port asks for it
        port: int = 0,  # noqa: ARG002
    ) -> AsyncIterator[Endpoint]:
        """Yield an endpoint without an address, which counts the live episodes; leaving the context frees them."""
        try:
            yield Endpoint(None, lambda: len(compiled.live), {"max_env_workers": self._max_env_workers})
        finally:
            await asyncio.to_thread(compiled.release)

    @asynccontextmanager
    async def connect(
        self, compiled: type[CompiledEnvironment] | None, endpoint: Endpoint, /
    ) -> AsyncIterator[SkyRLSession]:
        """Yield a session; leaving the context frees its episode.

        Raises:
            SessionError: There is no environment, or one at an address.
        """
        if compiled is None or endpoint.url is not None:
            raise SessionError(
                "SkyRL Gym runs environments in the trainer's own process: compile the environment, and give no address"
            )
        entry_point: Any = compiled
        session = SkyRLSession(_spec(entry_point), compiled, self._pool)
        try:
            yield session
        finally:
            await session.close()


@cache
def _spec(entry_point: Any) -> EnvSpec:
    return EnvSpec(entry_point.environment.name, entry_point)


ADAPTER = SkyRLAdapter()
DIRECT = SkyRLAdapter(max_env_workers=0)
ADAPTERS = {"pool": ADAPTER, "direct": DIRECT}
