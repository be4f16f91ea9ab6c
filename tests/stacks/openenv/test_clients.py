"""OpenEnv's own clients, used as its users use them."""

from __future__ import annotations

import asyncio
import inspect

import pytest
from openenv.core import GenericEnvClient, MCPToolClient, mcp_client
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation

KEEPS_FIELDS = hasattr(mcp_client, "GenericMCPObservation")
"""Older releases of this one client drop every field that an environment declares for its reset."""


def guess(word):
    return {"type": "call_tool", "tool_name": "guess", "arguments": {"word": word}}


def test_the_generic_client_plays_an_episode(standing_wordle):
    async def main():
        async with GenericEnvClient(base_url=standing_wordle.url) as env:
            start = await env.reset(task="train/0000", seed=1)
            assert start.observation["prompt"][0]["role"] == "user"
            assert (start.reward, start.done) == (None, False)
            answer = standing_wordle.environment.tasks().get("train/0000").secret["answer"]
            result = await env.step(guess(answer))
            return result, await env.state()

    result, state = asyncio.run(main())
    assert (result.reward, result.done) == (1.0, True)
    assert result.observation["result"].splitlines()[1] == "G G G G G"
    assert (result.observation["ending"], result.observation["cause"]) == ("terminated", "solved")
    assert state["step_count"] == 1


def test_the_synchronous_client_plays_an_episode(standing_wordle):
    with GenericEnvClient(base_url=standing_wordle.url).sync() as env:
        env.reset(split="test", index=3)
        result = env.step(guess("crane"))
        assert "Guesses left: 5" in result.observation["result"]
        assert env.state()["task"] == "test/0003"


def test_the_tool_client_lists_and_calls_tools(standing_wordle):
    async def main():
        async with MCPToolClient(base_url=standing_wordle.url) as env:
            start = await env.reset(task="train/0001", seed=1)
            tools = await env.list_tools()
            stepped = await env.step(CallToolAction(tool_name="guess", arguments={"word": "crane"}))
            called = await env.call_tool("guess", word="sloth")
            return start, tools, stepped, called, await env.state()

    start, tools, stepped, called, state = asyncio.run(main())
    if KEEPS_FIELDS:
        assert "hidden five-letter English word" in start.observation.prompt[0]["content"]
    specs = [tool.spec for tool in standing_wordle.environment.tools]
    assert [(t.name, t.description, t.input_schema) for t in tools] == [
        (spec.name, spec.description, dict(spec.parameters)) for spec in specs
    ]
    assert isinstance(stepped.observation, CallToolObservation)
    assert stepped.observation.result.startswith("C R A N E")
    assert (stepped.reward, stepped.done) == (0.0, False)
    # Over JSON-RPC this client returns the whole observation, over the WebSocket only its result.
    text = called["result"] if isinstance(called, dict) else called
    assert text.startswith("S L O T H")
    assert "Guesses left: 4" in text
    assert state.step_count == 2
    assert standing_wordle.becomes(0)


def test_the_tool_client_sees_errors_in_the_frameworks_own_field(standing_wordle):
    async def main():
        async with MCPToolClient(base_url=standing_wordle.url) as env:
            await env.reset(task="train/0001", seed=1)
            unknown = await env.step(CallToolAction(tool_name="none", arguments={}))
            invalid = await env.step(CallToolAction(tool_name="guess", arguments={"letters": 5}))
            failed = await env.step(CallToolAction(tool_name="guess", arguments={"word": "qqqqq"}))
            return [result.observation.error for result in (unknown, invalid, failed)]

    errors = asyncio.run(main())
    assert [error.error_type.value for error in errors] == [
        "tool_not_found",
        "invalid_args",
        "execution_error",
    ]
    assert "not in the word list" in errors[2].message


@pytest.mark.skipif(
    "new_session" not in dict(inspect.getmembers(GenericEnvClient)),
    reason="this release opens one session per client",
)
def test_a_further_session_of_a_client_has_an_episode_of_its_own(standing_wordle):
    async def main():
        async with GenericEnvClient(base_url=standing_wordle.url) as first:
            second = await first.new_session()
            await first.reset(task="train/0000")
            await second.reset(task="train/0001")
            await first.step(guess("crane"))
            return await first.state(), await second.state()

    first, second = asyncio.run(main())
    assert (first["task"], first["step_count"]) == ("train/0000", 1)
    assert (second["task"], second["step_count"]) == ("train/0001", 0)
    assert standing_wordle.becomes(0)
