"""Play actions in an episode and keep the transcript."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from canonical.environment import Environment
from canonical.episode import Episode
from canonical.reward import finish
from canonical.step import StepResult
from canonical.transcript import Action, Transcript, TranscriptStep


class Playing:
    """Hold an episode and what has happened in it so far."""

    def __init__(self, episode: Episode[Any]) -> None:
        self.episode = episode
        self.prompt = episode.prompt
        self.steps: list[TranscriptStep] = []

    def step(self, action: Action) -> StepResult:
        result = self.episode.step(action)
        self.steps.append(TranscriptStep(action, result))
        return result

    async def step_async(self, action: Action) -> StepResult:
        result = await self.episode.step_async(action)
        self.steps.append(TranscriptStep(action, result))
        return result

    @property
    def transcript(self) -> Transcript:
        environment = self.episode.environment
        return Transcript(
            environment=environment.name,
            version=environment.version,
            task=self.episode.task.id,
            seed=self.episode.seed,
            prompt=self.prompt,
            tools=tuple(tool.spec for tool in environment.tools),
            steps=tuple(self.steps),
        )


async def play_async(
    environment: Environment[Any], task: str, seed: int, actions: Iterable[Action]
) -> Transcript:
    playing = Playing(await Episode.open_async(environment, task, seed=seed))
    for action in actions:
        await playing.step_async(action)
    await playing.episode.close_async()
    return playing.transcript


def play(environment: Environment[Any], task: str, seed: int, actions: Iterable[Action]) -> Transcript:
    """Play every action, also those after the end, and close the episode."""
    return finish(play_async(environment, task, seed, actions))
