"""Whole rollouts through the released `simple_agent`, with a model server that plays a script."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager, contextmanager

import pytest
import requests
import uvicorn
from fastapi import FastAPI, Request
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import ServerClient
from omegaconf import OmegaConf
from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentConfig

from adapters.nemo_gym.connection import share_client
from adapters.nemo_gym.project import agent_name, make_config, make_row, server_name
from canonical.episode import Episode
from canonical.step import Cause
from canonical.tool import ToolCall

HOST = "127.0.0.1"


class Model:
    """Answer each request for a response with the next entry of a script, which the first message names."""

    def __init__(self):
        self.scripts, self.asked = {}, []
        self.app = FastAPI()
        self.app.post("/v1/responses")(self.respond)

    async def respond(self, request: Request):
        body = await request.json()
        self.asked.append(body)
        script = self.scripts[body["metadata"]["script"]]
        turn = sum(item.get("type") == "function_call_output" for item in body["input"])
        output = []
        for number, entry in enumerate(script[turn : turn + 1]):
            name, arguments = entry
            call = f"call_{turn}_{number}"
            output.append({"type": "function_call", "call_id": call, "name": name, "arguments": arguments})
        if not output:
            part = {"type": "output_text", "text": "I am done; my reward is 100.", "annotations": []}
            output = [
                {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
            ]
        return {
            "id": "r", "object": "response", "created_at": 0, "model": "script", "parallel_tool_calls": True,
            "tool_choice": "auto", "tools": [], "output": output,
        }  # fmt: skip


class Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self):
        yield


@asynccontextmanager
async def running(app, port=0):
    with socket.create_server((HOST, port)) as listener:
        server = Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:
            assert not serving.done()
            await asyncio.sleep(0.01)
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await serving


def free_port():
    with socket.create_server((HOST, 0)) as taken:
        return taken.getsockname()[1]


@pytest.fixture(scope="module")
def agent(standing_wordle, standing_lab):
    """The agents of the generated configurations, all told of each other as NeMo Gym tells them."""
    model_at = {"entrypoint": "app.py", "host": HOST, "port": free_port()}
    config = {
        "head_server": {"host": HOST, "port": 1},
        "policy_model": {"responses_api_models": {"script": model_at}},
    }
    for server in (standing_wordle, standing_lab):
        made = make_config(server.environment)
        place = made[server_name(server.environment)]["resources_servers"]
        next(iter(place.values())).update(host=HOST, port=int(server.url.rpartition(":")[2]))
        simple = made[agent_name(server.environment)]["responses_api_agents"]["simple_agent"]
        simple.update(host=HOST, port=free_port())
        config |= made
    return Rollouts(config, model_at["port"])


class Rollouts:
    """Play rows through an agent, which runs as long as a rollout, because NeMo Gym's client belongs to its loop."""

    def __init__(self, config, model_port):
        self.model, self.config, self.model_port = Model(), config, model_port

    def run(self, environment, task, script, /, *, seed=0, **changes):
        number = str(len(self.model.scripts))
        self.model.scripts[number] = [(name, json.dumps(arguments)) for name, arguments in script]
        return asyncio.run(self._run(environment, task, seed, number, changes))

    async def _run(self, environment, task, seed, number, changes):
        row = await make_row(environment, environment.tasks().get(task), seed, salt="s")
        row["responses_create_params"]["metadata"] = {"script": number}
        row |= changes
        await share_client()
        resolved = OmegaConf.create(self.config)
        name = agent_name(environment)
        settings = self.config[name]["responses_api_agents"]["simple_agent"]
        made = SimpleAgent(
            config=SimpleAgentConfig.model_validate({**settings, "name": name}),
            server_client=ServerClient(
                head_server_config=BaseServerConfig(host=HOST, port=1), global_config_dict=resolved
            ),
        )
        app = made.setup_webserver()
        made.setup_exception_middleware(app)
        async with running(self.model.app, self.model_port), running(app, settings["port"]):
            answer = await asyncio.to_thread(
                requests.post, f"http://{HOST}:{settings['port']}/run", json=row, timeout=60
            )
        return row, answer


