"""The frames that the load engine writes and reads are those of the real server."""

from __future__ import annotations

import asyncio
import json

import pytest
from websockets.sync.client import connect

from adapters.openenv.wire import WIRE, read_content, write_content
from canonical.episode import Episode
from canonical.tool import ToolCall
from tests.stacks.suite.lab import CONTENTS


def test_an_episode_by_frames_is_the_episode_of_the_reference(standing_wordle):
    episode = Episode.open(standing_wordle.environment, "train/0005", seed=3)
    with connect(standing_wordle.ws) as socket:
        socket.send(WIRE.reset("train/0005", 3))
        opened = WIRE.read_reset(socket.recv())
        assert opened == (episode.prompt[0].text, 0.0, False, None)
        for word in ("crane", "qqqqq", "sloth", "bumpy", "fjord", "vixen", "waltz", "after"):
            socket.send(WIRE.step("guess", {"word": word}))
            seen = WIRE.read_step(socket.recv())
            wanted = episode.step(ToolCall("guess", {"word": word}))
            assert seen == (wanted.observation.text, wanted.reward, wanted.cause is not None, None)
        socket.send(WIRE.close())
        assert standing_wordle.becomes(0)


def test_a_refusal_is_an_error_in_the_servers_words(standing_wordle):
    with connect(standing_wordle.ws) as socket:
        socket.send(WIRE.step("guess", {"word": "crane"}))
        early = WIRE.read_step(socket.recv())
        socket.send(WIRE.reset("train/none", 0))
        unknown = WIRE.read_reset(socket.recv())
    assert "call reset first" in early.error
    assert early.error.endswith("(EXECUTION_ERROR)")
    assert "there is no task 'train/none'" in unknown.error


def test_what_a_model_reads_of_images_is_their_text_form(standing_lab):
    wanted = asyncio.run(Episode.open(standing_lab.environment, "train/0").step_async(ToolCall("show")))
    with connect(standing_lab.ws) as socket:
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


@pytest.mark.parametrize("blocks", CONTENTS)
def test_content_comes_back_as_it_was(blocks):
    sent = write_content(blocks)
    json.dumps(sent, ensure_ascii=False).encode()
    assert read_content(json.loads(json.dumps(sent))) == blocks
