"""The hand-written Wordle is an environment in the style of GEM's own games."""

from __future__ import annotations

import asyncio

import gem
import pytest

from canonical.adapter import SessionError
from canonical.content import ErrorCode
from canonical.tool import ToolCall


def test_the_baseline_reads_boxes_and_nothing_else(by_hand):
    async def main():
        async with by_hand.connect() as session:
            with pytest.raises(SessionError, match="call reset first"):
                await session.step("\\boxed{crane}")
            await session.open("train/0000", 0)
            plain = await session.step("crane")
            boxed = await session.step("It may be \\boxed{slate}, but I say \\boxed{crane}.")
            return plain.observation, boxed.observation

    plain, boxed = asyncio.run(main())
    assert plain.error is ErrorCode.UNPARSABLE
    assert boxed.text.startswith("C R A N E\n")


def test_both_have_the_same_code_for_a_wrong_word(standing_wordle, by_hand):
    async def main(stand):
        async with stand.connect() as session:
            await session.open("train/0000", 0)
            words = ("qqqqq", "toolong", "crane")
            return [
                (await session.step(ToolCall("guess", {"word": word}))).observation.error for word in words
            ]

    ours = asyncio.run(main(standing_wordle))
    assert ours == asyncio.run(main(by_hand)) == [ErrorCode.TOOL_ERROR, ErrorCode.TOOL_ERROR, None]


def test_the_baseline_is_an_environment_of_gem(by_hand):
    env = gem.make("hand:Wordle-v0", seed=3)
    first = env.reset(seed=7)[0]
    assert "\\boxed{word}" in first
    env.step("\\boxed{crane}")
    other = env.spawn(same_state=True)
    assert other.step("\\boxed{slate}") == env.step("\\boxed{slate}")
    vector = gem.make_vec(["hand:Wordle-v0"] * 2)
    vector.reset(seed=1)
    assert vector.step(["\\boxed{crane}"] * 2)[1].tolist() == [0.0, 0.0]
    for played in (env, other, *vector.envs):
        played.close()