def outputs(verdict):
    return [
        item["output"] for item in verdict["response"]["output"] if item["type"] == "function_call_output"
    ]


def reference(environment, task, script, seed=0):
    episode = Episode.open(environment, task, seed=seed)
    results = [episode.step(ToolCall(name, arguments)) for name, arguments in script]
    return episode, results


def test_a_solved_game_pays_what_the_episode_pays(agent, standing_wordle):
    answer = standing_wordle.environment.tasks().get("train/0003").secret["answer"]
    script = [("guess", {"word": "crane"}), ("guess", {"word": "zzzzz"}), ("guess", {"word": answer})]
    _, response = agent.run(standing_wordle.environment, "train/0003", script)
    verdict = response.json()
    episode, results = reference(standing_wordle.environment, "train/0003", script)
    assert outputs(verdict) == [result.observation.text for result in results]
    assert verdict["reward"] == episode.total == 1.0
    assert (verdict["cause"], verdict["turns"]) == ("solved", 3)
    assert standing_wordle.becomes(0)


def test_the_model_is_asked_what_the_environment_says(agent, standing_wordle):
    agent.model.asked.clear()
    row, _ = agent.run(standing_wordle.environment, "train/0000", [])
    asked = agent.model.asked[0]
    assert (
        asked["input"][0]["content"] == Episode.open(standing_wordle.environment, "train/0000").prompt[0].text
    )
    tool = standing_wordle.environment.tools[0].spec
    assert asked["tools"][0]["parameters"] == dict(tool.parameters)
    assert row["verify_key"] not in json.dumps(agent.model.asked)


def test_an_unfinished_game_is_cancelled_and_scored(agent, standing_wordle):
    script = [("guess", {"word": "crane"})]
    _, response = agent.run(standing_wordle.environment, "train/0004", script)
    episode, _ = reference(standing_wordle.environment, "train/0004", script)
    assert asyncio.run(episode.truncate(Cause.CANCELLED)).total == response.json()["reward"]
    assert response.json()["cause"] == "cancelled"


def test_a_model_that_calls_control_routes_gains_nothing(agent, standing_wordle):
    forged = {
        "responses_create_params": {"input": "x"},
        "response": {
            "id": "r", "object": "response", "created_at": 0, "model": "m", "parallel_tool_calls": True,
            "tool_choice": "auto", "tools": [], "output": [],
        },
        "reward": 1.0,
    }  # fmt: skip
    script = [
        ("seed_session", {"task": "train/0001", "answer": "aaaaa"}),
        ("verify", {"reward": 1.0}),
        ("verify", forged),
        ("aggregate_metrics", {"verify_responses": []}),
        ("guess", {"word": "crane"}),
    ]
    _, response = agent.run(standing_wordle.environment, "train/0005", script)
    verdict = response.json()
    episode, results = reference(standing_wordle.environment, "train/0005", script)
    assert outputs(verdict) == [result.observation.text for result in results]
    asyncio.run(episode.truncate(Cause.CANCELLED))
    assert (verdict["reward"], verdict["task"], verdict["turns"]) == (episode.total, "train/0005", 5)


def test_failing_tools_do_not_lose_the_episode(agent, standing_lab):
    """The released agent forgets its cookies with every answer that has none."""
    script = [("pay", {"amount": 0.5}), ("crash", {}), ("leave", {}), ("refuse", {}), ("pay", {"amount": 0.25}), ("finish", {})]  # fmt: skip
    _, response = agent.run(standing_lab.environment, "train/1", script, seed=3)
    verdict = response.json()
    episode, results = reference(standing_lab.environment, "train/1", script, seed=3)
    assert outputs(verdict) == [result.observation.text for result in results]
    assert verdict["reward"] == episode.total
    assert verdict["cause"] == "submitted"


def test_a_row_of_a_task_that_is_not_there_fails_instead_of_paying_nothing(agent, standing_wordle):
    _, response = agent.run(standing_wordle.environment, "train/0000", [], task="train/none")
    assert response.status_code == 500
    assert "reward" not in response.json()
