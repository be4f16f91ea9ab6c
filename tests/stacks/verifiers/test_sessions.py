"""What sessions over rollouts of Verifiers do, beside what every adapter promises."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec

import pytest

from adapters.verifiers.adapter import ADAPTER
from adapters.verifiers.compiler import Target, compile_environment, targets
from adapters.verifiers.session import make_session
from canonical.adapter import SessionError


def test_the_target_is_the_one_that_the_release_documents():
    assert targets()[0] is (
        Target.ENVIRONMENT if find_spec("verifiers.types") is not None else Target.TASK_SET
    )
    assert ADAPTER.target is targets()[0]


def test_there_is_no_state_before_an_episode(standing_lab):
    async def main():
        async with standing_lab.connect() as session:
            with pytest.raises(SessionError, match="open an episode"):
                await session.public_state()

    asyncio.run(main())


def test_sessions_and_targets_are_made_without_naming_the_release(wordle):
    session = make_session(compile_environment(wordle))

    async def main():
        opened = await session.open("train/0000", 0)
        await session.close()
        return opened

    assert [tool.name for tool in asyncio.run(main()).tools] == ["guess"]
