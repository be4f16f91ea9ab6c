"""The hand-written Wordle plays the game of the compiled one, so that their latencies can be compared."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from adapters.nemo_gym.adapter import ADAPTER
from bench.baselines.nemo_gym.baseline import ADAPTER as BASELINE
from bench.workloads import Workload, apply_workload
from canonical.adapter import SessionError
from canonical.catalogue import load_environment
from canonical.environments.wordle.environment import read_words
from canonical.tool import ToolCall


@pytest.fixture(scope="module")
def baseline(serve_standing):
    with serve_standing(load_environment("wordle"), BASELINE) as server:
        yield server


async def play_compiled(wordle, task, words):
    async with ADAPTER.connect(None, wordle.endpoint) as session:
        opened = await session.open(task, 0)
        results = [await session.step(ToolCall("guess", {"word": word})) for word in words]
    seen = [(result.observation.text, result.cause is not None) for result in results]
    return opened, seen, results[-1].total


async def play_written(baseline, task, words):
    async with BASELINE.connect(None, baseline.endpoint) as session:
        opened = await session.open(task, 0)
        results = [await session.step(ToolCall("guess", {"word": word})) for word in words]
        reward = await session.verify()
    return opened, [(result.observation.text, result.cause is not None) for result in results], reward


def test_both_give_the_same_texts_rewards_and_ends(wordle, baseline):
    tasks = wordle.environment.tasks()

    async def main():
        for number in range(20):
            rng = Random(number)
            task = tasks.split(rng.choice(tasks.splits))[number]
            words = [rng.choice(read_words("allowed")) for _ in range(5)]
            words.append(str(task.secret["answer"]) if number % 2 else "crane")
            ours = await play_compiled(wordle, task.id, words)
            theirs = await play_written(baseline, task.id, words)
            assert ours[1:] == theirs[1:]
            assert ours[1][-1][1]
            assert ours[0].prompt == theirs[0].prompt
            assert [tool.name for tool in ours[0].tools] == [tool.name for tool in theirs[0].tools]

    asyncio.run(main())
    assert baseline.becomes(0)


def test_both_count_wrong_words_as_turns_and_score_what_was_reached(wordle, baseline):
    words = ["crane", *["qqqqq", "long words", ""] * 4]

    async def main():
        return await play_compiled(wordle, "train/0003", words[:12]), await play_written(
            baseline, "train/0003", words[:12]
        )

    ours, theirs = asyncio.run(main())
    assert ours[1:] == theirs[1:]
    assert [ended for _, ended in ours[1]].index(True) == 11
    assert ours[2] > 0


def test_the_baseline_is_one_environment_and_says_so(environment):
    with pytest.raises(ValueError, match="hand-written wordle; there is no"):
        BASELINE.compile(environment)
    paced = apply_workload(load_environment("wordle"), Workload(turns=1, tool_ns=1000))
    with pytest.raises(ValueError, match="no set time"):
        BASELINE.compile(paced)


def test_the_baseline_takes_no_text(baseline):
    async def main():
        async with BASELINE.connect(None, baseline.endpoint) as session:
            await session.open("train/0000", 0)
            with pytest.raises(SessionError, match="tool calls only"):
                await session.step("guess crane")

    asyncio.run(main())
