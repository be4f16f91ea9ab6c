"""A model that says what a script holds, behind an endpoint of the chat API, for rollouts that Verifiers takes itself."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from canonical.tool import ToolCall

_USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


@asynccontextmanager
async def serve_script(scripts: Sequence[Sequence[ToolCall]]) -> AsyncIterator[str]:
    """Serve the model on the running loop and yield its address; the model named `N` plays script N.

    What it says n-th in a conversation is call n of the script; a conversation that goes on after that is refused.
    """

    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        calls = scripts[int(body["model"])]
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        if turn >= len(calls):
            return web.json_response({"error": {"message": "the script is over"}}, status=400)
        said = _message(calls[turn], turn)
        if not body.get("stream"):
            return web.json_response(_completion("chat.completion", {"message": said}, body["model"]))
        said["tool_calls"][0]["index"] = 0
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        chunk = _completion("chat.completion.chunk", {"delta": said}, body["model"])
        await stream.write(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode())
        return stream

    app = web.Application(client_max_size=1 << 28)
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


def _message(call: ToolCall, turn: int) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(dict(call.arguments))}
    calls = [{"id": f"call_{turn}", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _completion(kind: str, part: dict[str, Any], model: str) -> dict[str, Any]:
    choice = {"index": 0, **part, "finish_reason": "tool_calls"}
    return {
        "id": "scripted",
        "object": kind,
        "created": 0,
        "model": model,
        "choices": [choice],
        "usage": _USAGE,
    }
