"""Play an episode of an installed package's resources server over HTTP, where this project is not; prints what was seen.

`gym env validate` looks at the configuration first, and for Wordle `gym env start` and `gym eval run` play the same episode.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from importlib import import_module
from pathlib import Path

import nemo_gym
import requests
import uvicorn

PORT = 18433
URL = f"http://127.0.0.1:{PORT}"
MODELS = "responses_api_models/openai_model/configs/openai_model.yaml"
ISOLATED = ["unshare", "-n", "-m", "-p", "--fork", "--mount-proc"]
"""Ray listens on all addresses, so it gets a network of its own, and processes that end with the first of them."""

MODEL = """
import json, uvicorn
from fastapi import FastAPI, Request

app, calls = FastAPI(), json.load(open("calls.json"))

@app.post("/v1/responses")
async def respond(request: Request):
    body = await request.json()
    turn = sum(item.get("type") == "function_call_output" for item in body["input"])
    if turn < len(calls):
        arguments = json.dumps(calls[turn]["arguments"])
        output = {"type": "function_call", "call_id": f"c{turn}", "name": calls[turn]["name"], "arguments": arguments}
    else:
        part = {"type": "output_text", "text": "done", "annotations": []}
        output = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
    return {
        "id": "r", "object": "response", "created_at": 0, "model": "stub", "parallel_tool_calls": True,
        "tool_choice": "auto", "tools": [], "output": [output],
    }

uvicorn.run(app, host="127.0.0.1", port=18434, log_level="warning")
"""

SCRIPT = """
ip link set lo up
python -P model.py &
gym env start --config resources_servers/{server}/configs/{server}.yaml --config {models} \\
    --model-url http://127.0.0.1:18434/v1 --model-api-key x --model stub +skip_venv_if_present=true > start.log 2>&1 &
for second in $(seq 240); do grep -q "servers ready!" start.log && break; sleep 1; done
gym eval run --no-serve --agent {server}_simple_agent --num-repeats 1 --concurrency 1 \\
    --input row.jsonl --output rollouts.jsonl > eval.log 2>&1
"""


def validate(server, folder):
    done = subprocess.run(
        [
            Path(sys.executable).parent / "gym", "env", "validate",
            "--config", f"resources_servers/{server}/configs/{server}.yaml",
            "--config", MODELS,
            "--model-url", "http://127.0.0.1:9/v1", "--model-api-key", "x", "--model", "stub",
        ],
        cwd=folder, env={**os.environ, "HOME": str(Path.cwd())}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def serve(place, module):
    # The folder in which `gym env start` runs app.py is the first on the path of that program.
    sys.path.insert(0, str(place))
    compiler = import_module(f"{module}._rosetta.adapters.nemo_gym.compiler")
    app = import_module("app")
    (served,) = (value for name, value in vars(app).items() if hasattr(value, "run_webserver"))
    made = compiler.make_app(compiler.make_server(served, host="127.0.0.1", port=PORT))
    running = uvicorn.Server(uvicorn.Config(made, host="127.0.0.1", port=PORT, log_level="warning"))
    thread = threading.Thread(target=running.run)
    thread.start()
    while not running.started:
        assert thread.is_alive()
        time.sleep(0.05)
    return running, thread, import_module(f"{module}._rosetta.adapters.nemo_gym.wire")


def play(asked, place, wire):
    rows = (place / "data" / f"{asked['split']}.jsonl").read_text(encoding="utf-8").splitlines()
    row = json.loads(rows[asked["index"]])
    assert row["task"] == asked["task"]
    row["seed"] = asked["seed"]
    steps, output = [], []
    with requests.Session() as session:
        session.post(f"{URL}/seed_session", json=row).raise_for_status()
        for number, call in enumerate(asked["calls"]):
            answer = session.post(
                f"{URL}/{call['name']}", json=call["arguments"], headers={"Accept": wire.RESULT_TYPE}
            )
            answer.raise_for_status()
            result = wire.read_result(answer.content)
            cause = None if result.cause is None else result.cause.value
            steps.append([result.observation.text, result.reward, result.total, cause])
            output += [
                {
                    "type": "function_call", "call_id": f"c{number}", "name": call["name"],
                    "arguments": json.dumps(call["arguments"]),
                },
                {"type": "function_call_output", "call_id": f"c{number}", "output": result.observation.text},
            ]  # fmt: skip
        verified = session.post(
            f"{URL}/verify", json={**row, "response": {**wire.RESPONSE, "output": output}}
        )
        verified.raise_for_status()
    prompt = "\n\n".join(message["content"] for message in row["responses_create_params"]["input"])
    return {"prompt": prompt, "steps": steps, "return": verified.json()["reward"]}


def can_isolate():
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    return subprocess.run([*ISOLATED, "true"], capture_output=True, check=False).returncode == 0


def evaluate(asked, server):
    """Return the texts that the agent of NeMo Gym read, and the reward that its evaluation counts."""
    folder = Path(asked["folder"])
    for place in (
        f"resources_servers/{server}",
        "responses_api_agents/simple_agent",
        "responses_api_models/openai_model",
    ):
        (folder / place).mkdir(parents=True, exist_ok=True)
        (folder / place / ".venv").symlink_to(sys.prefix)
    rows = (folder / f"resources_servers/{server}/data/{asked['split']}.jsonl").read_text(encoding="utf-8")
    row = {**json.loads(rows.splitlines()[asked["index"]]), "seed": asked["seed"]}
    (folder / "row.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    (folder / "calls.json").write_text(json.dumps(asked["calls"]), encoding="utf-8")
    (folder / "model.py").write_text(MODEL, encoding="utf-8")
    script = SCRIPT.format(server=server, models=MODELS)
    done = subprocess.run(
        [*ISOLATED, "bash", "-c", script], cwd=folder, env={**os.environ, "HOME": str(folder)},
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert (folder / "rollouts.jsonl").is_file(), done.stdout + done.stderr
    (line,) = (folder / "rollouts.jsonl").read_text(encoding="utf-8").splitlines()
    played = json.loads(line)
    output = played["response"]["output"]
    return [item["output"] for item in output if item["type"] == "function_call_output"], played["reward"]


def main():
    asked = json.load(sys.stdin)
    server = f"rosetta_{asked['name']}"
    validate(server, asked["folder"])
    # The wheel puts the server beside those of NeMo Gym.
    place = Path(nemo_gym.__file__).parent.parent / "resources_servers" / server
    validate(server, Path.cwd())
    running, thread, wire = serve(place, asked["module"])
    try:
        seen = play(asked, place, wire)
    finally:
        running.should_exit = True
        thread.join()
    if asked["name"] == "wordle" and can_isolate():
        assert evaluate(asked, server) == ([step[0] for step in seen["steps"]], seen["return"])
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
