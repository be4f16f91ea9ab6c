"""The hand-written Wordle plays the game of the compiled one, so that their latencies can be compared."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from adapters.ors.adapter import ADAPTER
from bench.baselines.ors.baseline import ADAPTER as BASELINE
from bench.workloads import Workload, apply_workload
from canonical.adapter import SessionError
from canonical.catalogue import load_environment
from canonical.environments.wordle.environment import read_words
from canonical.tool import ToolCall


@pytest.fixture(scope="module")
def baseline(serve_standing):
    with serve_standing(load_environment("wordle"), BASELINE) as server:
        yield server


def test_both_give_the_same_texts_rewards_and_ends(wordle, baseline):
    tasks = wordle.environment.tasks()

    async def play(adapter, server, number):
        rng = Random(number)
        task = tasks.split(rng.choice(tasks.splits))[number]
        words = [rng.choice([*read_words("allowed"), "qqqqq", "long words"]) for _ in range(8)]
        words.insert(rng.randrange(8), rng.choice(["qqqqq", "longer", str(task.secret["answer"])]))
        seen = []
        async with adapter.connect(None, server.endpoint) as session:
            opened = await session.open(task.id, 0)
            for word in words:
                result = await session.step(ToolCall("guess", {"word": word}))
                seen.append((result.observation.text, result.reward, result.cause is not None))
                if result.cause is not None:
                    break
        spec = opened.tools[0]
        return opened.prompt, (spec.name, spec.description, spec.parameters["required"]), seen

    async def main():
        for number in range(20):
            assert await play(ADAPTER, wordle, number) == await play(BASELINE, baseline, number)

    asyncio.run(main())
    assert baseline.becomes(0)


def test_both_count_wrong_words_as_turns_and_score_what_was_reached(wordle, baseline):
    words = ["crane", *["qqqqq"] * 12]

    async def play(adapter, server):
        results = []
        async with adapter.connect(None, server.endpoint) as session:
            await session.open("train/0003", 0)
            for word in words:
                results.append(await session.step(ToolCall("guess", {"word": word})))
                if results[-1].cause is not None:
                    break
        return [(result.reward, result.cause is not None) for result in results]

    async def main():
        return await play(ADAPTER, wordle), await play(BASELINE, baseline)

    ours, theirs = asyncio.run(main())
    assert ours == theirs
    assert len(ours) == 12
    assert ours[11][0] > 0


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
