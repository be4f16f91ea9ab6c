"""What sessions over GEM's objects do, beside what every adapter promises."""

from __future__ import annotations

import asyncio

from canonical.tool import ToolCall


def test_the_state_after_a_reset_shows_the_end_of_the_episode_before(lab):
    async def main():
        async with lab.connect() as session:
            await session.open("test/0", 3)
            await session.step(ToolCall("finish"))
            await session.open("test/0", 3)
            return await session.public_state()

    assert asyncio.run(main())["info"]["previous"]["cause"] == "submitted"
