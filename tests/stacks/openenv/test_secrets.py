"""Nothing that the task keeps secret leaves the server, on any way that a client can ask."""

from __future__ import annotations

import json

import httpx
from websockets.sync.client import connect


def test_no_frame_and_no_page_holds_the_answer(lab, canary, caplog, capfd):
    frames = []
    with connect(lab.ws) as socket:

        def ask(frame):
            socket.send(json.dumps(frame))
            frames.append(socket.recv())

        def call(name, **arguments):
            ask({"type": "step", "data": {"type": "call_tool", "tool_name": name, "arguments": arguments}})

        ask({"type": "state"})
        ask({"type": "reset", "data": {"task": "odd/broken"}})
        ask({"type": "reset", "data": {"task": "test/0"}})
        ask({"type": "step", "data": {"type": "list_tools"}})
        for name in ("draw", "refuse", "crash", "leave", "none", "state", "__class__"):
            call(name)
            ask({"type": "state"})
        call("describe", number="x")
        call("pay", amount=float("nan"))
        call("finish")
        ask({"type": "state"})
        ask(
            {
                "type": "mcp",
                "data": {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "crash"}},
            }
        )
        for frame in ("nonsense", "{}", '{"type": "other"}', '{"type": "step", "data": {"tool_name": 1}}'):
            socket.send(frame)
            frames.append(socket.recv())
    name = lab.environment.name
    with httpx.Client(base_url=lab.url, trust_env=False) as http:
        pages = ("/state", "/metadata", "/schema", "/openapi.json", f"/{name}/splits")
        frames += [http.get(path).text for path in pages]
        for path, body in (
            ("/reset", {"task": "test/0"}),
            ("/reset", {"task": "odd/broken"}),
            (f"/{name}/tasks", {"split": "test"}),
            (f"/{name}/task", {"split": "test", "index": 0}),
        ):
            frames.append(http.post(path, json=body).text)
    assert len(frames) > 30
    assert all(frames)
    printed = capfd.readouterr()
    assert canary not in "".join(frames) + caplog.text + printed.out + printed.err
