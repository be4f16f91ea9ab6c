"""What is said to `http_server.py` where it has session headers and event streams, as the load engine loads it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from canonical.content import JSON


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes | None


class Reply(NamedTuple):
    text: str
    reward: float | None
    ended: bool | None
    error: str | None


class StreamWire:
    transport: Literal["http"] = "http"
    connection: Literal["session", "pool"] = "session"
    last_events = frozenset({"end"})

    def connect(self, memory: dict[str, Any]) -> Generator[Request, Any, Reply]:
        announced = yield Request("POST", "/stream/announce", {}, b"")
        memory["session"] = events(announced.body)["session"]
        return Reply("", None, None, None)

    def reset(self, memory: dict[str, Any], task: str, seed: int) -> Generator[Request, Any, Reply]:
        yield self._post(memory, "/stream/create", {"task": task, "seed": seed})
        prompt = yield Request("GET", "/stream/prompt", {"X-Session-ID": memory["session"]}, None)
        return Reply(json.loads(prompt.body), None, None, None)

    def step(
        self, memory: dict[str, Any], name: str, arguments: Mapping[str, JSON]
    ) -> Generator[Request, Any, Reply]:
        called = yield self._post(memory, "/stream/call", {"name": name, "input": dict(arguments)})
        if called.status != 200:
            return Reply("", None, None, f"status {called.status}")
        said = events(called.body)
        result = json.loads(said["chunk"] + said["end"])
        return Reply(result["text"], result["reward"], result["ended"], None)

    def score(self, memory: dict[str, Any]) -> None:
        return None

    def close(self, memory: dict[str, Any]) -> Generator[Request, Any, Reply]:
        yield self._post(memory, "/stream/delete", {})
        return Reply("", None, None, None)

    def _post(self, memory: dict[str, Any], path: str, message: object) -> Request:
        headers = {"X-Session-ID": memory["session"], "Content-Type": "application/json"}
        return Request("POST", path, headers, json.dumps(message).encode())


def events(body: bytes) -> dict[str, str]:
    named = {}
    for block in body.decode().split("\r\n\r\n"):
        fields = dict(
            line.split(": ", 1) for line in block.split("\r\n") if line and not line.startswith(":")
        )
        if fields:
            named[fields["event"]] = fields["data"]
    return named


WIRE = StreamWire()
