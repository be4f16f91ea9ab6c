"""Many rollouts of one process, turn by turn and as Verifiers takes them, show what the reference shows."""

from __future__ import annotations

import asyncio

import pytest

from adapters.verifiers.adapter import ADAPTERS
from canonical.adapter import SessionError
from canonical.episode import Episode
from canonical.executor import Part, Start
from canonical.tool import ToolCall

WORDS = ("crane", "slate", "zzzzz")
NUMBER = 6
IN_PROCESS = [
    (target, name)
    for target, adapter in ADAPTERS.items()
    for name in adapter.rollout_paths()
    if name != "tool server and chat program"
]


def starts_of(wordle, *, seeded):
    tasks = wordle.tasks().split("train")
    return [Start(tasks[place].id, place if seeded else 0) for place in range(NUMBER)]


@pytest.mark.parametrize("name", ["plain loop", "tasks"])
def test_every_rollout_of_a_batch_shows_what_the_reference_shows(adapter, wordle, name):
    executor, compiled = adapter.executors()[name], adapter.compile(wordle)
    starts = starts_of(wordle, seeded=True)
    episodes = [Episode.open(wordle, start.task, seed=start.seed) for start in starts]

    async def main():
        batch = await executor.open(compiled, starts)
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
    assert not compiled.live


@pytest.mark.parametrize(("target", "name"), IN_PROCESS)
def test_whole_rollouts_show_and_return_what_the_reference_does(wordle, target, name):
    parts, expected = [], []
    for start in starts_of(wordle, seeded=False):
        calls = [
            *(ToolCall("guess", {"word": word}) for word in WORDS),
            *wordle.oracle(wordle.tasks().get(start.task)),
        ]
        episode = Episode.open(wordle, start.task, seed=start.seed)
        results = [episode.step(call) for call in calls]
        parts.append(Part(start, calls))
        expected.append(([result.observation.text for result in results], results[-1].total))
    played = asyncio.run(ADAPTERS[target].rollout_paths()[name].roll("wordle", parts))
    assert [(list(one.texts), one.total) for one in played] == expected


@pytest.mark.parametrize(("target", "name"), IN_PROCESS)
def test_a_script_that_ends_before_its_episode_is_an_error(wordle, target, name):
    (start, *_) = starts_of(wordle, seeded=False)
    with pytest.raises(SessionError, match="a rollout failed"):
        asyncio.run(
            ADAPTERS[target]
            .rollout_paths()[name]
            .roll("wordle", [Part(start, [ToolCall("guess", {"word": "crane"})])])
        )
