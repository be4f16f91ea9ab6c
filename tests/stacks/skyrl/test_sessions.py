"""What sessions over SkyRL's environments do, beside what every adapter promises."""

from __future__ import annotations

import asyncio

import pytest

from adapters.skyrl.adapter import ADAPTER
from canonical.adapter import Endpoint, SessionError
from canonical.step import StepResult
from canonical.tool import ToolCall
from tests.stacks.suite.secrets import state_after


def test_a_call_that_json_cannot_carry_is_an_error_in_words(standing_lab):
    async def main():
        async with standing_lab.connect() as session:
            await session.open("train/0", 0)
            with pytest.raises(SessionError, match="cannot be written as text"):
                await session.step(ToolCall("pay", {"amount": float("nan")}))

    asyncio.run(main())


def test_there_is_no_state_before_an_episode_and_after_the_end_of_the_session(standing_lab):
    async def main():
        async with standing_lab.connect() as session:
            with pytest.raises(SessionError, match="open an episode"):
                await session.public_state()
            await session.open("train/0", 0)
            await session.close()
            for request in (session.open("train/0", 0), session.public_state()):
                with pytest.raises(SessionError, match="cannot be used any more: it is closed"):
                    await request

    asyncio.run(main())


def test_closing_during_a_step_does_not_wait_for_it_and_its_answer_still_comes(lab, threaded):
    async def main():
        async with lab.connect() as session:
            await session.open("train/0", 0)
            blocked = asyncio.create_task(session.step(ToolCall("block")))
            await asyncio.to_thread(lab.environment.entered.acquire)
            await session.close()
            lab.environment.gate.set()
            return await blocked

    assert isinstance(asyncio.run(main()), StepResult)
    assert lab.becomes(0)


def test_the_state_shows_the_episode(lab):
    shown = state_after(lab, ToolCall("pay", {"amount": 2.0}), ToolCall("finish"))
    assert shown["init"]["task"] == "test/0"
    assert shown["step"]["metadata"]["cause"] == "submitted"
    assert shown["metrics"]["return"] == 4.0
    assert shown["spec"]["kwargs"]["extras"]["extra_info"] == {"task": "test/0", "seed": 5}


def test_an_address_is_refused_in_words(compiled):
    async def main():
        async with ADAPTER.connect(compiled, Endpoint("http://127.0.0.1:1", lambda: 0)):
            pass

    with pytest.raises(SessionError, match="in the trainer's own process"):
        asyncio.run(main())
