"""The requests that the load engine writes and the answers that it reads are those of the real server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import NamedTuple

import pytest
import requests

from adapters.nemo_gym.wire import WIRE, read_content, read_tool, write_action, write_content, write_tool
from canonical.content import Image, Text
from canonical.episode import Episode
from canonical.tool import ToolCall


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


def test_an_episode_by_requests_is_the_episode_of_the_reference(wordle):
    episode = Episode.open(wordle.environment, "train/0005", seed=3)
    memory = {}
    assert WIRE.connect(memory) is None
    opened = run(wordle.url, WIRE.reset(memory, "train/0005", 3))
    assert opened == (episode.prompt[0].text, None, False, None)
    for word in ("crane", "qqqqq", "sloth", "bumpy", "fjord", "vixen", "waltz", "after"):
        seen = run(wordle.url, WIRE.step(memory, "guess", {"word": word}))
        wanted = episode.step(ToolCall("guess", {"word": word}))
        assert seen == (wanted.observation.text, wanted.reward, wanted.cause is not None, None)
    assert wordle.endpoint.open_sessions() == 1
    assert run(wordle.url, WIRE.score(memory)) == ("", episode.total, None, None)
    assert WIRE.close(memory) is None
    assert wordle.becomes(0)


def test_a_session_that_was_given_up_is_verified_when_it_is_closed(wordle):
    memory = {}
    run(wordle.url, WIRE.reset(memory, "train/0005", 3))
    assert wordle.endpoint.open_sessions() == 1
    assert run(wordle.url, WIRE.close(memory)).error is None
    assert wordle.becomes(0)
    assert WIRE.close(memory) is None


def test_a_refusal_is_an_error(wordle):
    assert run(wordle.url, WIRE.step({}, "guess", {"word": "crane"})).error == "POST /guess: status 409"
    assert run(wordle.url, WIRE.reset({}, "train/none", 0)).error == "POST /seed_session: status 404"


def test_what_a_model_reads_of_images_is_their_text_form(lab):
    wanted = asyncio.run(Episode.open(lab.environment, "train/0").step_async(ToolCall("show")))
    memory = {}
    run(lab.url, WIRE.reset(memory, "train/0", 0))
    assert run(lab.url, WIRE.step(memory, "show", {})).text == wanted.observation.text
    run(lab.url, WIRE.score(memory))


@pytest.mark.parametrize("body", [b"", b"[]", b"3", b"{}", b'{"prompt": 3}', b'{"observation": {}}'])
def test_a_body_that_the_protocol_does_not_know_is_a_value_error(body):
    memory = {"row": {}}
    for operation in (WIRE.reset(memory, "a/b", 0), WIRE.step(memory, "x", {}), WIRE.score(memory)):
        next(operation)
        with pytest.raises(ValueError):
            operation.send(Answer(200, {}, {}, body))


@pytest.mark.parametrize(
    "blocks",
    [
        (),
        (Text(""),),
        (Text("plain"),),
        (Text("\ud800"),),
        (Text("a"), Text("b")),
        (Image(b"\x00\xff", "image/png"),),
        (Text("x\udfffy\U0001f600"), Image(b"", "image/gif"), Text("")),
    ],
)
def test_content_comes_back_as_it_was(blocks):
    assert read_content(json.loads(json.dumps(write_content(blocks)))) == blocks


def test_a_call_goes_to_the_path_of_its_name_as_an_agent_sends_it(wordle):
    assert write_action(ToolCall("guess", {"word": "crane"})) == (
        "/guess",
        "application/json",
        b'{"word":"crane"}',
    )
    spec = wordle.environment.tools[0].spec
    assert read_tool(write_tool(spec)) == spec


def test_the_wire_needs_no_framework():
    script = (
        "import sys, adapters.nemo_gym.wire; "
        "print([m for m in ('nemo_gym', 'fastapi', 'uvicorn', 'aiohttp', 'ray') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
