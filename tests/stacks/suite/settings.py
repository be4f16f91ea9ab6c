"""Settings of servers: whatever an adapter offers to compare is in force when it was asked for, and changes no answer."""

from __future__ import annotations

import asyncio

import pytest

from canonical.catalogue import load_environment
from canonical.episode import Episode
from canonical.executor import ExecutorListing
from canonical.server_settings import SettableServer
from canonical.tool import ToolCall

GUESS = ToolCall("guess", {"word": "crane"})


class TestSettings:
    """Hold an adapter to the settings that it lists."""

    def test_only_a_server_has_settings_and_only_what_runs_in_process_ways_to_step(self, framework):
        assert framework.is_server or not isinstance(framework.adapter, SettableServer)
        assert not framework.is_server or not isinstance(framework.adapter, ExecutorListing)

    def test_every_setting_is_in_force_and_changes_no_answer(self, framework):
        if not isinstance(framework.adapter, SettableServer):
            pytest.skip("this adapter has no settings of servers")
        wordle = load_environment("wordle")
        expected = Episode.open(wordle, "train/0000", seed=0).step(GUESS)

        async def play(adapter):
            compiled = adapter.compile(wordle)
            async with adapter.serve(compiled) as endpoint, adapter.connect(compiled, endpoint) as session:
                await session.open("train/0000", 0)
                return await session.step(GUESS), dict(endpoint.settings)

        async def main():
            _, default = await play(framework.adapter)
            for name, settings in framework.adapter.alternatives().items():
                result, recorded = await play(framework.adapter.with_settings(settings))
                assert result == expected, name
                changed = {key: recorded[key] for key in recorded if recorded[key] != default[key]}
                wanted = settings.uvicorn() | (
                    {} if settings.threads is None else {"threads": settings.threads}
                )
                assert changed == wanted, name

        asyncio.run(main())
