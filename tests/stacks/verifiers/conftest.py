"""A scripted model behind an OpenAI-compatible endpoint, and in which manner Verifiers keeps what every adapter promises."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from adapters.verifiers.adapter import ADAPTERS
from canonical.catalogue import load_environment
from canonical.environment import Environment
from canonical.tool import ToolCall
from canonical.transcript import Action
from tests.stacks.suite.framework import Manner

ROOT = Path(__file__).resolve().parents[3]
TOUCHSTONE = str(ROOT / "bench" / "touchstone")
BROKEN = str(Path(__file__).parent / "broken" / "environment.py")
KEY = "VERIFIERS_TEST_KEY"


class Endpoint:
    """Be a model that answers by a script: its n-th answer in a conversation is the n-th action.

    Attributes:
        requests: The bodies that were asked, as text.
        asked: Set once there is one.
    """

    def __init__(self, script: Sequence[Action | list[Action]]) -> None:
        self._script = list(script)
        self.url = ""
        self.asked = asyncio.Event()
        self.requests: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        self.requests.append(text)
        self.asked.set()
        body = json.loads(text)
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        if turn >= len(self._script):
            return web.json_response({"error": {"message": "the script is over"}}, status=400)
        message = _said(self._script[turn], turn)
        finish = "tool_calls" if "tool_calls" in message else "stop"
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": finish}
            return web.json_response(_chunk("chat.completion", [choice], usage))
        for index, call in enumerate(message.get("tool_calls", ())):
            call["index"] = index
        choice = {"index": 0, "delta": message, "finish_reason": finish}
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        for chunk in (
            _chunk("chat.completion.chunk", [choice], None),
            _chunk("chat.completion.chunk", [], usage),
        ):
            await stream.write(f"data: {json.dumps(chunk)}\n\n".encode())
        await stream.write(b"data: [DONE]\n\n")
        return stream


def _said(said: Action | list[Action], turn: int) -> dict[str, Any]:
    if isinstance(said, str):
        return {"role": "assistant", "content": said}
    calls = said if isinstance(said, list) else [said]
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": f"call_{turn}_{index}",
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments))},
            }
            for index, call in enumerate(calls)
            if isinstance(call, ToolCall)
        ],
    }


def _chunk(kind: str, choices: list[Any], usage: dict[str, int] | None) -> dict[str, Any]:
    return {"id": "x", "object": kind, "created": 0, "model": "scripted", "choices": choices, "usage": usage}


@asynccontextmanager
async def scripted(script: Sequence[Action | list[Action]]) -> AsyncIterator[Endpoint]:
    """Serve a scripted model on the running loop."""
    endpoint = Endpoint(script)
    app = web.Application(client_max_size=1 << 28)
    app.router.add_post("/v1/chat/completions", endpoint.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    endpoint.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield endpoint
    finally:
        await runner.cleanup()


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return what serves a scripted model: a context manager of a script."""
    monkeypatch.setenv(KEY, "none")
    return scripted


@pytest.fixture(scope="module")
def manner() -> Manner:
    return Manner(
        closed="open an episode",
        inline=tuple(ADAPTERS),
        writes_json=True,
        replaces_lone=True,
        rewords=True,
        is_lean=False,
    )


@pytest.fixture
def touchstone() -> Environment[Any]:
    return load_environment(TOUCHSTONE)


@pytest.fixture
def wordle() -> Environment[Any]:
    return load_environment("wordle")


@pytest.fixture
def broken() -> Environment[Any]:
    return load_environment(BROKEN)


@pytest.fixture
def canary() -> str:
    return "canary-7f3a-never-shown"
