"""The hand-written Wordle plays the game of the compiled one, so that their latencies can be compared."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from adapters.skyrl.adapter import ADAPTER
from bench.baselines.skyrl.baseline import ADAPTER as BASELINE
from bench.workloads import Workload, apply_workload
from canonical.adapter import Endpoint
from canonical.catalogue import load_environment
from canonical.environments.wordle.environment import read_words
from canonical.tool import ToolCall

HERE = Endpoint(None, lambda: 0)


def test_both_give_the_same_texts_rewards_and_ends(wordle):
    tasks = wordle.tasks()

    async def play(adapter, compiled, number):
        rng = Random(number)
        task = tasks.split(rng.choice(tasks.splits))[number]
        words = [rng.choice(read_words("allowed")) for _ in range(7)]
        if number % 2:
            words.insert(rng.randrange(6), str(task.secret["answer"]))
        seen = []
        async with adapter.connect(compiled, HERE) as session:
            opened = await session.open(task.id, 0)
            for word in words:
                result = await session.step(ToolCall("guess", {"word": word}))
                seen.append((result.observation.text, result.reward, result.total, result.cause is not None))
                if result.cause is not None:
                    break
        return opened, seen

    async def main():
        ours, theirs = ADAPTER.compile(wordle), BASELINE.compile(wordle)
        for number in range(20):
            assert await play(ADAPTER, ours, number) == await play(BASELINE, theirs, number)

    asyncio.run(main())


def test_both_count_wrong_words_as_turns_and_score_what_was_reached(wordle):
    words = ["crane", *["qqqqq"] * 12]

    async def play(adapter):
        async with adapter.serve(adapter.compile(wordle)) as endpoint:
            async with adapter.connect(adapter.compile(wordle), endpoint) as session:
                await session.open("train/0003", 0)
                results = [await session.step(ToolCall("guess", {"word": word})) for word in words]
            assert endpoint.open_sessions() == 0
        return [(result.reward, result.cause is not None) for result in results]

    ours, theirs = asyncio.run(play(ADAPTER)), asyncio.run(play(BASELINE))
    assert ours == theirs
    assert [ended for _, ended in ours].index(True) == 11
    assert ours[11][0] > 0


def test_the_baseline_reads_text_and_answers_what_is_none(wordle):
    async def main():
        async with BASELINE.connect(BASELINE.compile(wordle), HERE) as session:
            await session.open("train/0000", 0)
            odd = await session.step("guess crane")
            unknown = await session.step(
                '<tool_call>{"name": "look", "arguments": {"word": "x"}}</tool_call>'
            )
            right = await session.step(
                '<tool_call>{"name": "guess", "arguments": {"word": "crane"}}</tool_call>'
            )
            return odd, unknown, right, await session.public_state()

    odd, unknown, right, state = asyncio.run(main())
    assert odd.observation.text.startswith("No <tool_call>")
    assert unknown.observation.text.startswith("Tool 'look' not found")
    assert right.observation.text.startswith("C R A N E")
    assert state == {"turns": 3, "solved": False}


def test_the_baseline_is_one_environment_and_says_so(lab):
    with pytest.raises(ValueError, match="hand-written wordle; there is no"):
        BASELINE.compile(lab)
    paced = apply_workload(load_environment("wordle"), Workload(turns=1, tool_ns=1000))
    with pytest.raises(ValueError, match="no set time"):
        BASELINE.compile(paced)
