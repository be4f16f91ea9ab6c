"""The hand-written Wordle plays the game of the compiled one, so that their latencies can be compared."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from adapters.verifiers.adapter import ADAPTER
from bench.baselines.verifiers.baseline import ADAPTER as BASELINE
from bench.workloads import Workload, apply_workload
from canonical.adapter import Endpoint, SessionError
from canonical.environments.wordle.environment import read_words
from canonical.tool import ToolCall

NOWHERE = Endpoint(None, lambda: 0)


async def play(adapter, compiled, task, words):
    seen = []
    async with adapter.connect(compiled, NOWHERE) as session:
        opened = await session.open(task, 0)
        for word in words:
            result = await session.step(ToolCall("guess", {"word": word}))
            seen.append((result.observation.text, result.reward, result.cause is not None))
            if result.cause is not None:
                break
    spec = opened.tools[0]
    return opened.prompt, (spec.name, spec.parameters["required"]), seen


def test_both_give_the_same_texts_rewards_and_ends(wordle):
    ours, theirs = ADAPTER.compile(wordle), BASELINE.compile(wordle)

    async def main():
        for number in range(20):
            rng = Random(number)
            task = wordle.tasks().split(rng.choice(wordle.tasks().splits))[number]
            words = [rng.choice(read_words("allowed")) for _ in range(7)]
            if number % 2:
                words.insert(rng.randrange(6), str(task.secret["answer"]))
            assert await play(ADAPTER, ours, task.id, words) == await play(BASELINE, theirs, task.id, words)

    asyncio.run(main())


def test_both_count_wrong_words_as_turns_and_score_what_was_reached(wordle):
    words = ["crane", *["qqqqq"] * 12]

    async def main():
        _, _, ours = await play(ADAPTER, ADAPTER.compile(wordle), "train/0003", words)
        _, _, theirs = await play(BASELINE, BASELINE.compile(wordle), "train/0003", words)
        assert [step[1:] for step in ours] == [step[1:] for step in theirs]
        assert len(ours) == 12

    asyncio.run(main())


def test_it_says_what_it_is_not(wordle, touchstone):
    with pytest.raises(ValueError, match="hand-written wordle"):
        BASELINE.compile(touchstone)
    with pytest.raises(ValueError, match="no set time"):
        BASELINE.compile(apply_workload(wordle, Workload(turns=1, tool_ns=1)))

    async def main():
        async with BASELINE.connect(BASELINE.compile(wordle), NOWHERE) as session:
            await session.open("train/0000", 0)
            with pytest.raises(SessionError, match="tool calls only"):
                await session.step("text")

    asyncio.run(main())
