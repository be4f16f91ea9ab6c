"""Compile an environment into Gymnasium's own `Env`, and register it."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any, ClassVar

import gymnasium

from canonical.environment import Environment
from canonical.episode import Episode
from canonical.step import Ending
from canonical.task import Task

_numbers = count(1)


class AnyText(gymnasium.Space[str]):
    """Hold every text; Gymnasium's own `Text` has an alphabet and a longest text."""

    @property
    def is_np_flattenable(self) -> bool:
        """Whether it can become an array: no."""
        return False

    def contains(self, x: Any) -> bool:
        """Return whether a value is a text."""
        return isinstance(x, str)

    def sample(self, mask: Any = None, probability: Any = None) -> str:  # noqa: ARG002 - as Gymnasium declares it
        """Return a text: the empty one."""
        return ""


class CompiledEnvironment(gymnasium.Env[str, str]):
    """Play an environment under Gymnasium.

    Args:
        split: The split whose tasks are played; by default the first.

    Raises:
        canonical.task.UnknownTaskError: There is no such split.
    """

    environment: ClassVar[Environment[Any]]
    env_id: ClassVar[str]
    live: ClassVar[set[CompiledEnvironment]]

    def __init__(self, split: str | None = None) -> None:
        self.action_space = self.observation_space = AnyText()
        tasks = self.environment.tasks()
        self.tasks: tuple[Task, ...] = tasks.split(tasks.splits[0] if split is None else split)
        self._episode: Episode[Any] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start an episode; `options` may name its task, and by default the seed decides.

        Raises:
            canonical.task.UnknownTaskError: There is no such task.
            canonical.episode.StartError: The environment failed.
        """
        self.close()
        number = 0 if seed is None else seed
        task = (options or {}).get("task") or self.tasks[number % len(self.tasks)]
        episode = asyncio.run(Episode.open_async(self.environment, task, seed=number))
        self._episode = episode
        self.live.add(self)
        info = {
            "prompt": [message.to_json() for message in episode.prompt],
            "tools": [tool.spec.to_json() for tool in self.environment.tools],
        }
        return "\n\n".join(message.text for message in episode.prompt), info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carry out what the model wrote.

        Raises:
            gymnasium.error.ResetNeeded: There is no episode.
            canonical.reward.ScoringError: No valid reward could be computed.
        """
        if self._episode is None:
            raise gymnasium.error.ResetNeeded("call reset before step")
        result = asyncio.run(self._episode.step_async(action))
        ending = None if result.cause is None else result.cause.ending
        info = {
            "total": result.total,
            "error": None if result.observation.error is None else result.observation.error.value,
            "cause": None if result.cause is None else result.cause.value,
        }
        ends = (ending is Ending.TERMINATED, ending is Ending.TRUNCATED)
        return result.observation.text, result.reward, *ends, info

    def close(self) -> None:
        """Free the episode."""
        episode, self._episode = self._episode, None
        self.live.discard(self)
        if episode is not None:
            asyncio.run(episode.close_async())


def compile_environment(environment: Environment[Any]) -> type[CompiledEnvironment]:
    """Return an `Env` class that plays an environment, registered under its `env_id`."""
    env_id = f"rosetta/{environment.name}-v{next(_numbers)}"
    members = {"environment": environment, "env_id": env_id, "live": set(), "__doc__": environment.__doc__}
    compiled: type[CompiledEnvironment] = type(type(environment).__name__, (CompiledEnvironment,), members)
    entry_point: Any = compiled
    gymnasium.register(env_id, entry_point, order_enforce=False, disable_env_checker=True)
    return compiled
