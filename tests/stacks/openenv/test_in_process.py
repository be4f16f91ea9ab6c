"""A compiled environment used as a Python object, as OpenEnv's web interface and notebooks use environments."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from openenv.core.env_server import Environment
from openenv.core.env_server.mcp_types import CallToolAction, ListToolsAction
from openenv.core.env_server.types import Action

from adapters.openenv.adapter import ADAPTER
from adapters.openenv.compiler import Refusal


def call(name, **arguments):
    return CallToolAction(tool_name=name, arguments=arguments)


def test_it_is_an_environment_of_openenv(environment):
    compiled = ADAPTER.compile(environment)
    assert issubclass(compiled, Environment)
    assert compiled.SUPPORTS_CONCURRENT_SESSIONS
    assert compiled.__name__ == type(environment).__name__


def test_reset_step_and_close_work_without_an_event_loop(environment):
    environment.gate.set()
    played = ADAPTER.compile(environment)()
    assert [tool.name for tool in played.step(ListToolsAction()).tools] == [
        tool.name for tool in environment.tools
    ]
    with pytest.raises(Refusal, match="call reset first"):
        played.step(call("draw"))
    assert played.reset(task="train/1", seed=4).task == "train/1"
    first = played.step(call("draw"))
    assert played.step(call("block")).result == "through"
    assert (first.reward, first.done) == (0.0, False)
    with pytest.raises(Refusal, match="an action is a CallToolAction"):
        played.step(Action())
    played.reset(task="train/1", seed=4)
    assert played.step(call("draw")).result == first.result
    played.close()
    played.close()
    assert len(environment.closed) == 2
    assert played.state.episode_id is None


def test_an_environment_that_waits_is_awaited_on_an_event_loop(environment):
    played = ADAPTER.compile(environment)()
    waits = type(environment).__name__ == "WaitingLab"

    async def main():
        if waits:
            with pytest.raises(Refusal, match="await reset_async"):
                played.reset()
        await played.reset_async(task="train/1", seed=4)
        answer = await played.step_async(call("echo", text="x"))
        played.close()
        await asyncio.sleep(0.01)
        return answer

    assert asyncio.run(main()).result == "x"
    assert len(environment.closed) == 1


def test_two_objects_share_nothing(environment):
    compiled = ADAPTER.compile(environment)
    one, other = compiled(), compiled()
    one.reset(task="train/0", seed=1)
    other.reset(task="train/0", seed=1)
    drawn = [one.step(call("draw")).result for _ in range(3)]
    one.step(call("finish"))
    assert [other.step(call("draw")).result for _ in range(3)] == drawn
    assert not other.state.ending
    assert len(compiled.live) == 2
    one.close()
    other.close()
    assert not compiled.live


def test_the_web_interface_plays(environment, serve_standing, monkeypatch):
    monkeypatch.setenv("ENABLE_WEB_INTERFACE", "true")
    with (
        serve_standing(environment) as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=30) as http,
    ):
        assert http.get("/web/").status_code == 200
        started = http.post("/web/reset", json={"reset_kwargs": {}}).json()
        assert started["observation"]["prompt"] == [{"role": "user", "content": "Level 0."}]
        action = {"tool_name": "echo", "arguments": {"text": "by hand"}}
        answer = http.post("/web/step", json={"action": action}).json()
        assert (answer["observation"]["result"], answer["reward"]) == ("by hand", 0.0)
        assert http.get("/web/state").json()["step_count"] == 1
