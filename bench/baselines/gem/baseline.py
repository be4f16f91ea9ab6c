"""The baseline behind the port of an adapter, so that a worker measures it as it measures the compiled environment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any, TypeVar, cast

import gem

from bench.baselines.gem.wordle import WordleEnv
from canonical.adapter import Endpoint, Feature, Level, Opened, SessionError, Support
from canonical.content import JSON, ErrorCode, Message, Observation, Text
from canonical.environment import Environment
from canonical.step import Cause, StepResult
from canonical.transcript import Action

ResultT = TypeVar("ResultT")

_MAX_THREADS = 4_096
_CODES = {
    "format": ErrorCode.UNPARSABLE,
    "length": ErrorCode.TOOL_ERROR,
    "word": ErrorCode.TOOL_ERROR,
}


class BaselineSession:
    """Be one environment object, stepped in a thread as the compiled one is; see only what GEM's own games return."""

    def __init__(self, env: WordleEnv, threads: ThreadPoolExecutor) -> None:
        self._env = env
        self._threads = threads
        self._total = 0.0
        self._last: JSON = None

    async def open(self, task: str, seed: int) -> Opened:
        """Start a game; a task is a split and an index in one, such as train/0007.

        Raises:
            SessionError: There is no such task.
        """
        split, _, number = task.partition("/")
        prompt, info = await self._call(partial(self._env.reset, seed=seed, split=split, idx=int(number)))
        self._total, self._last = 0.0, info
        return Opened((Message("user", (Text(prompt),)),), ())

    async def step(self, action: Action) -> StepResult:
        """Write the word in a box, as the prompt asks for it.

        Raises:
            SessionError: There is no game.
        """
        text = action if isinstance(action, str) else f"\\boxed{{{action.arguments.get('word', '')}}}"
        observation, reward, terminated, truncated, info = await self._call(partial(self._env.step, text))
        self._total += reward
        self._last = info
        # A game knows that the task ended it or that the turns are used up, and no more of the reason.
        cause = Cause.SUBMITTED if terminated else Cause.BUDGET if truncated else None
        error = _CODES.get(info.get("error", ""))
        return StepResult(Observation.of(observation, error), reward, self._total, cause)

    async def public_state(self) -> JSON:
        """Return the last `info`."""
        return self._last

    async def reported_return(self) -> float:
        """Return the sum of the rewards."""
        return self._total

    async def close(self) -> None:
        """Forget the game."""
        await self._call(self._env.close)

    async def _call(self, work: Callable[[], ResultT]) -> ResultT:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except (LookupError, ValueError) as error:
            raise SessionError(str(error)) from error


class GemBaseline:
    """Run the hand-written Wordle, in as many threads as the compiled one."""

    name = "gem-baseline"

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="gem-baseline")

    def packages(self) -> Mapping[str, str]:
        """Return the installed distribution that the baseline runs on."""
        return {"gem-llm": version("gem-llm")}

    def features(self) -> Mapping[Feature, Support]:
        """Return what the documented style carries."""
        native = {
            Feature.SEEDED_RESET,
            Feature.TASK_SELECTION,
            Feature.SPLITS,
            Feature.TEXT_ACTIONS,
            Feature.STEP_REWARD,
            Feature.TRUNCATION,
            Feature.CONCURRENT_SESSIONS,
            Feature.SNAPSHOT,
        }
        absent = Support(Level.ABSENT, "not part of the documented style")
        return {feature: Support(Level.NATIVE) if feature in native else absent for feature in Feature}

    def compile(self, environment: Environment[Any], /) -> type[WordleEnv]:
        """Return the hand-written environment.

        Raises:
            ValueError: The environment is not plain Wordle, the only one that was written by hand.
        """
        if environment.name != "wordle":
            raise ValueError(f"the baseline for GEM is a hand-written wordle; there is no {environment.name}")
        if "tools" in vars(type(environment)):
            raise ValueError(
                "the baseline for GEM has guesses that work for no set time; use a workload without one"
            )
        return WordleEnv

    @asynccontextmanager
    async def serve(
        self,
        compiled: type[WordleEnv],
        /,
        *,
        host: str = "127.0.0.1",  # noqa: ARG002 - the port asks for it
        port: int = 0,  # noqa: ARG002
    ) -> AsyncIterator[Endpoint]:
        """Yield an endpoint without an address."""
        yield Endpoint(None, lambda: len(compiled.playing), {"max_threads": _MAX_THREADS})

    @asynccontextmanager
    async def connect(
        self, compiled: type[WordleEnv] | None, _endpoint: Endpoint, /
    ) -> AsyncIterator[BaselineSession]:
        """Let GEM make an environment object; leaving the context ends its game.

        Raises:
            SessionError: There is nothing to make it of.
        """
        if compiled is None:
            raise SessionError("GEM runs environments in process, so it needs the environment itself")
        session = BaselineSession(cast("WordleEnv", gem.make("hand:Wordle-v0")), self._threads)
        try:
            yield session
        finally:
            await session.close()


ADAPTER = GemBaseline()
