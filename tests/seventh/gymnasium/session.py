"""A session over an environment object of Gymnasium, stepped in a thread."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium

from canonical.adapter import Opened, SessionError
from canonical.content import JSON, ErrorCode, Observation
from canonical.dialect import write_calls
from canonical.episode import StartError
from canonical.reward import ScoringError
from canonical.step import Cause, StepResult
from canonical.task import UnknownTaskError
from canonical.transcript import Action, message_from_json, spec_from_json

_FAILURES = (UnknownTaskError, StartError, ScoringError, gymnasium.error.Error)


class GymnasiumSession:
    """Be one environment object.

    Args:
        env: What `gymnasium.make` returned.
    """

    def __init__(self, env: gymnasium.Env[str, str]) -> None:
        # One thread, because a call that is given up goes on there, and is over before the next one begins.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gymnasium")
        self._is_closed = False
        self._env = gymnasium.wrappers.RecordEpisodeStatistics(env)
        self._info: dict[str, Any] = {}
        self._return: float | None = None

    async def open(self, task: str, seed: int) -> Opened:
        """Start an episode of a task."""
        _, self._info = await self._call(self._env.reset, seed=seed, options={"task": task})
        self._return = None
        return Opened(
            tuple(message_from_json(message) for message in self._info["prompt"]),
            tuple(spec_from_json(tool) for tool in self._info["tools"]),
        )

    async def step(self, action: Action) -> StepResult:
        """Carry out an action; a call is written as text."""
        try:
            text = action if isinstance(action, str) else write_calls([action])
        except ValueError as error:
            raise SessionError(str(error)) from error
        observation, reward, _, _, info = await self._call(self._env.step, text)
        self._info = info
        if self._return is None and "episode" in info:
            self._return = float(info["episode"]["r"])
        code, cause = info["error"], info["cause"]
        return StepResult(
            Observation.of(observation, None if code is None else ErrorCode(code)),
            float(reward),
            info["total"],
            None if cause is None else Cause(cause),
        )

    async def public_state(self) -> JSON:
        """Return the last `info`, but for the clock times in it."""
        return {key: value for key, value in self._info.items() if key != "episode"}

    async def reported_return(self) -> float:
        """Return the return that Gymnasium's `RecordEpisodeStatistics` counted."""
        if self._return is None:
            raise SessionError("the episode is not over, so that it has no return yet")
        return self._return

    async def close(self) -> None:
        """Free the episode, after a call that is still under way."""
        if not self._is_closed:
            self._is_closed = True
            closing = self._thread.submit(self._env.close)
            self._thread.shutdown(wait=False)
            await asyncio.wrap_future(closing)

    async def _call(self, function: Any, *arguments: Any, **keywords: Any) -> Any:
        if self._is_closed:
            raise SessionError("this session cannot be used any more: it is closed; connect a new one")
        try:
            return await asyncio.wrap_future(self._thread.submit(function, *arguments, **keywords))
        except _FAILURES as error:
            raise SessionError(str(error)) from error
