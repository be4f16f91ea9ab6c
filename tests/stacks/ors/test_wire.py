"""What the load engine says and hears over HTTP is what the real server hears and says."""

from __future__ import annotations

import http.client
import json
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from adapters.ors.wire import (
    WIRE,
    make_channel,
    read_action,
    read_blocks,
    read_prompt,
    write_action,
    write_blocks,
    write_prompt,
)
from canonical.content import Message
from canonical.episode import Episode
from canonical.tool import ToolCall
from tests.stacks.suite.lab import CONTENTS


class Engine:
    """Carry out the operations of a session over one connection, as the load engine does."""

    def __init__(self, url):
        self.http = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
        self.memory = {}

    def run(self, operation):
        answer = None
        try:
            while True:
                request = operation.send(answer)
                self.http.request(request.method, request.path, request.body, dict(request.headers))
                response = self.http.getresponse()
                answer = SimpleNamespace(status=response.status, body=response.read())
        except StopIteration as done:
            return done.value


@pytest.fixture
def engine():
    made = []

    def make(server):
        made.append(Engine(server.url))
        return made[-1]

    yield make
    for one in made:
        one.http.close()


def test_an_episode_by_requests_is_the_episode_of_the_reference(standing_wordle, engine):
    episode = Episode.open(standing_wordle.environment, "train/0005", seed=3)
    client = engine(standing_wordle)
    assert client.run(WIRE.connect(client.memory)).error is None
    assert WIRE.close(client.memory) is None
    opened = client.run(WIRE.reset(client.memory, "train/0005", 3))
    assert opened == (episode.prompt[0].text, 0.0, False, None)
    assert WIRE.score(client.memory) is None
    for word in ("crane", "qqqqq", "sloth", "bumpy", "fjord", "vixen", "waltz", "after"):
        seen = client.run(WIRE.step(client.memory, "guess", {"word": word}))
        wanted = episode.step(ToolCall("guess", {"word": word}))
        assert seen == (wanted.observation.text, wanted.reward, wanted.cause is not None, None)
    assert standing_wordle.endpoint.open_sessions() == 1
    assert client.run(WIRE.close(client.memory)).error is None
    assert standing_wordle.becomes(0)


def test_a_refusal_is_an_error_in_the_servers_words(lab, engine):
    client = engine(lab)
    client.run(WIRE.connect(client.memory))
    assert "there is no task" in client.run(WIRE.reset(client.memory, "train/none", 0)).error
    client.run(WIRE.close(client.memory))
    assert client.run(WIRE.reset(client.memory, "train/0", 0)).error is None
    assert "not a finite number" in client.run(WIRE.step(client.memory, "pay", {"amount": 1e999})).error
    client.run(WIRE.close(client.memory))
    assert "status 404" in client.run(WIRE.step(client.memory, "draw", {})).error
    assert lab.becomes(0)


def test_what_a_model_reads_of_images_is_their_text_form(standing_lab, engine):
    wanted = Episode.open(standing_lab.environment, "train/0").step(ToolCall("show"))
    client = engine(standing_lab)
    client.run(WIRE.connect(client.memory))
    client.run(WIRE.reset(client.memory, "train/0", 0))
    assert client.run(WIRE.step(client.memory, "show", {})).text == wanted.observation.text
    client.run(WIRE.close(client.memory))


@pytest.mark.parametrize("body", [b"", b"[]", b"3", b"{}", b"\xff", b'["', b"event: end\r\ndata: {}\r\n\r\n"])
def test_an_answer_that_the_protocol_does_not_know_is_a_value_error(body):
    memory = {"environment": "wordle", "session": "x", "channel": make_channel()}
    for operation in (WIRE.connect({}), WIRE.reset({**memory}, "train/0", 0), WIRE.step(memory, "guess", {})):
        next(operation)
        with pytest.raises(ValueError):
            operation.send(SimpleNamespace(status=200, body=body))


@pytest.mark.parametrize("blocks", CONTENTS)
def test_content_and_prompts_come_back_as_they_were(blocks):
    sent = write_blocks(blocks)
    json.dumps(sent, ensure_ascii=False).encode()
    assert read_blocks(json.loads(json.dumps(sent))) == blocks
    for prompt in (
        (Message("user", blocks),),
        (Message("system", blocks), Message("user", ()), Message("tool", blocks)),
    ):
        assert read_prompt(json.loads(json.dumps(write_prompt(prompt)))) == prompt


@pytest.mark.parametrize(
    "action",
    [
        "",
        "text",
        "\ud800",
        ToolCall("a", {"b": [1, None]}),
        ToolCall("\udfff", {}),
        ToolCall("a", {"\ud800": "\udc00"}),
    ],
)
def test_an_action_comes_back_as_it_was(action):
    channel = make_channel()
    name, arguments = write_action(action, channel)
    json.dumps([name, arguments], ensure_ascii=False).encode()
    read = read_action(name, arguments, channel)
    assert (ToolCall(name, arguments) if read is None else read) == action


def test_what_is_no_action_of_this_project_is_an_ordinary_call():
    name, _ = write_action("text", channel := make_channel())
    assert read_action(name, {"text": "a"}, None) is None
    assert read_action(name, {"text": "a"}, make_channel()) is None
    for arguments in (
        {},
        {"text": 3},
        {"text": "a", "more": 1},
        {"exact": "?"},
        {"exact": "bm8="},
        {"exact": "W10="},
    ):
        assert read_action(name, arguments, channel) is None
