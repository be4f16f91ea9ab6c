"""The baseline behind the port of an adapter, so that a worker measures it as it measures the compiled environment."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cache, cached_property
from importlib.metadata import version
from typing import Any, TypeVar

import skyrl_gym

from bench.baselines.skyrl.wordle import SCHEMA, WordleEnv, rows
from canonical.adapter import Endpoint, Feature, Level, Opened, SessionError, Support
from canonical.content import JSON, Message, Observation, Text
from canonical.dialect import write_calls
from canonical.environment import Environment
from canonical.step import Cause, StepResult
from canonical.tool import ToolSpec
from canonical.transcript import Action

ResultT = TypeVar("ResultT")

_MAX_ENV_WORKERS = 32
_TOOLS = (ToolSpec(**SCHEMA),)  # type: ignore[arg-type]

_rows = cache(rows)


class BaselineSession:
    """Be one trajectory after another, driven as SkyRL's generator drives them."""

    def __init__(self, pool: ThreadPoolExecutor, playing: set[int]) -> None:
        self._pool = pool
        self._playing = playing
        self._env: Any = None
        self._total = 0.0

    async def open(self, task: str, seed: int) -> Opened:  # noqa: ARG002 - nothing is random in Wordle
        """Start a game; `task` is a split and an index in one, such as train/0007."""
        await self.close()
        split, _, number = task.partition("/")
        row = _rows(split)[int(number)]
        extras = {key: value for key, value in row.items() if key not in {"prompt", "env_class"}}
        env = self._env = skyrl_gym.make(row["env_class"], env_config={}, extras=extras)
        self._playing.add(id(env))
        self._total = 0.0
        conversation, _metadata = await self._run(self._env.init, copy.deepcopy(row["prompt"]))
        return Opened((Message("user", (Text(conversation[-1]["content"]),)),), _TOOLS)

    async def step(self, action: Action) -> StepResult:
        """Call a tool by text.

        Raises:
            SessionError: There is no game.
        """
        if self._env is None:
            raise SessionError("this session has no game")
        text = action if isinstance(action, str) else write_calls([action])
        output = await self._run(self._env.step, text)
        self._total += output["reward"]
        # SkyRL's style knows that an episode is over, and neither how nor why, nor whether a tool failed.
        return StepResult(
            Observation.of(output["observations"][0]["content"]),
            output["reward"],
            self._total,
            Cause.SUBMITTED if output["done"] else None,
        )

    async def public_state(self) -> JSON:
        """Return the metrics of the game, as far as it went."""
        metrics: JSON = {} if self._env is None else json.loads(json.dumps(self._env.get_metrics()))
        return metrics

    async def reported_return(self) -> float:
        """Return the sum of the rewards."""
        return self._total

    async def close(self) -> None:
        """Close the environment."""
        env, self._env = self._env, None
        if env is not None:
            self._playing.discard(id(env))
            await self._run(env.close)

    async def _run(self, function: Callable[..., ResultT], *arguments: Any) -> ResultT:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)


class SkyRLBaseline:
    """Run the hand-written Wordle, in a pool of the size that the compiled one has."""

    name = "skyrl-baseline"

    def __init__(self) -> None:
        self._playing: set[int] = set()

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_MAX_ENV_WORKERS, thread_name_prefix="skyrl-gym-env-")

    def packages(self) -> Mapping[str, str]:
        """Return the installed distribution that the baseline runs on."""
        return {"skyrl-gym": version("skyrl-gym")}

    def features(self) -> Mapping[Feature, Support]:
        """Return what the documented style carries."""
        native = {
            Feature.TASK_SELECTION,
            Feature.SPLITS,
            Feature.TEXT_ACTIONS,
            Feature.STEP_REWARD,
            Feature.CONCURRENT_SESSIONS,
        }
        absent = Support(Level.ABSENT, "not part of the documented style")
        written = Support(Level.EMULATED, "written by hand into the text of the messages")
        return {
            feature: Support(Level.NATIVE)
            if feature in native
            else written
            if feature in {Feature.TOOL_CALLS, Feature.TOOL_SCHEMAS}
            else absent
            for feature in Feature
        }

    def compile(self, environment: Environment[Any], /) -> type[WordleEnv]:
        """Return the hand-written environment.

        Raises:
            ValueError: The environment is not plain Wordle, the only one that was written by hand.
        """
        if environment.name != "wordle":
            raise ValueError(
                f"the baseline for SkyRL Gym is a hand-written wordle; there is no {environment.name}"
            )
        if "tools" in vars(type(environment)):
            raise ValueError(
                "the baseline for SkyRL Gym has tools that work for no set time; use a workload without one"
            )
        return WordleEnv

    @asynccontextmanager
    async def serve(
        self,
        compiled: type[WordleEnv],  # noqa: ARG002 - the port asks for it
        /,
        *,
        host: str = "127.0.0.1",  # noqa: ARG002
        port: int = 0,  # noqa: ARG002
    ) -> AsyncIterator[Endpoint]:
        """Yield an endpoint without an address."""
        yield Endpoint(None, lambda: len(self._playing), {"max_env_workers": _MAX_ENV_WORKERS})

    @asynccontextmanager
    async def connect(
        self, compiled: type[WordleEnv] | None, endpoint: Endpoint, /
    ) -> AsyncIterator[BaselineSession]:
        """Yield a session; leaving the context closes its environment.

        Raises:
            SessionError: There is no environment, or one at an address.
        """
        if compiled is None or endpoint.url is not None:
            raise SessionError("SkyRL Gym runs environments in process: there is nothing at an address")
        session = BaselineSession(self._pool, self._playing)
        try:
            yield session
        finally:
            await session.close()


ADAPTER = SkyRLBaseline()
