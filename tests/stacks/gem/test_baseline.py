"""The hand-written Wordle plays the game of the compiled one, so that their latencies can be compared."""

from __future__ import annotations

import asyncio
from random import Random

import gem
import pytest

from adapters.gem.adapter import ADAPTER
from bench.baselines.gem.baseline import ADAPTER as BASELINE
from bench.workloads import Workload, apply_workload
from canonical.adapter import Endpoint, SessionError
from canonical.catalogue import load_environment
from canonical.content import ErrorCode
from canonical.environments.wordle.environment import read_words
from canonical.tool import ToolCall

NOWHERE = Endpoint(None, lambda: 0)


@pytest.fixture(scope="module")
def baseline():
    return BASELINE.compile(load_environment("wordle"))


async def play(adapter, compiled, task, words):
    async with adapter.connect(compiled, NOWHERE) as session:
        await session.open(task, 0)
        seen = []
        for word in words:
            result = await session.step(ToolCall("guess", {"word": word}))
            seen.append((result.observation.text, result.observation.error, result.reward, result.ending))
            if result.cause is not None:
                break
    return seen


def test_both_give_the_same_texts_rewards_and_ends(wordle, baseline):
    tasks = wordle.environment.tasks()

    async def main():
        for number in range(20):
            rng = Random(number)
            task = tasks.split(rng.choice(tasks.splits))[number]
            words = [rng.choice(read_words("allowed")) for _ in range(7)]
            words.insert(rng.randrange(6), rng.choice(["qqqqq", "toolong"]))
            if number % 2:
                words.insert(rng.randrange(6), str(task.secret["answer"]))
            ours = await play(ADAPTER, wordle, task.id, words)
            assert ours == await play(BASELINE, baseline, task.id, words)
            assert ours[-1][3] is not None

    asyncio.run(main())
    assert not baseline.playing


def test_both_count_wrong_words_as_turns_and_score_what_was_reached(wordle, baseline):
    words = ["crane", *["qqqqq"] * 12]

    async def main():
        return [await play(*side, "train/0003", words) for side in ((ADAPTER, wordle), (BASELINE, baseline))]

    ours, theirs = asyncio.run(main())
    assert ours == theirs
    assert len(ours) == 12
    assert ours[11][2] > 0


def test_the_baseline_reads_boxes_and_nothing_else(baseline):
    async def main():
        async with BASELINE.connect(baseline, NOWHERE) as session:
            with pytest.raises(SessionError, match="call reset first"):
                await session.step("\\boxed{crane}")
            await session.open("train/0000", 0)
            plain = await session.step("crane")
            boxed = await session.step("It may be \\boxed{slate}, but I say \\boxed{crane}.")
            return plain.observation, boxed.observation

    plain, boxed = asyncio.run(main())
    assert plain.error is ErrorCode.UNPARSABLE
    assert boxed.text.startswith("C R A N E\n")


def test_the_baseline_is_one_environment_and_says_so(environment):
    with pytest.raises(ValueError, match="hand-written wordle; there is no"):
        BASELINE.compile(environment)
    paced = apply_workload(load_environment("wordle"), Workload(turns=1, tool_ns=1000))
    with pytest.raises(ValueError, match="no set time"):
        BASELINE.compile(paced)


def test_the_baseline_is_an_environment_of_gem():
    env = gem.make("hand:Wordle-v0", seed=3)
    first = env.reset(seed=7)[0]
    assert "\\boxed{word}" in first
    env.step("\\boxed{crane}")
    other = env.spawn(same_state=True)
    assert other.step("\\boxed{slate}") == env.step("\\boxed{slate}")
    vector = gem.make_vec(["hand:Wordle-v0"] * 2)
    vector.reset(seed=1)
    assert vector.step(["\\boxed{crane}"] * 2)[1].tolist() == [0.0, 0.0]
