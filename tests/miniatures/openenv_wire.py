"""The frames of the miniature server in `openenv_server.py`, as the load engine loads them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canonical.content import JSON


class Reply(NamedTuple):
    text: str
    reward: float
    ended: bool
    error: str | None


class MiniatureWire:
    transport: Literal["websocket"] = "websocket"
    path = "/ws"

    def reset(self, task: str, seed: int) -> str:
        return json.dumps({"type": "reset", "data": {"seed": seed, "task": task}})

    def step(self, name: str, arguments: Mapping[str, JSON]) -> str:
        action = {"type": "call_tool", "tool_name": name, "arguments": dict(arguments)}
        return json.dumps({"type": "step", "data": action})

    def close(self) -> str | None:
        return json.dumps({"type": "close"})

    def read_reset(self, frame: str) -> Reply:
        return self.read_step(frame)

    def read_step(self, frame: str) -> Reply:
        message = json.loads(frame)
        data = message["data"]
        if message["type"] == "error":
            return Reply("", 0.0, ended=False, error=f"{data['code']}: {data['message']}")
        if message["type"] != "observation":
            raise ValueError(f"a frame of type {message['type']!r}")
        return Reply(data["observation"]["text"], data["reward"] or 0.0, data["done"], None)


WIRE = MiniatureWire()
