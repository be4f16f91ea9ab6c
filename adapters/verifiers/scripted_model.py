"""A model behind an endpoint of the chat API that says what a script holds or what a function returns."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from canonical.tool import ToolCall
from canonical.transcript import Action

_USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


@asynccontextmanager
async def serve_script(scripts: Sequence[Sequence[ToolCall]]) -> AsyncIterator[str]:
    """Serve the model on the running loop and yield its address; the model named `N` plays script N.

    What it says n-th in a conversation is call n of the script; a conversation that goes on after that is refused.
    """

    async def answer(body: Mapping[str, Any]) -> Action | None:
        calls = scripts[int(body["model"])]
        turn = _turn(body)
        return calls[turn] if turn < len(calls) else None

    async with serve_model(answer) as url:
        yield url


@asynccontextmanager
async def serve_model(
    answer: Callable[[Mapping[str, Any]], Awaitable[Action | None]], refusal: str = "the script is over"
) -> AsyncIterator[str]:
    """Serve a model on the running loop and yield its address.

    Args:
        answer: Returns what the model says to the body of a request, or None to refuse it.
        refusal: The text of a refusal.
    """

    async def respond(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        action = await answer(body)
        if action is None:
            return web.json_response({"error": {"message": refusal}}, status=400)
        said = _message(action, _turn(body))
        if not body.get("stream"):
            return web.json_response(_completion("chat.completion", {"message": said}, body["model"]))
        for place, call in enumerate(said.get("tool_calls", ())):
            call["index"] = place
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        chunk = _completion("chat.completion.chunk", {"delta": said}, body["model"])
        await stream.write(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode())
        return stream

    app = web.Application(client_max_size=1 << 28)
    app.router.add_post("/v1/chat/completions", respond)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


def _turn(body: Mapping[str, Any]) -> int:
    return sum(message["role"] == "assistant" for message in body["messages"])


def _message(action: Action, turn: int) -> dict[str, Any]:
    if isinstance(action, str):
        return {"role": "assistant", "content": action}
    function = {"name": action.name, "arguments": json.dumps(dict(action.arguments))}
    calls = [{"id": f"call_{turn}", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _completion(kind: str, part: dict[str, Any], model: str) -> dict[str, Any]:
    said = part.get("message") or part["delta"]
    finish = "tool_calls" if said.get("tool_calls") else "stop"
    return {
        "id": "scripted",
        "object": kind,
        "created": 0,
        "model": model,
        "choices": [{"index": 0, **part, "finish_reason": finish}],
        "usage": _USAGE,
    }
