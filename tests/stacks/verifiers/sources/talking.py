"""A task set whose environment talks with its agent: text against text, and no tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import verifiers.v1 as vf

__all__ = ["TalkEnv", "TalkTaskset"]


class TalkConfig(vf.EnvConfig):
    """Name the agent."""

    player: vf.AgentConfig = vf.AgentConfig()


class TalkEnv(vf.Env[TalkConfig]):
    """Count down with the agent."""

    async def run(self, task: Any, agents: Any) -> None:
        """Say a number; the agent says the next lower one, until it is wrong or at 0."""
        number, right = int(task.data.name), 0
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn(f"I say {number}.")
            while not segment.terminated and segment.last_reply == str(number - 1):
                right += 1
                number -= 2
                if number <= 0:
                    break
                segment = await interaction.turn(f"I say {number}.")
        interaction.trace.record_reward("right", float(right), 1.0)


class TalkTask(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
    """Count."""


class TalkTaskset(vf.Taskset[TalkTask, vf.TasksetConfig]):
    """Numbers to begin with, without an end."""

    INFINITE = True

    def load(self) -> Iterator[TalkTask]:
        """Yield them."""
        number = 5
        while True:
            yield TalkTask(
                vf.TaskData(name=str(number), prompt=None, system_prompt="Count down."), self.config.task
            )
            number += 1
