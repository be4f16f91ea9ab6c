"""The episode of one rollout and what it has shown so far. No framework is imported here."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from adapters.verifiers.messages import publish
from canonical.content import JSON
from canonical.environment import Environment
from canonical.episode import Episode, StartError
from canonical.reward import ScoringError
from canonical.step import Cause, StepResult
from canonical.task import UnknownTaskError
from canonical.transcript import Action

log = logging.getLogger(__name__)


class RolloutError(RuntimeError):
    """Report that an episode could not be played. The text holds nothing that the task keeps secret."""


class LiveEpisode:
    """Be the episode of one rollout.

    Attributes:
        episode: The episode. It holds the task's secrets, so it never becomes part of what a rollout returns.
        results: What each action led to, without the content, which is in the messages.
        components: The named parts of the return so far, summed over the payments.
        failure: Why the episode cannot be scored, if it cannot.
    """

    def __init__(self, episode: Episode[Any], live: set[LiveEpisode]) -> None:
        self.episode = episode
        self.results: list[dict[str, JSON]] = []
        self.components: dict[str, float] = {}
        self.failure: RolloutError | None = None
        self._live = live
        live.add(self)

    @classmethod
    async def open(
        cls, environment: Environment[Any], task: str, seed: int, live: set[LiveEpisode]
    ) -> LiveEpisode:
        """Start an episode.

        Args:
            environment: The environment.
            task: The id of the task.
            seed: The seed of the episode.
            live: Holds the episode until it is closed.

        Raises:
            RolloutError: There is no such task, or the environment could not start.
        """
        try:
            return cls(await Episode.open_async(environment, task, seed=seed), live)
        except (UnknownTaskError, StartError) as error:
            raise RolloutError(str(error)) from None

    @property
    def is_over(self) -> bool:
        """Whether the episode has ended."""
        return self.episode.cause is not None

    async def step(self, action: Action) -> StepResult:
        """Carry out an action.

        Raises:
            RolloutError: No valid reward could be computed.
        """
        with self._scoring("carry out an action"):
            result = await self.episode.step_async(action)
        self._remember(result)
        self.results.append(publish(result))
        return result

    async def end(self, cause: Cause | None) -> None:
        """Free the episode; one that still goes on is truncated first, which scores its state.

        Args:
            cause: Why a rollout stops whose episode goes on; None when nobody will look at its return.

        Raises:
            RolloutError: No valid reward could be computed. The episode is free all the same.
        """
        try:
            if cause is not None and not self.is_over:
                with self._scoring("end the episode"):
                    self._remember(await self.episode.truncate(cause))
        finally:
            self._live.discard(self)
            try:
                await self.episode.close_async()
            except Exception as error:  # noqa: BLE001 - the episode is gone either way; its return stands
                log.warning(
                    "%s could not close an episode: %s", self.episode.environment.name, type(error).__name__
                )

    def books(self) -> dict[str, JSON]:
        """Return what everybody may know of the episode; nothing that the task keeps secret."""
        episode, cause = self.episode, self.episode.cause
        return {
            "task": episode.task.id,
            "seed": episode.seed,
            "turn": episode.turn,
            "total": episode.total,
            "components": dict(self.components),
            "ending": None if cause is None else cause.ending.value,
            "cause": None if cause is None else cause.value,
        }

    def _remember(self, result: StepResult) -> None:
        for name, value in result.components.items():
            self.components[name] = math.fsum((self.components.get(name, 0.0), value))

    @contextmanager
    def _scoring(self, doing: str) -> Iterator[None]:
        name = self.episode.environment.name
        try:
            yield
        except ScoringError as error:
            self.failure = RolloutError(f"no valid reward could be computed: {error}")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - its text may hold the answer
            self.failure = RolloutError(f"{name} could not {doing}: {type(error).__name__}")
        else:
            return
        raise self.failure from None
