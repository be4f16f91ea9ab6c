"""Roll a scripted model out in an installed package, where this project is not; prints what was seen.

`vf-validate` looks at the tasks first.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import verifiers.v1 as vf
from aiohttp import web

KEY = "SCRIPTED_KEY"


async def serve(calls):
    async def answer(request):
        body = await request.json()
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        if turn >= len(calls):
            return web.json_response({"error": {"message": "the script is over"}}, status=400)
        function = {"name": calls[turn]["name"], "arguments": json.dumps(calls[turn]["arguments"])}
        said = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": f"call_{turn}", "type": "function", "function": function}],
        }
        choice = {"index": 0, "message": said, "finish_reason": "tool_calls"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return web.json_response(
            {
                "id": "x", "object": "chat.completion", "created": 0, "model": "scripted", "choices": [choice],
                "usage": usage,
            }
        )  # fmt: skip

    app = web.Application(client_max_size=1 << 28)
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/v1"


def validate(module):
    out = Path("validated") / module
    done = subprocess.run(
        [
            Path(sys.executable).parent / "vf-validate", module, "-n", "2", "-o", out,
            "--runtime.type", "subprocess", "--rich", "False",
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads(next(out.glob("*/summary.json")).read_text(encoding="utf-8"))
    assert counts["recorded"] == counts["total"] == 2, counts
    assert [counts["outcomes"][name] for name in ("error", "invalid", "missing", "timeout")] == [0] * 4, (
        counts
    )


async def try_readme(shown, url):
    for old, new in (("http://127.0.0.1:8000/v1", url), ("MY_KEY", KEY), ("take(10)", "take(1)")):
        assert old in shown
        shown = shown.replace(old, new)
    await eval(compile(shown, "README.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), {})  # noqa: S307 - what it tells a reader to run


async def play(asked):
    runner, url = await serve(asked["calls"])
    for shown in asked["readme"]:
        await try_readme(shown, url)
    environment = import_module(asked["module"]).load_environment(split=asked["split"], seed=asked["seed"])
    context = vf.ModelContext(model="scripted", client=vf.EvalClientConfig(base_url=url, api_key_var=KEY))
    async with environment.serving():
        task = next(task for task in environment.taskset.take(1000) if task.data.task == asked["task"])
        episode = await environment.run_episode(task, context)
    await runner.cleanup()
    (trace,) = episode.traces
    assert trace.ok, trace.errors
    messages = trace.branches[-1].messages
    first = next(place for place, message in enumerate(messages) if message.role == "assistant")
    texts = [message.content for message in messages[first:] if message.role == "tool"]
    steps = [
        [text, result["reward"], result["total"], result.get("cause")]
        for text, result in zip(texts, trace.info["results"], strict=True)
    ]
    prompt = "\n\n".join(message.content for message in messages[:first])
    return {"prompt": prompt, "steps": steps, "return": trace.reward}


def main():
    os.environ[KEY] = "none"
    asked = json.load(sys.stdin)
    validate(asked["module"])
    print(json.dumps(asyncio.run(play(asked))))


if __name__ == "__main__":
    main()
