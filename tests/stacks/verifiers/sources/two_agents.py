"""A task set that two agents play."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import verifiers.v1 as vf

__all__ = ["PairEnv", "PairTaskset"]


class PairConfig(vf.EnvConfig):
    """Name the agents."""

    first: vf.AgentConfig = vf.AgentConfig()
    second: vf.AgentConfig = vf.AgentConfig()


class PairEnv(vf.Env[PairConfig]):
    """Let one agent play after the other."""

    async def run(self, task: Any, agents: Any) -> None:
        """Play."""
        await agents.first.run(task)
        await agents.second.run(task)


class PairTask(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
    """Do nothing."""


class PairTaskset(vf.Taskset[PairTask, vf.TasksetConfig]):
    """One task."""

    def load(self) -> Iterator[PairTask]:
        """Yield it."""
        yield PairTask(vf.TaskData(prompt="hello"), self.config.task)
