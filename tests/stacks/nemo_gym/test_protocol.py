"""The resources server by raw HTTP: what agents, models and curious clients can ask of it."""

from __future__ import annotations

import importlib.util
import json

import pytest
import requests
from nemo_gym.base_resources_server import BaseVerifyRequest, SimpleResourcesServer

from adapters.nemo_gym.adapter import ADAPTER
from adapters.nemo_gym.wire import ACTION_TYPE, RESULT_TYPE

RESPONSE = {
    "id": "r", "object": "response", "created_at": 0, "model": "m", "parallel_tool_calls": True, "tool_choice": "auto",
    "tools": [], "output": [],
}  # fmt: skip
KEY = "the key that no model sees"


def verifying(**more):
    return {"responses_create_params": {"input": "x"}, "response": RESPONSE, **more}


class Client:
    """Hold a cookie, as agents do: what the last answer said, and nothing else."""

    def __init__(self, url):
        self.url, self.cookies = url, {}

    def post(self, path, value=None, *, body=None, **headers):
        data = json.dumps(value if value is not None else {}) if body is None else body
        answer = requests.post(
            self.url + path,
            data=data,
            cookies=self.cookies,
            headers={"Content-Type": "application/json", **headers},
            timeout=30,
        )
        # Exactly what the released agents do: without a cookie in the answer, the session is lost.
        self.cookies = answer.cookies.get_dict()
        return answer


@pytest.fixture
def client(lab):
    made = Client(lab.url)
    assert made.post("/seed_session", {"task": "test/0", "seed": 1, "verify_key": KEY}).status_code == 200
    return made


def test_the_framework_is_the_one_that_is_installed():
    """No folder of this project stands in the way of a package of the framework's."""
    for name in ("nemo_gym", "responses_api_agents", "fastapi", "uvicorn"):
        found = importlib.util.find_spec(name)
        places = [found.origin] if found.origin else list(found.submodule_search_locations)
        assert any("site-packages" in place for place in places)


def test_it_is_a_resources_server_with_a_route_per_tool(lab):
    compiled = ADAPTER.compile(lab.environment)
    assert issubclass(compiled, SimpleResourcesServer)
    page = requests.get(f"{lab.url}/openapi.json", timeout=30).json()
    names = {tool.name for tool in lab.environment.tools}
    assert {f"/{name}" for name in names} | {"/seed_session", "/verify", "/aggregate_metrics"} == page[
        "paths"
    ].keys()
    for tool in lab.environment.tools:
        body = page["paths"][f"/{tool.name}"]["post"]["requestBody"]["content"]["application/json"]
        wanted = dict(tool.spec.parameters)
        assert body["schema"].get("required") == wanted.get("required")
        assert body["schema"]["properties"].keys() == wanted["properties"].keys()
    assert requests.get(lab.url, timeout=30).json() == {"status": "ok"}


def test_what_the_model_reads_is_the_text_of_the_observation(client):
    answer = client.post("/echo", {"text": "hällo"})
    assert (answer.status_code, answer.content.decode()) == (200, "hällo")
    shown = client.post("/show").content.decode()
    assert shown.startswith("before\n[image/png, 256 bytes]\nlone \ufffd")


def test_the_same_route_tells_the_whole_result_to_who_asks_for_it(client):
    client.post("/pay", {"amount": 0.5})
    result = client.post("/pay", {"amount": 0.25}, Accept=RESULT_TYPE)
    assert result.headers["content-type"] == RESULT_TYPE
    value = result.json()
    assert (value["reward"], value["total"]) == (0.25, 0.75)
    assert value["components"] == {"count": 0.25}


@pytest.mark.parametrize("tool", ["refuse", "crash", "leave", "none", "describe"])
def test_a_tool_that_fails_keeps_the_cookie_and_the_episode(client, tool):
    client.post("/pay", {"amount": 1.5})
    failed = client.post(f"/{tool}")
    assert failed.status_code == 200
    assert client.cookies
    verdict = client.post("/verify", verifying(task="test/0", verify_key=KEY))
    assert verdict.json()["reward"] == 1.5


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("seed_session", {"task": "train/1", "seed": 0, "verify_key": "mine"}),
        ("verify", {"reward": 1.0}),
        ("verify", verifying(reward=1.0)),
        ("verify", verifying(verify_key="guessed", reward=1.0)),
        ("aggregate_metrics", {"verify_responses": [{"reward": 1.0}]}),
    ],
)
def test_a_model_that_names_a_control_route_has_called_an_unknown_tool(client, name, arguments):
    client.post("/pay", {"amount": 0.5})
    assert client.post(f"/{name}", arguments).text.startswith(f'There is no tool "{name}".')
    assert client.post("/echo", {"text": "still here"}).text == "still here"
    verdict = client.post("/verify", verifying(verify_key=KEY)).json()
    assert (verdict["reward"], verdict["task"]) == (0.5 + 0.5, "test/0")


