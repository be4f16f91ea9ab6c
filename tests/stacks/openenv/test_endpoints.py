"""What OpenEnv's own endpoints answer for a compiled environment."""

from __future__ import annotations

import json

import httpx
import pytest
from openenv.core.env_server import create_app, interfaces
from websockets.sync.client import connect

HAS_TASK_API = hasattr(interfaces, "TaskProvider")
task_api = pytest.mark.skipif(
    not HAS_TASK_API, reason="this release has no Task API and no tool calls over JSON-RPC"
)


@pytest.fixture
def http(lab):
    with httpx.Client(base_url=lab.url, trust_env=False) as client:
        yield client


def ask(socket, frame):
    socket.send(json.dumps(frame))
    return json.loads(socket.recv())


def rpc(method, **params):
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def test_health_and_documents_answer(http):
    assert http.get("/health").json() == {"status": "healthy"}
    for path in ("/docs", "/redoc", "/openapi.json"):
        assert http.get(path).status_code == 200


def test_metadata_names_the_environment(http, lab):
    shown = http.get("/metadata").json()
    assert shown["name"] == lab.environment.name
    assert shown["version"] == "3"
    assert shown["description"] == type(lab.environment).__doc__


def test_schema_declares_what_is_sent(http):
    schema = http.get("/schema").json()
    assert {"tool_name", "arguments", "metadata"} <= schema["action"]["properties"].keys()
    fields = {"result", "error", "error_code", "reward", "done", "total", "components", "ending", "cause"}
    assert fields <= schema["observation"]["properties"].keys()
    if "reset_observation_cls" in create_app.__code__.co_varnames:
        assert {"prompt", "task", "seed"} <= schema["reset_observation"]["properties"].keys()
    if "state_cls" in create_app.__code__.co_varnames:
        assert {"episode_id", "step_count", "task", "turn", "cause"} <= schema["state"]["properties"].keys()


def test_state_answers_before_a_reset(http):
    shown = http.get("/state").json()
    assert shown["episode_id"] is None
    assert shown["step_count"] == 0


def test_reset_over_http_shows_the_prompt_and_keeps_no_episode(http, lab):
    answer = http.post("/reset", json={"task": "train/2", "seed": 5})
    assert answer.status_code == 200
    assert answer.json()["observation"]["prompt"] == [{"role": "user", "content": "Level 2."}]
    assert answer.json()["done"] is False
    assert lab.becomes(0)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"task": "train/99"}, 404, "there is no task 'train/99'"),
        ({"split": "none"}, 404, "there is no split 'none'"),
        ({"split": "train", "index": 99}, 422, "from 0 to 4"),
        ({"split": "train", "index": "1"}, 422, "index must be an integer"),
        ({"task": 3}, 422, "task must be the id"),
        ({"task": "train/1", "split": "train"}, 422, "either a task, or a split"),
        ({"task": "odd/broken"}, 500, "could not start task"),
    ],
)
def test_a_wrong_reset_over_http_is_refused_in_words(http, body, status, words):
    answer = http.post("/reset", json=body)
    assert answer.status_code == status
    assert words in answer.json()["detail"]


def test_step_over_http_says_where_episodes_live(http):
    answer = http.post("/step", json={"action": {"tool_name": "draw"}})
    assert answer.status_code == 409
    assert "call reset first, in this same session on /ws" in answer.json()["detail"]
    assert http.post("/step", json={"action": {"word": "crane"}}).status_code == 422


def test_tools_are_listed_before_a_reset(lab):
    with connect(lab.ws) as socket:
        answer = ask(socket, {"type": "step", "data": {"type": "list_tools"}})
    tools = answer["data"]["observation"]["tools"]
    assert [tool["name"] for tool in tools] == [tool.name for tool in lab.environment.tools]
    assert [tool["input_schema"] for tool in tools] == [
        dict(tool.spec.parameters) for tool in lab.environment.tools
    ]


def test_reset_chooses_by_task_by_split_and_index_or_by_seed(lab):
    with connect(lab.ws) as socket:

        def chosen(**data):
            seen = ask(socket, {"type": "reset", "data": data})["data"]["observation"]
            return seen["task"], seen["seed"]

        assert chosen() == ("train/0", 0)
        assert chosen() == ("train/1", 1)
        assert chosen(seed=8) == ("train/3", 8)
        assert chosen(seed=-1, split="test") == ("test/0", -1)
        assert chosen(split="train", index=4, seed=10**30) == ("train/4", 10**30)
        assert chosen(task="test/0", seed=2, row="of a data set") == ("test/0", 2)


@pytest.mark.parametrize("seed", ["3", 1.5, True, [1]])
def test_a_seed_that_is_no_integer_is_refused_and_the_session_goes_on(lab, seed):
    with connect(lab.ws) as socket:
        answer = ask(socket, {"type": "reset", "data": {"seed": seed}})
        assert answer["type"] == "error"
        assert "seed must be an integer" in answer["data"]["message"]
        assert ask(socket, {"type": "reset", "data": {"episode_id": "mine"}})["type"] == "observation"
        assert ask(socket, {"type": "state"})["data"]["episode_id"] == "mine"


