"""What cannot be done in a step is said, never paid, and holds nothing up."""

from __future__ import annotations

import asyncio

import pytest

from canonical.adapter import SessionError
from canonical.content import ErrorCode
from canonical.step import Cause
from canonical.tool import ToolCall

ECHO = ToolCall("echo", {"text": "x"})


async def step_after_failing(session, manner):
    """Take the step after one whose reward could not be computed; it is never paid for."""
    if manner.fails_again:
        with pytest.raises(SessionError, match="finite"):
            await session.step(ECHO)
    else:
        result = await session.step(ECHO)
        assert result.reward == 0.0
        assert (result.observation.error, result.cause) == (ErrorCode.EPISODE_OVER, Cause.ERROR)


class TestStepping:
    """What cannot be done in a step is said, never paid, and holds nothing up."""

    def test_a_reward_that_cannot_be_computed_is_an_error_and_never_zero(self, lab, manner):
        async def main():
            async with lab.connect() as session:
                await session.open("train/0", 0)
                await session.step(ToolCall("pay", {"amount": 1e308}))
                with pytest.raises(SessionError, match="finite"):
                    await session.step(ToolCall("pay", {"amount": 1e308}))
                await step_after_failing(session, manner)

        asyncio.run(main())
        assert lab.becomes(0)

    @pytest.mark.parametrize("amount", [float("inf"), float("nan")])
    def test_a_number_that_is_not_finite_is_refused_in_words(self, lab, manner, amount):
        """Where calls are JSON, it never reaches the episode, which goes on."""
        pay = ToolCall("pay", {"amount": amount})

        async def as_json(session):
            try:
                assert (await session.step(pay)).observation.error is ErrorCode.UNPARSABLE
            except SessionError as error:
                assert str(error)  # noqa: PT017 - some refuse it before it is sent, and some after
            result = await session.step(ECHO)
            assert (result.observation.text, result.total) == ("x", 0.0)

        async def main():
            async with lab.connect() as session:
                await session.open("train/0", 0)
                if manner.writes_json:
                    await as_json(session)
                else:
                    with pytest.raises(SessionError, match="not a finite number"):
                        await session.step(pay)
                    await step_after_failing(session, manner)

        asyncio.run(main())

    def test_a_tool_that_blocks_holds_up_no_other_session(self, lab, threaded):
        async def main():
            async with lab.connect() as first, lab.connect() as second:
                await first.open("train/0", 0)
                await second.open("train/1", 0)
                blocked = asyncio.create_task(first.step(ToolCall("block")))
                await asyncio.to_thread(lab.environment.entered.acquire)
                said = await second.step(ToolCall("echo", {"text": "meanwhile"}))
                assert said.observation.text == "meanwhile"
                assert not blocked.done()
                lab.environment.gate.set()
                return await blocked

        assert asyncio.run(main()).observation.text == "through"
