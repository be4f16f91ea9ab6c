"""The ways in which GEM steps many environments show each of them what the reference shows, and choose the tasks asked for."""

from __future__ import annotations

import asyncio
import threading

import pytest

from adapters.gem.adapter import ADAPTER
from canonical.adapter import SessionError
from canonical.episode import Episode
from canonical.executor import Start
from canonical.tool import ToolCall

WORDS = ("crane", "slate", "zzzzz")
NUMBER = 12


@pytest.mark.parametrize("name", list(ADAPTER.executors()))
def test_every_environment_of_a_batch_shows_what_the_reference_shows(wordle, name):
    executor = ADAPTER.executors()[name]
    tasks = wordle.environment.tasks().split("train")
    starts = [Start(tasks[seed].id, seed) for seed in range(NUMBER)]
    episodes = [Episode.open(wordle.environment, start.task, seed=start.seed) for start in starts]
    threads = threading.active_count()

    async def main():
        batch = await executor.open(wordle, starts)
        try:
            for turn in range(3):
                calls = [ToolCall("guess", {"word": WORDS[(turn + place) % 3]}) for place in range(NUMBER)]
                shown = batch.read(await batch.step([executor.write(call) for call in calls]))
                assert list(shown) == [
                    episode.step(call) for episode, call in zip(episodes, calls, strict=True)
                ]
        finally:
            await batch.close()

    asyncio.run(main())
    assert len(wordle.live) == 0
    assert threading.active_count() <= threads


@pytest.mark.parametrize("name", ["SyncVectorEnv", "AsyncVectorEnv"])
def test_a_vector_environment_refuses_a_task_that_its_seed_does_not_lead_to(wordle, name):
    tasks = wordle.environment.tasks().split("train")
    with pytest.raises(SessionError, match=f"seed 0 leads to task {tasks[0].id}, and not to {tasks[1].id}"):
        asyncio.run(ADAPTER.executors()[name].open(wordle, [Start(tasks[1].id, 0)]))
