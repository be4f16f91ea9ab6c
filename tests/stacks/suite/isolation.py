"""Sessions have tasks, generators and states of their own."""

from __future__ import annotations

import asyncio

from canonical.tool import ToolCall
from canonical.transcript import first_difference

SESSIONS = 64
ROUNDS = [
    lambda n: ToolCall("draw"),
    lambda n: ToolCall("pay", {"amount": n / SESSIONS}),
    lambda n: ToolCall("echo", {"text": str(n)}),
    lambda n: ToolCall("none") if n % 3 else ToolCall("draw"),
    lambda n: ToolCall("finish") if n % 2 else ToolCall("draw"),
    lambda n: ToolCall("draw"),
]


class TestIsolation:
    """Sessions have tasks, generators and states of their own."""

    def test_sixty_four_interleaved_sessions_play_as_each_would_alone(self, lab):
        async def one(barrier, number):
            actions = [make(number) for make in ROUNDS]
            async with lab.connect() as session:
                return await lab.transcribe(session, f"train/{number % 5}", number, actions, barrier)

        async def main():
            barrier = asyncio.Barrier(SESSIONS)
            played = await asyncio.gather(*(one(barrier, number) for number in range(SESSIONS)))
            for number, mine in enumerate(played):
                alone = await lab.play_reference(mine.task, number, [make(number) for make in ROUNDS])
                assert first_difference(alone, mine) is None
            return played

        played = asyncio.run(main())
        # The first draws tell the generators apart.
        assert len({mine.steps[0].result.observation.text for mine in played}) == SESSIONS
        assert lab.becomes(0)
        assert lab.closes(2 * SESSIONS)

    def test_sixty_four_open_sessions_are_counted_and_freed(self, lab):
        async def main():
            connections = [lab.connect() for _ in range(SESSIONS)]
            sessions = await asyncio.gather(*(connection.__aenter__() for connection in connections))
            assert lab.live == 0
            await asyncio.gather(*(session.open("train/0", n) for n, session in enumerate(sessions)))
            assert lab.live == SESSIONS
            await asyncio.gather(*(session.open("train/1", n) for n, session in enumerate(sessions[:8])))
            assert lab.live == SESSIONS
            await asyncio.gather(*(connection.__aexit__(None, None, None) for connection in connections))

        asyncio.run(main())
        assert lab.becomes(0)
        assert lab.closes(SESSIONS + 8)
