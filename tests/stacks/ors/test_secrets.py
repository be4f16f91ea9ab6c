"""Nothing that the task keeps secret leaves the server, on any way that a client can ask."""

from __future__ import annotations

from adapters.ors.wire import make_channel


def test_no_answer_of_the_server_holds_the_secret(lab, raw, canary, caplog, capfd):
    name = lab.environment.name
    client = raw(lab)
    asked = [
        ("GET", path, None)
        for path in (
            "/health",
            "/list_environments",
            "/openapi.json",
            f"/{name}/tools",
            f"/{name}/splits",
            "/docs",
        )
    ]
    for split in ("train", "test", "none"):
        asked += [
            ("POST", f"/{name}/tasks", {"split": split}),
            ("POST", f"/{name}/num_tasks", {"split": split}),
            ("POST", f"/{name}/task", {"split": split, "index": 0}),
            ("POST", f"/{name}/task", {"split": split, "index": 99}),
            ("POST", f"/{name}/task", {"split": split, "index": -1}),
            ("POST", f"/{name}/task_range", {"split": split}),
        ]
    asked += [
        ("GET", f"/{name}/prompt", None),
        ("POST", "/ping", None),
        ("POST", "/create", {"env_name": name}),
    ]
    for method, path, body in asked:
        client.ask(method, path, body)
    for spec in ({}, {"id": 3}, {"id": "train/none"}, {"id": "train/0", "seed": "x"}, {"id": "odd/broken"}):
        bad = raw(lab)
        bad.create(**spec)
        for path in ("prompt", "task_tools"):
            bad.ask("GET", f"/{name}/{path}")
        bad.ask("POST", f"/{name}/call", {"name": "draw", "input": {}})
        bad.ask("POST", "/delete")
        client.seen += bad.seen
    channel = make_channel()
    assert client.create(id="test/0", seed=5, action_channel=channel)[0] == 200
    client.ask("GET", f"/{name}/prompt")
    client.ask("GET", f"/{name}/task_tools")
    client.ask("GET", f"/{name}/messages")
    for tool in (
        "draw",
        "refuse",
        "crash",
        "leave",
        "vanish",
        "none",
        "__class__",
        "teardown",
        "_episode",
        "task_spec",
    ):
        client.ask("POST", f"/{name}/call", {"name": tool, "input": {}})
    for body in (
        {},
        {"name": "describe", "input": {"number": "x"}},
        {"name": 1, "input": []},
        {"name": "draw", "input": {}, "task_id": "x"},
    ):
        client.ask("POST", f"/{name}/call", body)
    for given in (
        {"text": "crash"},
        {"text": '<tool_call>{"name": "crash", "arguments": {}}</tool_call>'},
        {"exact": "?"},
    ):
        client.ask("POST", f"/{name}/call", {"name": channel, "input": given})
    client.call("finish")
    client.call("finish")
    client.ask("POST", "/delete")
    assert lab.becomes(0)
    seen = b"".join(client.seen)
    printed = capfd.readouterr()
    assert len(client.seen) > 60
    assert b"train/0" in seen
    assert canary.encode() not in seen
    assert canary not in caplog.text + printed.out + printed.err


def test_the_task_is_the_servers_whatever_the_client_says_of_it(lab, raw, canary):
    client = raw(lab)
    client.create(id="test/0", inputs={"level": 1}, secret={"answer": "mine"})
    status, prompt = client.ask("GET", f"/{lab.environment.name}/prompt")
    assert status == 200
    assert "Level 9." in prompt
    client.ask("POST", "/delete")
    assert lab.becomes(0)
    assert lab.environment.closed[0].answer == canary


def test_what_a_refused_client_reads_is_in_words(lab, raw):
    name = lab.environment.name
    for spec, status, words in (
        ({}, 422, "needs the id of a task, such as 'train/0'"),
        ({"id": "train/none"}, 422, "there is no task 'train/none'"),
        ({"id": "train/0", "seed": True}, 422, "must be an integer"),
        ({"id": "train/0", "action_channel": "guessable"}, 422, "at least 16 characters that no model sees"),
    ):
        client = raw(lab)
        # One distribution builds the environment in the request, the other one after it.
        code, text = client.create(**spec)
        if code == 200:
            code, text = client.ask("GET", f"/{name}/prompt")
        assert (code, words in text) == (status, True), text
        client.ask("POST", "/delete")
    assert lab.becomes(0)
