"""The frames that the load engine writes and reads are those of the real server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest
from websockets.sync.client import connect

from adapters.openenv.wire import WIRE, read_content, write_content
from canonical.content import Image, Text
from canonical.episode import Episode
from canonical.tool import ToolCall


def test_an_episode_by_frames_is_the_episode_of_the_reference(wordle):
    episode = Episode.open(wordle.environment, "train/0005", seed=3)
    with connect(wordle.ws) as socket:
        socket.send(WIRE.reset("train/0005", 3))
        opened = WIRE.read_reset(socket.recv())
        assert opened == (episode.prompt[0].text, 0.0, False, None)
        for word in ("crane", "qqqqq", "sloth", "bumpy", "fjord", "vixen", "waltz", "after"):
            socket.send(WIRE.step("guess", {"word": word}))
            seen = WIRE.read_step(socket.recv())
            wanted = episode.step(ToolCall("guess", {"word": word}))
            assert seen == (wanted.observation.text, wanted.reward, wanted.cause is not None, None)
        socket.send(WIRE.close())
        assert wordle.becomes(0)


def test_a_refusal_is_an_error_in_the_servers_words(wordle):
    with connect(wordle.ws) as socket:
        socket.send(WIRE.step("guess", {"word": "crane"}))
        early = WIRE.read_step(socket.recv())
        socket.send(WIRE.reset("train/none", 0))
        unknown = WIRE.read_reset(socket.recv())
    assert "call reset first" in early.error
    assert early.error.endswith("(EXECUTION_ERROR)")
    assert "there is no task 'train/none'" in unknown.error


def test_what_a_model_reads_of_images_is_their_text_form(lab):
    wanted = asyncio.run(Episode.open(lab.environment, "train/0").step_async(ToolCall("show")))
    with connect(lab.ws) as socket:
        socket.send(WIRE.reset("train/0", 0))
        WIRE.read_reset(socket.recv())
        socket.send(WIRE.step("show", {}))
        assert WIRE.read_step(socket.recv()).text == wanted.observation.text


@pytest.mark.parametrize(
    "frame",
    ["", "[]", "3", "{}", '{"type": "observation"}', '{"type": "state", "data": {}}', '{"type": "observation", "data": {"done": false}}'],
)  # fmt: skip
def test_a_frame_that_the_protocol_does_not_know_is_a_value_error(frame):
    for read in (WIRE.read_reset, WIRE.read_step):
        with pytest.raises(ValueError):
            read(frame)


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
    sent = write_content(blocks)
    json.dumps(sent, ensure_ascii=False).encode()
    assert read_content(json.loads(json.dumps(sent))) == blocks


def test_the_wire_needs_no_framework():
    script = (
        "import sys, adapters.openenv.wire; "
        "print([m for m in ('openenv', 'fastapi', 'uvicorn', 'websockets', 'fastmcp') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
