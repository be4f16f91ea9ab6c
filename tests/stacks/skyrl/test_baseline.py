"""The hand-written Wordle is an environment in the style of SkyRL's own."""

from __future__ import annotations

import asyncio


def test_the_baseline_reads_text_and_answers_what_is_none(by_hand):
    async def main():
        async with by_hand.connect() as session:
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
