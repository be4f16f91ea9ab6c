"""The ways in which SkyRL steps many environments show each of them what the reference shows, in no more threads than said."""

from __future__ import annotations

import asyncio
import threading

import pytest

from adapters.skyrl.adapter import ADAPTER, MAX_ENV_WORKERS
from adapters.skyrl.compiler import compile_environment
from canonical.adapter import SessionError
from canonical.catalogue import load_environment
from canonical.episode import Episode
from canonical.executor import Start
from canonical.tool import ToolCall

WORDS = ("crane", "slate", "zzzzz")
NUMBER = 40


@pytest.mark.parametrize("name", list(ADAPTER.executors()))
def test_every_environment_of_a_batch_shows_what_the_reference_shows(name):
    executor = ADAPTER.executors()[name]
    compiled = compile_environment(load_environment("wordle"))
    tasks = compiled.environment.tasks().split("train")
    starts = [Start(tasks[place].id, place) for place in range(NUMBER)]
    episodes = [Episode.open(compiled.environment, start.task, seed=start.seed) for start in starts]
    threads = threading.active_count()

    async def main():
        batch = await executor.open(compiled, starts)
        try:
            for turn in range(3):
                calls = [ToolCall("guess", {"word": WORDS[(turn + place) % 3]}) for place in range(NUMBER)]
                shown = batch.read(await batch.step([executor.write(call) for call in calls]))
                assert list(shown) == [
                    episode.step(call) for episode, call in zip(episodes, calls, strict=True)
                ]
            assert threading.active_count() <= threads + MAX_ENV_WORKERS
        finally:
            await batch.close()

    asyncio.run(main())
    assert not compiled.live
    assert threading.active_count() <= threads


@pytest.mark.parametrize("name", list(ADAPTER.executors()))
def test_a_task_that_is_not_there_is_refused(name):
    compiled = compile_environment(load_environment("wordle"))
    with pytest.raises((SessionError, ValueError), match="nowhere"):
        asyncio.run(ADAPTER.executors()[name].open(compiled, [Start("train/nowhere", 0)]))