def test_a_malformed_action_is_refused_and_the_session_goes_on(lab):
    with connect(lab.ws) as socket:
        ask(socket, {"type": "reset"})
        for data in ({"word": "crane"}, {"tool_name": 3}, {"type": "other", "tool_name": "draw"}):
            assert ask(socket, {"type": "step", "data": data})["data"]["code"] == "VALIDATION_ERROR"
        assert ask(socket, {"type": "step", "data": {"tool_name": "draw"}})["type"] == "observation"


def test_metadata_of_a_users_own_is_no_text_action(lab):
    with connect(lab.ws) as socket:
        ask(socket, {"type": "reset"})
        call = {
            "type": "call_tool",
            "tool_name": "echo",
            "arguments": {"text": "x"},
            "metadata": {"trace": "7"},
        }
        assert ask(socket, {"type": "step", "data": call})["data"]["observation"]["result"] == "x"
        call["metadata"] = {"assistant_text": "nothing"}
        seen = ask(socket, {"type": "step", "data": call})["data"]["observation"]
        assert seen["error_code"] == "unparsable"


@task_api
def test_the_task_api_lists_public_halves(http, lab, canary):
    name = lab.environment.name
    splits = http.get(f"/{name}/splits").json()
    assert [split["name"] for split in splits] == ["train", "test", "odd"]
    assert http.post(f"/{name}/num_tasks", json={"split": "train"}).json() == {"num_tasks": 5}
    tasks = http.post(f"/{name}/tasks", json={"split": "train"})
    assert tasks.json()["tasks"][4] == {"id": "train/4", "index": 4, "inputs": {"level": 4}}
    one = http.post(f"/{name}/task", json={"split": "test", "index": 0})
    assert one.json() == {"task": {"id": "test/0", "index": 0, "inputs": {"level": 9}}}
    some = http.post(f"/{name}/task_range", json={"split": "train", "start": 1, "stop": 3})
    assert [task["index"] for task in some.json()["tasks"]] == [1, 2]
    assert http.post(f"/{name}/task_range", json={"split": "train"}).json()["tasks"] == tasks.json()["tasks"]
    assert canary not in tasks.text + one.text + some.text
    assert http.get("/list_environments").json() == [name]


@task_api
def test_the_task_api_refuses_what_there_is_not(http, lab):
    name = lab.environment.name
    assert http.post("/other/num_tasks", json={"split": "train"}).status_code == 404
    answer = http.post(f"/{name}/num_tasks", json={"split": "none"})
    assert answer.status_code == 404
    assert "there is no split 'none'" in answer.json()["detail"]
    for index in (-1, 5):
        assert http.post(f"/{name}/task", json={"split": "train", "index": index}).status_code == 400


@task_api
def test_json_rpc_over_http_lists_and_calls_tools_in_a_session(http, lab):
    listed = http.post("/mcp", json=rpc("tools/list")).json()["result"]["tools"]
    assert [tool["name"] for tool in listed] == [tool.name for tool in lab.environment.tools]
    call = {"name": "pay", "arguments": {"amount": 2.0}}
    alone = http.post("/mcp", json=rpc("tools/call", **call)).json()
    assert "call reset first" in alone["error"]["message"]
    session = http.post("/mcp", json=rpc("openenv/session/create")).json()["result"]["session_id"]
    try:
        with connect(f"{lab.ws}?session_id={session}") as socket:
            ask(socket, {"type": "reset", "data": {"task": "train/0"}})
            answer = http.post("/mcp", json=rpc("tools/call", session_id=session, **call)).json()["result"]
            assert (answer["result"], answer["reward"], answer["done"]) == ("paid", 2.0, False)
            assert ask(socket, {"type": "state"})["data"]["total"] == 2.0
    finally:
        assert http.post("/mcp", json=rpc("openenv/session/close", session_id=session)).json()["result"][
            "session_id"
        ]
    assert lab.becomes(0)


@task_api
def test_json_rpc_over_both_sockets_goes_through_step(lab):
    call = rpc("tools/call", name="pay", arguments={"amount": 2.0})
    with connect(lab.ws) as socket:
        listed = ask(socket, {"type": "mcp", "data": rpc("tools/list")})["data"]["result"]["tools"]
        assert [tool["name"] for tool in listed] == [tool.name for tool in lab.environment.tools]
        early = ask(socket, {"type": "mcp", "data": call})["data"]["error"]
        assert "call reset first" in early["message"]
        ask(socket, {"type": "reset"})
        answer = ask(socket, {"type": "mcp", "data": call})["data"]["result"]
        assert (answer["result"], answer["reward"]) == ("paid", 2.0)
        wrong = ask(socket, {"type": "mcp", "data": rpc("tools/call", name="reset", arguments={})})["data"][
            "result"
        ]
        assert (wrong["error_code"], wrong["reward"]) == ("unknown_tool", 0.0)
        assert ask(socket, {"type": "state"})["data"]["step_count"] == 2
    with connect(lab.ws.replace("/ws", "/mcp")) as socket:
        assert ask(socket, rpc("tools/list"))["result"]["tools"] == listed
    assert lab.becomes(0)


@pytest.mark.skipif(HAS_TASK_API, reason="this release has tool calls over JSON-RPC")
def test_a_release_without_json_rpc_for_plain_environments_says_so(http):
    answer = http.post("/mcp", json=rpc("tools/list")).json()
    assert answer["error"]["message"] == "Environment does not support MCP"
