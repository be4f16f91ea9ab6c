"""However an episode ends, it is freed once, and nothing is paid after that."""

from __future__ import annotations

import asyncio

import pytest

from canonical.adapter import SessionError
from canonical.content import ErrorCode
from canonical.step import Cause, StepResult
from canonical.tool import ToolCall

PAY = ToolCall("pay", {"amount": 0.5})


class TestEndings:
    """However an episode ends, it is freed once, and nothing is paid after that."""

    def test_after_the_end_nothing_changes_and_nothing_is_paid(self, lab):
        async def main():
            async with lab.connect() as session:
                await session.open("train/0", 0)
                paid = [await session.step(action) for action in (PAY, PAY, ToolCall("finish"))]
                return paid, [await session.step(action) for action in (PAY, "text", ToolCall("none"))]

        paid, after = asyncio.run(main())
        assert [result.cause for result in paid] == [None, None, Cause.SUBMITTED]
        for result in after:
            assert (result.reward, result.total) == (0.0, paid[-1].total)
            assert (result.observation.error, result.cause) == (ErrorCode.EPISODE_OVER, Cause.SUBMITTED)

    def test_the_return_that_a_trainer_reads_is_what_was_paid(self, lab):
        async def main():
            async with lab.connect() as session:
                await session.open("train/0", 0)
                paid = [(await session.step(PAY)).reward]
                with pytest.raises(SessionError, match="not over"):
                    await session.reported_return()
                last = await session.step(ToolCall("finish"))
                return sum([*paid, last.reward]), last.total, await session.reported_return()

        paid, total, reported = asyncio.run(main())
        assert paid == total == reported == 1.0

    def test_closing_twice_is_harmless_and_frees_once(self, lab, manner):
        async def main():
            async with lab.connect() as session:
                await session.open("train/0", 0)
                await session.close()
                await session.close()
                with pytest.raises(SessionError, match=manner.closed):
                    await session.step(ToolCall("draw"))

        asyncio.run(main())
        assert lab.becomes(0)
        assert lab.closes(1)

    def test_every_way_out_frees_the_episode_once(self, lab):
        async def fail():
            async with lab.connect() as session:
                await session.open("train/0", 0)
                raise ZeroDivisionError

        async def main():
            async with lab.connect() as session:
                await session.open("train/0", 0)
                await session.step(ToolCall("finish"))
                await session.close()
            with pytest.raises(ZeroDivisionError):
                await fail()
            async with lab.connect():
                pass

        asyncio.run(main())
        assert lab.becomes(0)
        assert lab.closes(2)

    def test_sessions_that_are_closed_during_a_step_are_freed_after_it(self, lab, threaded):
        async def main():
            connections = [lab.connect() for _ in range(2)]
            sessions = [await connection.__aenter__() for connection in connections]
            blocked = []
            for session in sessions:
                await session.open("train/0", 0)
                blocked.append(asyncio.create_task(session.step(ToolCall("block"))))
                await asyncio.to_thread(lab.environment.entered.acquire)
            closings = [asyncio.create_task(session.close()) for session in sessions]
            await asyncio.sleep(0.1)
            assert lab.live == 2
            assert lab.environment.closed == []
            lab.environment.gate.set()
            await asyncio.gather(*closings)
            outcomes = await asyncio.gather(*blocked, return_exceptions=True)
            for connection in connections:
                await connection.__aexit__(None, None, None)
            return outcomes

        outcomes = asyncio.run(main())
        assert all(isinstance(outcome, SessionError | StepResult) for outcome in outcomes)
        assert lab.becomes(0)
        assert lab.closes(2)

    def test_a_step_that_was_given_up_shifts_no_answers_and_is_freed_after_its_end(
        self, lab, manner, threaded
    ):
        async def main():
            async with lab.connect() as session:
                await session.open("train/0", 0)
                blocked = asyncio.create_task(session.step(ToolCall("block")))
                await asyncio.to_thread(lab.environment.entered.acquire)
                blocked.cancel()
                await asyncio.wait({blocked})
                assert blocked.cancelled()
                if manner.abandoned is not None:
                    with pytest.raises(SessionError, match=manner.abandoned):
                        await session.step(ToolCall("draw"))
                closing = asyncio.create_task(session.close())
                await asyncio.sleep(0.05)
                assert lab.environment.closed == []
                lab.environment.gate.set()
                await closing

        asyncio.run(main())
        assert lab.becomes(0)
        assert lab.closes(1)

    def test_an_overdue_answer_loses_the_session_with_a_clear_word(self, lab, manner):
        if manner.impatient is None:
            pytest.skip("the clients of this framework wait as long as it takes")

        async def main():
            async with lab.connect(manner.impatient) as session:
                await session.open("train/0", 0)
                with pytest.raises(SessionError, match=r"did not answer within 0\.3 s"):
                    await session.step(ToolCall("block"))
                with pytest.raises(SessionError, match=r"cannot be used any more: the server did not answer"):
                    await session.step(ToolCall("draw"))
                lab.environment.gate.set()

        asyncio.run(main())
