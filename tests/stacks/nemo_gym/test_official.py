"""NeMo Gym's own commands start what was written for them, Ray and all, and their rollouts pay what episodes pay."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from adapters.nemo_gym.project import write_project
from canonical.catalogue import load_environment
from canonical.episode import Episode
from canonical.tool import ToolCall

STACK = Path(sys.executable).parent.parent
WORDS = ["crane", "sloth", "zzzzz", "bumpy", "fjord", "vixen", "waltz"]
ISOLATED = ["unshare", "-n", "-m", "-p", "--fork", "--mount-proc"]
"""Ray listens on all addresses, so it gets a network of its own, and processes that end with the first of them."""

MODEL = f"""
import json, uvicorn
from fastapi import FastAPI, Request

app, words = FastAPI(), {WORDS!r}

@app.post("/v1/responses")
async def respond(request: Request):
    body = await request.json()
    turn = sum(item.get("type") == "function_call_output" for item in body["input"])
    if turn < len(words):
        arguments = json.dumps({{"word": words[turn]}})
        output = {{"type": "function_call", "call_id": f"c{{turn}}", "name": "guess", "arguments": arguments}}
    else:
        part = {{"type": "output_text", "text": "done", "annotations": []}}
        output = {{"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}}
    return {{
        "id": "r", "object": "response", "created_at": 0, "model": "stub", "parallel_tool_calls": True,
        "tool_choice": "auto", "tools": [], "output": [output],
    }}

uvicorn.run(app, host="127.0.0.1", port=18403, log_level="warning")
"""

SCRIPT = """
ip link set lo up
python -P model.py &
gym env start --config resources_servers/rosetta_wordle/configs/rosetta_wordle.yaml \
    --config responses_api_models/openai_model/configs/openai_model.yaml \
    --model-url http://127.0.0.1:18403/v1 --model-api-key x --model stub +skip_venv_if_present=true > start.log 2>&1 &
for second in $(seq 240); do grep -q "servers ready!" start.log && break; sleep 1; done
mkdir -p out
gym eval run --no-serve --agent rosetta_wordle_simple_agent --num-repeats 2 --concurrency 4 \
    --input resources_servers/rosetta_wordle/data/example.jsonl --output out/rollouts.jsonl > eval.log 2>&1
"""


def can_isolate():
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    return subprocess.run([*ISOLATED, "true"], capture_output=True, check=False).returncode == 0


CONFIGURED = [
    *("--config", "resources_servers/rosetta_wordle/configs/rosetta_wordle.yaml"),
    *("--config", "responses_api_models/openai_model/configs/openai_model.yaml"),
    *("--model-url", "http://127.0.0.1:18403/v1", "--model-api-key", "x", "--model", "stub"),
]


@pytest.mark.slow
def test_gym_env_validate_accepts_a_written_project_and_refuses_one_that_names_another_agent(tmp_path):
    write_project(load_environment("wordle"), "wordle", tmp_path)
    config = tmp_path / CONFIGURED[1]

    def validate():
        return subprocess.run(
            [STACK / "bin" / "gym", "env", "validate", *CONFIGURED],
            cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path)}, timeout=120, check=False,
            capture_output=True, text=True,
        )  # fmt: skip

    said = validate()
    assert said.returncode == 0, said.stdout + said.stderr
    config.write_text(config.read_text().replace("name: rosetta_wordle\n", "name: another\n"))
    refused = validate()
    assert refused.returncode != 0
    assert "another" in refused.stdout + refused.stderr


@pytest.mark.slow
@pytest.mark.skipif(not can_isolate(), reason="needs unshare, ip, and the right to use them")
def test_gym_env_start_and_gym_eval_run_play_a_written_project(tmp_path):
    environment = load_environment("wordle")
    write_project(environment, "wordle", tmp_path)
    for folder in (
        "resources_servers/rosetta_wordle",
        "responses_api_agents/simple_agent",
        "responses_api_models/openai_model",
    ):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / ".venv").symlink_to(STACK)
    (tmp_path / "model.py").write_text(MODEL)
    path = f"{STACK / 'bin'}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        [*ISOLATED, "bash", "-c", SCRIPT],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "PATH": path},
        timeout=500,
        check=True,
    )
    played = [json.loads(line) for line in (tmp_path / "out" / "rollouts.jsonl").read_text().splitlines()]
    assert len(played) == 10
    for verdict in played:
        episode = Episode.open(environment, verdict["task"], seed=0)
        texts = [episode.step(ToolCall("guess", {"word": word})).observation.text for word in WORDS]
        seen = [i["output"] for i in verdict["response"]["output"] if i["type"] == "function_call_output"]
        assert seen == texts
        assert (verdict["reward"], verdict["cause"]) == (episode.total, episode.cause)
