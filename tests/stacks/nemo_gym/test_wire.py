"""The requests that the load engine writes and the answers that it reads are those of the real server."""

from __future__ import annotations

import asyncio
import json
from typing import NamedTuple

import pytest
import requests

from adapters.nemo_gym.wire import WIRE, read_content, read_tool, write_action, write_content, write_tool
from canonical.episode import Episode
from canonical.tool import ToolCall
from tests.stacks.suite.lab import CONTENTS


class Answer(NamedTuple):
    status: int
    headers: dict
    cookies: dict
    body: bytes


def run(url, operation):
    """Carry an operation out as the load engine does: nothing is added to its requests, and no cookies are kept."""
    try:
        wanted = next(operation)
        while True:
            got = requests.request(
                wanted.method, url + wanted.path, headers=dict(wanted.headers), data=wanted.body, timeout=30
            )
            headers = {name.lower(): value for name, value in got.headers.items()}
            wanted = operation.send(Answer(got.status_code, headers, got.cookies.get_dict(), got.content))
    except StopIteration as done:
        return done.value


def test_an_episode_by_requests_is_the_episode_of_the_reference(standing_wordle):
    episode = Episode.open(standing_wordle.environment, "train/0005", seed=3)
    memory = {}
    assert WIRE.connect(memory) is None
    opened = run(standing_wordle.url, WIRE.reset(memory, "train/0005", 3))
    assert opened == (episode.prompt[0].text, None, False, None)
    for word in ("crane", "qqqqq", "sloth", "bumpy", "fjord", "vixen", "waltz", "after"):
        seen = run(standing_wordle.url, WIRE.step(memory, "guess", {"word": word}))
        wanted = episode.step(ToolCall("guess", {"word": word}))
        assert seen == (wanted.observation.text, wanted.reward, wanted.cause is not None, None)
    assert standing_wordle.endpoint.open_sessions() == 1
    assert run(standing_wordle.url, WIRE.score(memory)) == ("", episode.total, None, None)
    assert WIRE.close(memory) is None
    assert standing_wordle.becomes(0)


def test_a_session_that_was_given_up_is_verified_when_it_is_closed(standing_wordle):
    memory = {}
    run(standing_wordle.url, WIRE.reset(memory, "train/0005", 3))
    assert standing_wordle.endpoint.open_sessions() == 1
    assert run(standing_wordle.url, WIRE.close(memory)).error is None
    assert standing_wordle.becomes(0)
    assert WIRE.close(memory) is None


def test_a_refusal_is_an_error(standing_wordle):
    assert (
        run(standing_wordle.url, WIRE.step({}, "guess", {"word": "crane"})).error == "POST /guess: status 409"
    )
    assert run(standing_wordle.url, WIRE.reset({}, "train/none", 0)).error == "POST /seed_session: status 404"


def test_what_a_model_reads_of_images_is_their_text_form(standing_lab):
    wanted = asyncio.run(Episode.open(standing_lab.environment, "train/0").step_async(ToolCall("show")))
    memory = {}
    run(standing_lab.url, WIRE.reset(memory, "train/0", 0))
    assert run(standing_lab.url, WIRE.step(memory, "show", {})).text == wanted.observation.text
    run(standing_lab.url, WIRE.score(memory))


@pytest.mark.parametrize("body", [b"", b"[]", b"3", b"{}", b'{"prompt": 3}', b'{"observation": {}}'])
def test_a_body_that_the_protocol_does_not_know_is_a_value_error(body):
    memory = {"row": {}}
    for operation in (WIRE.reset(memory, "a/b", 0), WIRE.step(memory, "x", {}), WIRE.score(memory)):
        next(operation)
        with pytest.raises(ValueError):
            operation.send(Answer(200, {}, {}, body))


@pytest.mark.parametrize("blocks", CONTENTS)
def test_content_comes_back_as_it_was(blocks):
    assert read_content(json.loads(json.dumps(write_content(blocks)))) == blocks


def test_a_call_goes_to_the_path_of_its_name_as_an_agent_sends_it(standing_wordle):
    assert write_action(ToolCall("guess", {"word": "crane"})) == (
        "/guess",
        "application/json",
        b'{"word":"crane"}',
    )
    spec = standing_wordle.environment.tools[0].spec
    assert read_tool(write_tool(spec)) == spec
