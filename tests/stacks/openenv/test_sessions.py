"""What OpenEnv's own server and client do with sessions, beside what every adapter promises."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest
from websockets.sync.client import connect as connect_raw

from adapters.openenv.adapter import OpenEnvAdapter
from canonical.adapter import SessionError
from canonical.tool import ToolCall
from tests.stacks.suite.secrets import state_after


@pytest.mark.parametrize("way", ["close frame", "closing handshake", "vanished", "broken frame"])
def test_however_a_client_goes_its_episode_is_freed(lab, way):
    with connect_raw(lab.ws) as raw:
        raw.send(json.dumps({"type": "reset", "data": {"task": "train/0", "seed": 0}}))
        assert json.loads(raw.recv())["type"] == "observation"
        assert lab.becomes(1)
        if way == "close frame":
            raw.send('{"type": "close"}')
        elif way == "closing handshake":
            raw.close()
        elif way == "broken frame":
            raw.send("[1, 2]")
        else:
            raw.socket.shutdown(socket.SHUT_RDWR)
        assert lab.becomes(0)
    assert lab.closes(1)


def test_a_server_without_room_refuses_at_connect(environment, serve_standing):
    async def main(server):
        async with server.connect() as session:
            await session.open("train/0", 0)
            with pytest.raises(SessionError):
                async with server.connect():
                    pass
            return await session.step(ToolCall("echo", {"text": "x"}))

    with serve_standing(environment, OpenEnvAdapter(max_concurrent_envs=1)) as server:
        assert server.endpoint.settings["max_concurrent_envs"] == 1
        assert asyncio.run(main(server)).observation.text == "x"


def test_the_state_shows_the_episode(lab):
    state = state_after(lab, ToolCall("pay", {"amount": 2.0}), ToolCall("finish"), ToolCall("finish"))[
        "state"
    ]
    assert state.pop("episode_id")
    assert state == {
        "step_count": 3, "task": "test/0", "seed": 5, "turn": 2, "total": 4.0, "ending": "terminated", "cause": "submitted",
    }  # fmt: skip