def test_verify_reads_the_episode_and_not_what_the_model_wrote(client):
    client.post("/pay", {"amount": 0.5})
    item = {"type": "function_call_output", "call_id": "c", "output": "solved, reward 100, G G G G G"}
    said = {
        "type": "message", "id": "m", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "reward: 100", "annotations": []}],
    }  # fmt: skip
    lying = verifying(verify_key=KEY, reward=100.0)
    lying["response"] = {**RESPONSE, "output": [item, said]}
    verdict = client.post("/verify", lying).json()
    assert verdict["reward"] == 0.5
    assert (verdict["ending"], verdict["cause"], verdict["turns"]) == ("truncated", "cancelled", 1)
    assert verdict["response"]["output"][0]["output"] == item["output"]


def test_a_row_without_a_key_can_be_ended_by_its_model_but_pays_no_more_than_it_is_worth(lab):
    client = Client(lab.url)
    client.post("/seed_session", {"task": "test/0"})
    client.post("/pay", {"amount": 0.5})
    assert client.post("/verify", verifying(reward=1.0)).json()["reward"] == 0.5
    assert lab.becomes(0)


def test_there_is_no_reward_without_an_episode(lab):
    """A lost cookie must not count as a reward of 0."""
    stranger = Client(lab.url)
    assert stranger.post("/verify", verifying()).status_code == 409
    seeded = Client(lab.url)
    seeded.post("/seed_session", {"task": "test/0"})
    assert seeded.post("/verify", verifying()).status_code == 200
    assert seeded.post("/verify", verifying()).status_code == 409
    assert seeded.post("/echo", {"text": "x"}).status_code == 409


def test_a_trajectory_that_is_none_is_refused_and_the_episode_stays(client, lab):
    broken = {**verifying(verify_key=KEY), "response": {"output": "none"}}
    assert client.post("/verify", broken).status_code == 422
    assert lab.endpoint.open_sessions() == 1
    assert client.post("/verify", verifying(verify_key=KEY)).status_code == 200


@pytest.mark.parametrize(
    "row", [[], 3, {}, {"task": 5}, {"task": "test/0", "seed": "x"}, {"task": "test/0", "seed": True}, {"task": "test/0", "verify_key": 3}]
)  # fmt: skip
def test_a_row_that_is_none_is_refused_in_words(lab, row):
    answer = Client(lab.url).post("/seed_session", row)
    assert answer.status_code == 422
    assert answer.json()["detail"]
    assert lab.endpoint.open_sessions() == 0


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[1]",
        "3",
        "null",
        '{"text": "\ud800"}'.encode("utf-8", "surrogatepass"),
        b"\xff\xfe\x00",
        "[" * 100_000,
    ],
)
def test_a_body_of_any_kind_is_an_observation(client, body):
    assert client.post("/echo", body=body).status_code == 200
    assert client.post("/echo", {"text": "still here"}).text == "still here"


def test_a_whole_action_that_is_none_is_refused(client):
    answer = client.post("/", {"arguments": 3}, **{"Content-Type": ACTION_TYPE})
    assert answer.status_code == 422
    assert "no action" in answer.json()["detail"]


def test_metrics_are_computed_outside_an_episode(lab):
    """The framework's own route works for who asks without a session."""
    echoed = {**verifying(), "reward": 1.0, "_ng_task_index": 0, "_ng_rollout_index": 0}
    answer = Client(lab.url).post("/aggregate_metrics", {"verify_responses": [echoed]})
    assert answer.status_code == 200
    assert BaseVerifyRequest.model_validate(verifying())


def test_no_answer_and_no_page_holds_the_answer(lab, canary, caplog, capfd):
    client, seen = Client(lab.url), []

    def note(answer):
        seen.append(answer.text + str(answer.headers))

    note(client.post("/seed_session", {"task": "odd/broken"}))
    note(client.post("/seed_session", {"task": "test/0"}))
    for accept in ("*/*", RESULT_TYPE):
        for name in (
            "draw",
            "refuse",
            "crash",
            "leave",
            "none",
            "state",
            "__class__",
            "verify",
            "seed_session",
        ):
            note(client.post(f"/{name}", Accept=accept))
        note(client.post("/describe", {"number": "x"}, Accept=accept))
        note(client.post("/pay", body='{"amount": NaN}', Accept=accept))
    note(client.post("/finish"))
    note(client.post("/verify", verifying()))
    for page in ("/openapi.json", "/docs", "/"):
        note(requests.get(lab.url + page, timeout=30))
    printed = capfd.readouterr()
    assert len(seen) > 25
    assert canary not in "".join(seen) + caplog.text + printed.out + printed.err
