"""What NeMo Gym's own server and client do with sessions, beside what every adapter promises."""

from __future__ import annotations

import asyncio

import pytest

from adapters.nemo_gym.adapter import NeMoGymAdapter
from canonical.adapter import SessionError
from canonical.tool import ToolCall
from tests.stacks.suite.lab import Lab
from tests.stacks.suite.leaks import CYCLES, Used, needs_proc
from tests.stacks.suite.secrets import state_after


def test_a_server_that_is_gone_is_noticed_though_the_client_would_try_for_ever(lab):
    async def main():
        async with lab.connect() as session:
            await session.open("train/0", 0)
            await asyncio.to_thread(lab.stop)
            with pytest.raises(SessionError, match="no server answers"):
                await session.step(ToolCall("draw"))

    asyncio.run(main())


@needs_proc
def test_two_thousand_sessions_of_which_nothing_tells_the_server_are_freed_when_their_time_is_up_by_themselves(
    serve_standing, manner
):
    environment = Lab()

    async def cycles(server, count):
        for _ in range(count):
            connection = server.connect()
            session = await connection.__aenter__()
            await session.open("train/0", 0)
            # From here on nothing of this session reaches the server, as when the client's process has died.
            session._requests.lost = "abandoned"
            await connection.__aexit__(None, None, None)

    with serve_standing(environment, NeMoGymAdapter(session_ttl=0.5)) as server:
        asyncio.run(cycles(server, 200))
        assert server.becomes(0)
        before = Used.now()
        asyncio.run(cycles(server, CYCLES))
        assert server.becomes(0)
        before.check(manner, threads=2)
    assert len(environment.closed) == 200 + CYCLES


def test_what_a_client_can_read_is_the_seed_the_last_result_and_its_cookie(lab):
    shown = state_after(lab, ToolCall("pay", {"amount": 2.0}), ToolCall("finish"))
    assert shown["seeded"]["task"] == "test/0"
    assert list(shown["cookies"][0]) == ["session_id"]
    assert shown["result"]["total"] == 4.0


class DearLab(Lab):
    """Be played as if every episode cost seconds."""

    dear = True


def test_a_dear_episode_is_read_again_without_being_played_again(serve_standing):
    async def main(server):
        async with server.connect() as session:
            await session.open("test/0", 7)
            await session.reread(server.compiled)
            for action in (ToolCall("pay", {"amount": 2.0}), ToolCall("echo", {"text": "\ud800"})):
                await session.step(action)
            await session.step(ToolCall("finish"))
            begun = environment.opened
            await session.reread(server.compiled)
            # The row is made from an episode, and nothing was called in it.
            assert environment.opened == begun + 1
            assert environment.closed[-1].count == 0.0
            assert server.live == 1
            # Three actions were paid, and what was called after the end was not.
            assert await session.reported_return() == 6.0

    environment = DearLab()
    with serve_standing(environment) as server:
        asyncio.run(main(server))
