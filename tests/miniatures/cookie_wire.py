"""What is said to `http_server.py` where it has cookies, a POST per tool and a verification, as the load engine loads it."""

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


class CookieWire:
    transport: Literal["http"] = "http"
    connection: Literal["session", "pool"] = "pool"
    last_events: frozenset[str] = frozenset()

    def connect(self, memory: dict[str, Any]) -> None:
        return None

    def reset(self, memory: dict[str, Any], task: str, seed: int) -> Generator[Request, Any, Reply]:
        seeded = yield self._post(memory, "seed", {"task": task, "seed": seed})
        memory["cookies"] = seeded.cookies
        return Reply(json.loads(seeded.body), None, None, None)

    def step(
        self, memory: dict[str, Any], name: str, arguments: Mapping[str, JSON]
    ) -> Generator[Request, Any, Reply]:
        called = yield self._post(memory, name, arguments)
        result = json.loads(called.body)
        return Reply(result["text"], result["reward"], result["ended"], None)

    def score(self, memory: dict[str, Any]) -> Generator[Request, Any, Reply]:
        verified = yield self._post(memory, "verify", {})
        memory["verified"] = True
        return Reply("", json.loads(verified.body)["reward"], None, None)

    def close(self, memory: dict[str, Any]) -> Generator[Request, Any, Reply] | None:
        # What was never made, or was verified and is gone, needs no end.
        return self.score(memory) if "cookies" in memory and "verified" not in memory else None

    def _post(self, memory: dict[str, Any], name: str, message: Mapping[str, JSON]) -> Request:
        headers = {"Content-Type": "application/json"}
        if "cookies" in memory:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in memory["cookies"].items())
        return Request("POST", f"/cookie/{name}", headers, json.dumps(dict(message)).encode())


WIRE = CookieWire()
