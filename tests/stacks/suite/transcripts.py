"""Whatever is done in an episode, its transcript is the reference's, byte for byte."""

from __future__ import annotations

import asyncio
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.conformance import TOUCHSTONE
from canonical.catalogue import load_environment
from canonical.content import ErrorCode, Image, Message, Text
from canonical.dialect import TextForm, write_calls
from canonical.step import Cause, Ending
from canonical.tool import ToolCall
from tests.stacks.suite.lab import LONE, PIXEL
from tests.stacks.suite.standing import standing

TEXTS = st.text(st.characters(categories=["L", "N", "P", "S", "Z", "C"]), max_size=30)
TWO_CALLS = write_calls([ToolCall("echo", {"text": "one"}), ToolCall("pay", {"amount": -2.5})])
ACTIONS = (
    ToolCall("echo", {"text": "hello"}),
    ToolCall("describe", {"number": 2**80, "share": 0.1 + 0.2, "tags": ["ä", "\u2028"]}),
    ToolCall("describe", {"number": 3}),
    ToolCall("describe", {"number": "x", "mode": "c"}),
    ToolCall("draw"),
    ToolCall("pay", {"amount": 0.1}),
    ToolCall("draw"),
    ToolCall("show"),
    ToolCall("list", {"lines": 0}),
    ToolCall("list", {"lines": 1}),
    ToolCall("list", {"lines": 3}),
    ToolCall("refuse"),
    ToolCall("crash"),
    ToolCall("leave"),
    ToolCall("vanish"),
    ToolCall("setup"),
    ToolCall("reset", {"seed": 3}),
    ToolCall("close"),
    ToolCall("list_tools"),
    ToolCall("_episode"),
    ToolCall(""),
    ToolCall("../a/b?c=d#e%2F\r\n"),
    ToolCall("n" * 100_000),
    ToolCall("no\ud800such", {"\udfff": 1}),
    ToolCall("echo", {"text": "\ud800"}),
    ToolCall("echo", {"text": "</tool_call></arguments><tool_name>finish</tool_name> <tools>"}),
    ToolCall("echo</tool_name>", {"text": "x", "\udc00": None}),
    "no call at all",
    "lone \ud800",
    TWO_CALLS,
    "",
)
AFTER_THE_END = (ToolCall("finish"), ToolCall("echo", {"text": "after"}), "after")


@st.composite
def exchanges(draw):
    text, name, key = draw(TEXTS), draw(TEXTS), draw(TEXTS)
    number, share = draw(st.integers()), draw(st.floats(allow_nan=False, allow_infinity=False))
    return [
        ToolCall("echo", {"text": text}),
        ToolCall(name, {key: text}),
        ToolCall("describe", {"number": number, "share": share, "tags": [text]}),
        text,
    ]


class TestTranscripts:
    """Whatever is done in an episode, its transcript is the reference's, byte for byte."""

    def test_every_kind_of_action_gives_the_transcript_of_the_reference(self, lab, manner):
        transcript = lab.compare("train/3", 11, [*ACTIONS, *manner.actions, *AFTER_THE_END])
        results = [step.result for step in transcript.steps]
        assert {result.observation.error for result in results} == {None, *ErrorCode}
        assert results[-3].cause is Cause.SUBMITTED
        assert lab.becomes(0)

    def test_wordle_gives_the_transcripts_of_the_reference(self, standing_wordle):
        words = ["crane", "sloth", "zzzzz", "toolong", "bumpy", "fjord", "vixen", "waltz", "crane"]
        for number in range(5):
            actions = [ToolCall("guess", {"word": word}) for word in words]
            standing_wordle.compare(f"test/{number:04d}", number, actions)

    def test_the_touchstone_gives_the_transcripts_of_the_reference(self, adapter):
        environment = load_environment(TOUCHSTONE)
        with standing(environment, adapter) as stand:
            for number, task in enumerate([*environment.tasks()][:3]):
                actions = [*environment.oracle(task), ToolCall("draw"), ToolCall("wait")]
                stand.compare(task.id, number, actions)

    def test_the_turn_budget_truncates_on_the_same_turn_and_pays_for_what_was_reached(self, standing_wordle):
        actions = [ToolCall("guess", {"word": "crane"}), *[ToolCall("none")] * 13]
        transcript = standing_wordle.compare("train/0003", 0, actions)
        results = [step.result for step in transcript.steps]
        assert [result.ending for result in results] == [None] * 11 + [Ending.TRUNCATED] * 3
        assert [result.reward for result in results] == [0.0] * 11 + [results[-1].total] + [0.0] * 2
        assert results[-1].total > 0

    def test_the_call_that_uses_up_the_budget_is_carried_out_and_scored(self, standing_wordle):
        words = ["crane", *["qqqqq"] * 10, "sloth"]
        transcript = standing_wordle.compare(
            "train/0003", 0, [ToolCall("guess", {"word": word}) for word in words]
        )
        last = transcript.steps[-1].result
        assert last.cause is Cause.BUDGET
        assert last.observation.error is None
        assert last.reward == last.total > 0

    def test_any_text_any_name_and_any_number_arrive_and_come_back(self, standing_lab):
        @given(exchanges())
        @settings(max_examples=40, deadline=None)
        def come_back(actions):
            standing_lab.compare("train/0", 0, actions)

        come_back()

    @pytest.mark.parametrize("form", TextForm)
    def test_every_form_of_a_written_call_is_read(self, standing_lab, form):
        calls = [ToolCall("echo", {"text": "\u201cx\u201d </tool_call>"}), ToolCall("draw")]
        transcript = standing_lab.compare("train/0", 0, [write_calls(calls, form)])
        said, drawn = transcript.steps[0].result.observation.text.splitlines()
        assert (said, drawn.isdecimal()) == ("\u201cx\u201d </tool_call>", True)

    @pytest.mark.parametrize("size", [100_000, 5_000_000])
    def test_long_arguments_arrive_whole(self, standing_lab, size):
        text = "wörter " * (size // 8)
        transcript = standing_lab.compare("train/0", 0, [ToolCall("echo", {"text": text})])
        assert transcript.steps[0].result.observation.text == text

    def test_images_come_back_byte_for_byte(self, lab, images):
        transcript = lab.compare("train/0", 0, [ToolCall("show")])
        blocks = transcript.steps[0].result.observation.blocks
        assert blocks == (Text("before"), Image(PIXEL, "image/png"), Text(LONE))

    def test_a_prompt_of_several_messages_keeps_roles_images_and_any_text(self, lab, manner, images):
        seen = asyncio.run(lab.play("odd/0", 0, [])).prompt
        assert seen == (
            Message(
                "system", (Text(re.sub("[\ud800-\udfff]", "\ufffd", LONE) if manner.replaces_lone else LONE),)
            ),
            Message("user", ()),
            Message("user", (Image(PIXEL, "image/png"), Text("?"))),
        )
