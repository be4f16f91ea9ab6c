"""An episode is opened, or refused in words, and the session goes on."""

from __future__ import annotations

import asyncio

import pytest

from canonical.adapter import SessionError
from canonical.tool import ToolCall
from tests.stacks.suite.lab import CANARY

ECHO = ToolCall("echo", {"text": "x"})


class TestOpening:
    """An episode is opened, or refused in words, and the session goes on."""

    def test_a_step_before_an_episode_is_refused_and_the_session_goes_on(self, lab, manner):
        async def main():
            async with lab.connect() as session:
                with pytest.raises(SessionError, match=manner.unopened):
                    await session.step(ECHO)
                await session.open("train/0", 0)
                return await session.step(ECHO)

        assert asyncio.run(main()).observation.text == "x"

    def test_an_unknown_task_is_refused_in_words_and_the_session_goes_on(self, lab, manner):
        async def main():
            async with lab.connect() as session:
                await session.open("train/0", 0)
                for task in ("train/99", "nowhere", "odd/\ud800"):
                    with pytest.raises(SessionError, match="no task"):
                        await session.open(task, 0)
                if not manner.keeps_episode:
                    await session.open("train/0", 0)
                return await session.step(ECHO)

        assert asyncio.run(main()).observation.text == "x"
        assert lab.becomes(0)
        assert lab.closes()

    def test_an_environment_that_fails_to_start_tells_no_secret(self, lab, manner, caplog, capfd):
        async def main():
            async with lab.connect() as session:
                with pytest.raises(SessionError, match=manner.unstartable) as caught:
                    await session.open("odd/broken", 0)
                await session.open("train/0", 0)
                assert (await session.step(ECHO)).observation.text == "x"
            return str(caught.value)

        text = asyncio.run(main())
        printed = capfd.readouterr()
        assert CANARY not in text + caplog.text + printed.out + printed.err
        # Whoever wrote the environment reads where it failed.
        assert "Lab.start" in caplog.text
        assert lab.becomes(0)

    def test_opening_again_frees_the_episode_before(self, lab):
        async def main():
            async with lab.connect() as session:
                for number in range(4):
                    await session.open(f"train/{number}", 0)
                    assert lab.live == 1
                    assert lab.closes(number)

        asyncio.run(main())
        assert lab.becomes(0)
        assert lab.closes(4)

    @pytest.mark.parametrize("abandoned", [True, False], ids=["abandoned", "closed"])
    def test_a_session_that_is_given_up_while_it_starts_is_freed(self, lab, threaded, abandoned):
        async def main():
            connection = lab.connect()
            session = await connection.__aenter__()
            opening = asyncio.create_task(session.open("odd/slow", 0))
            await asyncio.to_thread(lab.environment.entered.acquire)
            if abandoned:
                opening.cancel()
            closing = asyncio.create_task(connection.__aexit__(None, None, None))
            await asyncio.sleep(0.2)
            lab.environment.gate.set()
            await asyncio.gather(opening, closing, return_exceptions=True)

        asyncio.run(main())
        assert lab.becomes(0)
        assert lab.closes()
