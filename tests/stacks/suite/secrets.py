"""A task's secret is in nothing that a client can read of an episode, nor in what is logged or printed."""

from __future__ import annotations

import asyncio

from canonical.adapter import SessionError
from tests.stacks.suite.lab import CANARY
from tests.stacks.suite.transcripts import ACTIONS, AFTER_THE_END


def state_after(stand, *actions):
    """Return what a client can read of an episode of task `test/0` and seed 5 after some actions."""

    async def main():
        async with stand.connect() as session:
            await session.open("test/0", 5)
            for action in actions:
                await session.step(action)
            return await session.public_state()

    return asyncio.run(main())


class TestSecrets:
    """A task's secret is in nothing that a client can read of an episode, nor in what is logged or printed."""

    def test_nothing_that_a_client_can_read_holds_a_secret(self, lab, manner, caplog, capfd):
        async def main():
            shown = []
            async with lab.connect() as session:
                try:
                    shown.append(await session.public_state())
                except SessionError as error:
                    shown.append(str(error))
                for task in ("test/0", "train/1"):
                    shown.append(await session.open(task, 3))
                    for action in (*ACTIONS, *manner.actions, *AFTER_THE_END):
                        shown.append(await session.step(action))
                        shown.append(await session.public_state())
            return repr(shown)

        text = asyncio.run(main())
        printed = capfd.readouterr()
        assert "Level 9." in text
        assert CANARY not in text + caplog.text + printed.out + printed.err
