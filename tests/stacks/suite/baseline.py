"""The hand-written Wordle plays the game of the compiled one, so that their latencies can be compared."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from bench.workloads import Workload, apply_workload
from canonical.adapter import Feature, Level, SessionError
from canonical.catalogue import load_environment
from canonical.environments.wordle.environment import read_words
from canonical.tool import ToolCall
from tests.stacks.suite.lab import Lab


def carries(stand, feature):
    return stand.adapter.features()[feature].level is not Level.ABSENT


async def play(stand, task, words, carried):
    """Play until the end; return what a model was shown, what its trainer was paid, and the return."""
    seen, is_over = [], False
    async with stand.connect() as session:
        opened = await session.open(task, 0)
        for word in words:
            result = await session.step(ToolCall("guess", {"word": word}))
            is_over = result.cause is not None
            reward = result.reward if Feature.STEP_REWARD in carried else None
            seen.append((result.observation.text, reward, is_over))
            if is_over:
                break
        reported = await session.reported_return() if is_over else None
    offered = [(tool.name, tool.parameters["required"]) for tool in opened.tools]
    return (opened.prompt, offered) if Feature.TOOL_SCHEMAS in carried else None, seen, reported


class TestBaseline:
    """The hand-written Wordle plays the game of the compiled one, so that their latencies can be compared."""

    def test_both_give_the_same_texts_rewards_and_ends(self, standing_wordle, by_hand, manner):
        carried = {feature for feature in Feature if carries(by_hand, feature)}
        tasks = standing_wordle.environment.tasks()
        wrong = [] if manner.rewords else ["qqqqq", "toolong", "long words"]

        async def main():
            for number in range(20):
                rng = Random(number)
                task = tasks.split(rng.choice(tasks.splits))[number]
                words = [rng.choice([*read_words("allowed"), *wrong]) for _ in range(12)]
                words[1:1] = wrong
                if number % 2:
                    words.insert(rng.randrange(6), str(task.secret["answer"]))
                ours = await play(standing_wordle, task.id, words, carried)
                assert ours == await play(by_hand, task.id, words, carried)
                assert ours[-1] is not None

        asyncio.run(main())
        assert by_hand.becomes(0)

    def test_both_count_wrong_words_as_turns_and_score_what_was_reached(self, standing_wordle, by_hand):
        carried = {feature for feature in Feature if carries(by_hand, feature)}
        words = ["crane", *["qqqqq"] * 12]

        async def main():
            return [await play(stand, "train/0003", words, carried) for stand in (standing_wordle, by_hand)]

        ours, theirs = asyncio.run(main())
        assert [step[1:] for step in ours[1]] == [step[1:] for step in theirs[1]]
        assert len(ours[1]) == 12
        assert ours[-1] == theirs[-1] > 0

    def test_the_baseline_is_one_environment_and_says_so(self, by_hand):
        with pytest.raises(ValueError, match="hand-written wordle; there is no"):
            by_hand.adapter.compile(Lab())
        paced = apply_workload(load_environment("wordle"), Workload(turns=1, tool_ns=1000))
        with pytest.raises(ValueError, match="no set time"):
            by_hand.adapter.compile(paced)

    def test_a_baseline_that_carries_no_text_takes_none(self, by_hand):
        if carries(by_hand, Feature.TEXT_ACTIONS):
            pytest.skip("its actions are texts")

        async def main():
            async with by_hand.connect() as session:
                await session.open("train/0000", 0)
                with pytest.raises(SessionError, match="tool calls only"):
                    await session.step("guess crane")

        asyncio.run(main())
