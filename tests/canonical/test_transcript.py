"""Transcripts: one line of JSON holds everything, reads back equal, and the first difference is found."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canonical.content import ErrorCode, Image, Message, Observation, Text, project_text
from canonical.step import Cause, Ending, StepResult
from canonical.tool import ToolCall, ToolSpec
from canonical.transcript import (
    Action,
    Transcript,
    TranscriptError,
    TranscriptStep,
    action_from_json,
    first_difference,
    step_text,
)
from tests.canonical.miniatures import Counter, Gallery
from tests.canonical.playing import play
from tests.canonical.strategies import any_text, counter_calls, json_values, messy

blocks = st.lists(
    st.builds(Text, any_text)
    | st.builds(Image, st.binary(max_size=9), st.sampled_from(["image/png", "image/webp"])),
    max_size=3,
).map(tuple)
numbers = st.floats(allow_nan=False, allow_infinity=False)
actions: st.SearchStrategy[Action] = any_text | st.builds(
    ToolCall, any_text, st.dictionaries(any_text, json_values, max_size=2)
)
results = st.builds(
    StepResult,
    st.builds(Observation, blocks, st.none() | st.sampled_from(ErrorCode)),
    numbers,
    numbers,
    st.none() | st.sampled_from(Cause),
    st.dictionaries(any_text, numbers, max_size=2),
)
transcripts = st.builds(
    Transcript,
    environment=any_text,
    version=any_text,
    task=any_text,
    seed=st.integers(),
    prompt=st.lists(
        st.builds(Message, st.sampled_from(["system", "user", "assistant", "tool"]), blocks), max_size=2
    ).map(tuple),
    tools=st.lists(
        st.builds(ToolSpec, any_text, any_text, st.dictionaries(any_text, json_values, max_size=2)),
        max_size=2,
    ).map(tuple),
    steps=st.lists(st.builds(TranscriptStep, actions, results), max_size=3).map(tuple),
)


class TestLine:
    @given(transcripts)
    def test_a_line_reads_back_equal(self, transcript: Transcript) -> None:
        line = transcript.to_line()
        assert "\n" not in line
        assert line.isascii()
        assert Transcript.from_line(line) == transcript
        assert Transcript.from_line(line).to_line() == line
        assert Transcript.from_line(line).digest() == transcript.digest()

    @given(st.lists(messy(counter_calls), max_size=6))
    def test_what_was_played_reads_back_equal(self, played: list[Action]) -> None:
        transcript = play(Counter(), "train/3", 1, played)
        assert Transcript.from_line(transcript.to_line()) == transcript

    def test_images_read_back_equal(self) -> None:
        transcript = play(Gallery(), "train/hall", 0, [ToolCall("look", {"angle": 250})])
        assert Transcript.from_line(transcript.to_line()) == transcript

    def test_a_line_is_canonical_json(self) -> None:
        line = play(Counter(), "train/3", 1, ["\u00e9"]).to_line()
        assert json.dumps(json.loads(line), sort_keys=True, separators=(",", ":")) == line

    def test_a_number_that_json_lacks_cannot_be_written(self) -> None:
        step = TranscriptStep("x", StepResult(Observation.of("y"), float("nan")))
        transcript = replace(play(Counter(), "train/3", 1, []), steps=(step,))
        with pytest.raises(ValueError, match="not JSON compliant"):
            transcript.to_line()

    @pytest.mark.parametrize(
        "line",
        ["", "{", "[]", "null", "7", "{}", '{"environment": 1}', "[" * 100_000, "1" * 5000, '"text"'],
        ids=lambda line: repr(line[:10]),
    )
    def test_text_that_is_no_transcript_is_refused(self, line: str) -> None:
        with pytest.raises(TranscriptError, match=r"^not (JSON|a transcript): "):
            Transcript.from_line(line)

    @given(st.data())
    def test_a_cut_line_is_refused(self, data: st.DataObject) -> None:
        line = play(Counter(), "train/3", 1, [ToolCall("add")]).to_line()
        with pytest.raises(TranscriptError):
            Transcript.from_line(line[: data.draw(st.integers(0, len(line) - 1))])

    @given(st.data())
    def test_a_missing_piece_is_refused(self, data: st.DataObject) -> None:
        value = play(Counter(), "train/3", 1, [ToolCall("add")]).to_json()
        del value[data.draw(st.sampled_from(sorted(value)))]
        with pytest.raises(TranscriptError):
            Transcript.from_line(json.dumps(value))

    @pytest.mark.parametrize(
        ("path", "wrong"),
        [
            (["environment"], 1),
            (["version"], None),
            (["task"], []),
            (["seed"], "1"),
            (["seed"], 1.5),
            (["seed"], True),
            (["prompt"], "text"),
            (["prompt", 0, "role"], "judge"),
            (["prompt", 0, "blocks"], [{"type": "sound"}]),
            (["prompt", 0, "blocks", 0, "text"], 7),
            (["tools"], {}),
            (["tools", 0, "parameters"], []),
            (["steps"], 3),
            (["steps", 0], "step"),
            (["steps", 0, "action"], 5),
            (["steps", 0, "action"], {"name": "add"}),
            (["steps", 0, "action", "name"], None),
            (["steps", 0, "result", "reward"], "1.0"),
            (["steps", 0, "result", "reward"], None),
            (["steps", 0, "result", "reward"], float("nan")),
            (["steps", 0, "result", "total"], float("inf")),
            (["steps", 0, "result", "cause"], "bored"),
            (["steps", 0, "result", "components"], [1]),
            (["steps", 0, "result", "components"], {"x": "1"}),
            (["steps", 0, "result", "observation"], "text"),
            (["steps", 0, "result", "observation", "error"], "oops"),
            (["steps", 0, "result", "observation", "blocks"], "text"),
        ],
        ids=lambda value: str(value).replace(" ", ""),
    )
    def test_a_piece_of_the_wrong_kind_is_refused(self, path: list[Any], wrong: Any) -> None:
        value: Any = json.loads(play(Counter(), "train/3", 1, [ToolCall("add")]).to_line())
        inner = value
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = wrong
        with pytest.raises(TranscriptError):
            Transcript.from_line(json.dumps(value))


class TestDifference:
    @given(transcripts)
    def test_a_transcript_does_not_differ_from_itself(self, transcript: Transcript) -> None:
        assert first_difference(transcript, Transcript.from_line(transcript.to_line())) is None

    @given(transcripts, transcripts)
    def test_there_is_a_difference_exactly_when_the_lines_differ(
        self, left: Transcript, right: Transcript
    ) -> None:
        difference = first_difference(left, right)
        assert (difference is None) == (left.to_line() == right.to_line())
        mirrored = first_difference(right, left)
        if difference is not None and mirrored is not None:
            assert (mirrored.left, mirrored.right) == (difference.right, difference.left)

    @given(transcripts, st.data())
    def test_a_change_in_one_step_is_found_at_that_step(
        self, transcript: Transcript, data: st.DataObject
    ) -> None:
        if not transcript.steps:
            return
        index = data.draw(st.integers(0, len(transcript.steps) - 1))
        changed = data.draw(st.builds(TranscriptStep, actions, results))
        steps = (*transcript.steps[:index], changed, *transcript.steps[index + 1 :])
        difference = first_difference(transcript, replace(transcript, steps=steps))
        if changed.to_json() == transcript.steps[index].to_json():
            assert difference is None
        else:
            assert difference is not None
            assert difference.step == index

    @pytest.mark.parametrize(
        ("change", "piece"),
        [
            ({"reward": 1.0}, "reward"),
            ({"total": 1.0}, "total"),
            ({"cause": Cause.BUDGET}, "ending"),
            ({"observation": Observation.of("other")}, "observation"),
            ({"observation": Observation.of("text", ErrorCode.TOOL_ERROR)}, "error"),
            ({"components": {"x": 1.0}}, "components"),
        ],
    )
    def test_the_piece_is_named(self, change: dict[str, Any], piece: str) -> None:
        base = replace(
            play(Counter(), "train/3", 1, []),
            steps=(TranscriptStep("a", StepResult(Observation.of("text"))),),
        )
        result = replace(base.steps[0].result, **change)
        other = replace(base, steps=(TranscriptStep("a", result),))
        difference = first_difference(base, other)
        assert difference is not None
        assert (difference.step, difference.piece) == (0, piece)
        assert f"{piece} differs at step 0" in str(difference)

    def test_causes_of_one_ending_differ_as_causes(self) -> None:
        steps = [
            (TranscriptStep("a", StepResult(Observation.of("t"), cause=cause)),)
            for cause in (Cause.SOLVED, Cause.FAILED)
        ]
        base = play(Counter(), "train/3", 1, [])
        difference = first_difference(replace(base, steps=steps[0]), replace(base, steps=steps[1]))
        assert difference is not None
        assert difference.piece == "cause"

    @pytest.mark.parametrize("piece", ["environment", "version", "task", "seed", "prompt", "tools"])
    def test_differences_before_the_first_step_are_named(self, piece: str) -> None:
        base = play(Counter(), "train/3", 1, [])
        change: dict[str, Any] = {piece: {"seed": 2, "prompt": (), "tools": ()}.get(piece, "x")}
        difference = first_difference(base, replace(base, **change))
        assert difference is not None
        assert (difference.step, difference.piece) == (None, piece)
        assert f"{piece} differs before the first step" in str(difference)

    def test_a_missing_step_is_a_difference_of_length(self) -> None:
        long = play(Counter(), "train/3", 1, ["a", "b"])
        difference = first_difference(long, replace(long, steps=long.steps[:1]))
        assert difference is not None
        assert difference == (1, "length", '"2 steps"', '"1 steps"')

    def test_an_integer_is_not_a_float(self) -> None:
        """They are different bytes."""
        base = play(Counter(), "train/3", 1, [])
        one, two = (
            replace(base, steps=(TranscriptStep("a", StepResult(Observation.of("t"), reward)),))
            for reward in (1, 1.0)
        )
        assert first_difference(one, two) is not None


class TestPieces:
    def test_each_cause_belongs_to_one_ending(self) -> None:
        assert {cause: cause.ending for cause in Cause} == {
            Cause.SOLVED: Ending.TERMINATED,
            Cause.FAILED: Ending.TERMINATED,
            Cause.SUBMITTED: Ending.TERMINATED,
            Cause.BUDGET: Ending.TRUNCATED,
            Cause.TIMEOUT: Ending.TRUNCATED,
            Cause.CANCELLED: Ending.TRUNCATED,
            Cause.ERROR: Ending.TRUNCATED,
        }

    @given(actions)
    def test_an_action_reads_back_equal(self, action: Action) -> None:
        written = action if isinstance(action, str) else action.to_json()
        assert action_from_json(json.loads(json.dumps(written))) == action

    @pytest.mark.parametrize(
        "value", [None, 7, [], {}, {"name": "a"}, {"name": 1, "arguments": {}}, {"name": "a", "arguments": []}, {"name": "a", "arguments": {}, "id": 1}]
    )  # fmt: skip
    def test_what_is_no_action_is_refused(self, value: Any) -> None:
        with pytest.raises(ValueError, match="an action is a text, or an object"):
            action_from_json(value)

    def test_the_text_form_of_blocks_names_each_image(self) -> None:
        assert (
            project_text((Text("a"), Image(b"123", "image/png"), Text("b"))) == "a\n[image/png, 3 bytes]\nb"
        )
        assert project_text(()) == ""
        assert Message("user", (Text("a"),)).text == "a"

    def test_totals_and_causes_come_from_the_last_step(self) -> None:
        transcript = play(Counter(), "train/1", 0, [ToolCall("add"), "?"])
        assert (transcript.total, transcript.cause) == (1.0, Cause.SOLVED)
        empty = replace(transcript, steps=())
        assert (empty.total, empty.cause) == (0.0, None)


def test_a_step_is_shown_line_by_line_and_only_a_line_feed_ends_a_line() -> None:
    """What moves the cursor of a terminal is for whoever prints it to write out; here it stays where it stands."""
    result = StepResult(Observation((Text("a\rb\x0bc\u2028d\ne\n\nf\n"),)))
    shown = step_text(TranscriptStep(ToolCall("ls", {}), result))
    assert shown == "> ls {}\n  a\rb\x0bc\u2028d\n  e\n\n  f"
