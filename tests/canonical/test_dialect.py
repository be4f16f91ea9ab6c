"""What the text dialect promises: whatever is written is read back, and whatever a model writes is answered."""

from __future__ import annotations

import json
import re
import sys
from types import MappingProxyType

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from canonical.dialect import (
    MAX_FAULTS,
    TextForm,
    Unparsable,
    describe_tool,
    describe_tools,
    read_calls,
    write_calls,
)
from canonical.strict_json import MAX_DEPTH, InvalidJSONError, read_json, write_json
from canonical.tool import ToolCall, ToolSpec

ANY_TEXT = st.text(st.characters(exclude_categories=()))
TAGS = (
    "<tool_call>",
    "</tool_call>",
    "<tool_name>",
    "</tool_name>",
    "<arguments>",
    "</arguments>",
    "<think>",
)
NASTY_TEXT = st.lists(
    ANY_TEXT
    | st.sampled_from([*TAGS, "```", "```json\n", "\\", '"', "{", "}", "&lt;", "&#60;", "\ud800", "\udc00"])
).map("".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | NASTY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NASTY_TEXT, inner, max_size=4),
    max_leaves=20,
)
CALLS = st.builds(ToolCall, NASTY_TEXT, st.dictionaries(NASTY_TEXT, VALUES, max_size=4))
FORMS = st.sampled_from(TextForm)
SPLIT_CHARACTER = re.compile("[\ud800-\udbff][\udc00-\udfff]")

GUESS = ToolCall("guess", {"word": "crane"})
HERMES = '<tool_call>{"name": "guess", "arguments": {"word": "crane"}}</tool_call>'
XML = '<tool_call><tool_name>guess</tool_name><arguments>{"word": "crane"}</arguments></tool_call>'
BARE = '{"name": "guess", "arguments": {"word": "crane"}}'


def only_fault(text: str) -> str:
    (found,) = read_calls(text)
    assert isinstance(found, Unparsable), found
    return found.reason


@given(st.lists(CALLS, min_size=1, max_size=4), FORMS)
def test_what_is_written_is_read_back(calls, form):
    assert read_calls(write_calls(calls, form)) == tuple(calls)


@given(CALLS, st.sampled_from([TextForm.HERMES, TextForm.XML]))
def test_a_written_call_holds_its_closing_tag_once_at_the_end(call, form):
    text = write_calls([call], form)
    assert text.index("</tool_call>") == len(text) - len("</tool_call>")


@given(
    st.lists(CALLS, min_size=1, max_size=3),
    FORMS,
    st.sampled_from(["I think so.", "Ja - natürlich!", "a < b > c"]),
)
def test_prose_around_written_calls_changes_nothing(calls, form, prose):
    assert read_calls(f"{prose}\n{write_calls(calls, form)}\n{prose}") == tuple(calls)


@given(st.builds(ToolCall, NASTY_TEXT, st.dictionaries(NASTY_TEXT, NASTY_TEXT, max_size=3)), FORMS)
def test_a_written_call_can_be_sent_as_utf8_unless_two_surrogates_look_like_one_character(call, form):
    assume(
        not any(
            SPLIT_CHARACTER.search(text) for text in (call.name, *call.arguments, *call.arguments.values())
        )
    )
    write_calls([call], form).encode("utf-8")


@given(
    st.lists(
        NASTY_TEXT
        | st.sampled_from(
            [HERMES, XML, BARE, '{"name":', '"arguments":', "NaN", "1e999", ",", ":", "[", "]", "\n"]
        )
    ).map("".join)
)
def test_any_text_gets_an_answer_that_can_be_sent(text):
    found = read_calls(text)
    assert found
    for item in found:
        if isinstance(item, Unparsable):
            item.reason.encode("utf-8")
            assert len(item.reason) < 700
    assert sum(isinstance(item, Unparsable) for item in found) <= MAX_FAULTS


@pytest.mark.parametrize(
    "text",
    [
        HERMES,
        XML,
        BARE,
        f"  \n{BARE}\n",
        f"Let me try.\n{HERMES}",
        f"{HERMES} done",
        f"I will call {BARE} now.",
        f"```json\n{BARE}\n```",
        f"```\n{BARE}\n```",
        f"Here:\n```json\n{BARE}\n```\nThat is it.",
        f"<tool_call>\n{BARE}\n</tool_call>",
        f"<tool_call>{BARE}",
        f"<tool_call>{BARE}\n",
        '<tool_call>{"arguments": {"word": "crane"}, "name": "guess"}</tool_call>',
        '{"name": "guess", "arguments": "{\\"word\\": \\"crane\\"}"}',
        '<tool_call><tool_name> guess\n</tool_name>\n<arguments>\n{"word": "crane"}\n</arguments>\n</tool_call>',
        f'<think>Perhaps {{"name": "guess", "arguments": {{"word": "slate"}}}}?</think>\n{HERMES}',
        f"The <tool_call> tag comes first: {HERMES}",
        f'```python\nx = {{"name": "guess", "arguments": {{"word": "slate"}}}}\n```\n{BARE}',
        f"```json\n{{}}\n```\n{HERMES}",
        f'{{"thought": "try it", "call": {BARE}}}',
    ],
)
def test_every_way_to_write_one_call_is_read(text):
    assert read_calls(text) == (GUESS,)


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "look"}</tool_call>',
        '<tool_call>{"name": "look", "arguments": null}</tool_call>',
        '<tool_call>{"name": "look", "arguments": ""}</tool_call>',
        "<tool_call><tool_name>look</tool_name></tool_call>",
        "<tool_call><tool_name>look</tool_name><arguments></arguments></tool_call>",
        '{"name": "look"}',
        '```json\n{"name": "look"}\n```',
    ],
)
def test_missing_arguments_are_no_arguments(text):
    assert read_calls(text) == (ToolCall("look", {}),)


def test_calls_run_in_the_order_of_the_message():
    text = f'First {HERMES} then\n<tool_call>{{"name": "look"}}</tool_call>{XML}'
    assert read_calls(text) == (GUESS, ToolCall("look", {}), GUESS)


def test_bare_calls_stand_one_per_line():
    assert read_calls(f'{BARE}\n{{"name": "look"}}\n{BARE}') == (GUESS, ToolCall("look", {}), GUESS)
    assert read_calls(f"[{BARE}, {BARE}]") == (GUESS, GUESS)


def test_a_closing_tag_inside_an_argument_does_not_end_the_call():
    text = '<tool_call>{"name": "write", "arguments": {"text": "</tool_call>{<tool_call>"}}</tool_call>'
    assert read_calls(text) == (ToolCall("write", {"text": "</tool_call>{<tool_call>"}),)


def test_a_call_quoted_inside_an_argument_is_not_run():
    inner = "<tool_call><tool_name>erase</tool_name><arguments></arguments></tool_call>"
    for form in TextForm:
        call = ToolCall("write", {"text": inner})
        assert read_calls(write_calls([call], form)) == (call,)
    for broken in (
        '{"name": "write", "name": "write", "arguments": {"text": "%s"}}',
        '{"arguments": {"text": "%s"}}',
    ):
        (found,) = read_calls(f"<tool_call>{broken % inner}</tool_call>")
        assert isinstance(found, Unparsable)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "I would use the guess tool with the word crane.",
        'guess(word="crane")',
        "The guess tool takes {word}.",
        '{"word": "crane"}',
        'My name is in {"name": "Bob", "age": 3} as you see.',
        f"```python\nprint({BARE})\n```",
        "<tool_call>",
        "<think>I never stop thinking",
        f"<think>{HERMES}",
        "[]",
        "```",
    ],
)
def test_prose_that_calls_nothing_is_answered_with_the_expected_form(text):
    reason = only_fault(text)
    assert reason.startswith("The message holds no tool call.")
    assert '<tool_call>{"name": "TOOL", "arguments": {"ARGUMENT": VALUE}}</tool_call>' in reason


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('<tool_call>{"name": "a",}</tool_call>', ["a comma stands before }", "line 1, column 25"]),
        ('<tool_call>{"name": "a", "arguments": {"x": [1,]}}</tool_call>', ["a comma stands before ]"]),
        ('{"name": "a" "arguments": {}}', ["a comma or } is missing", "line 1, column 14"]),
        ('{"name": "a",\n"arguments" {}}', ["a colon is missing", "line 2, column 13"]),
        ('{"name": "a", "arguments": {x: 1}}', ["a key in double quotes is expected", "column 29"]),
        ("{'name': 'a', 'arguments': {}}", ["a key in double quotes is expected", "column 2"]),
        ('{"name": "a", "arguments": {"x": crane}}', ["a value is expected", "column 34"]),
        ('{"name": "a", "arguments": {"x": "b', ["a text in double quotes is never closed", "column 34"]),
        ('{"name": "a", "arguments": {"x": 1', ["the text ends before the JSON does", "at the end"]),
        ('{"name": "a", "arguments": {"x": "b\nc"}}', ["a line break", "\\n", "line 1, column 36"]),
        ('{"name": "a", "arguments": {"x": "b\tc"}}', ["a tab", "\\t"]),
        ('{"name": "a", "arguments": {"x": "b\x00c"}}', ["a control character"]),
        ('{"name": "a", "arguments": {"x": "\\d"}}', ["a backslash", "column 35"]),
        ('{"name": "a", "arguments": {"x": "\\u12"}}', ["a backslash"]),
        ('{"name": "a", "arguments": {"x": 1, "x": 2}}', ['the key "x" appears twice']),
        ('{"name": "a", "arguments": {"x": NaN}}', ["NaN is not a JSON value"]),
        ('{"name": "a", "arguments": {"x": -Infinity}}', ["-Infinity is not a JSON value"]),
        ('{"name": "a", "arguments": {"x": 1e999}}', ['the number "1e999" is too large']),
        (f'{{"name": "a", "arguments": {{"x": {"9" * 5000}}}}}', ["more than 4300 digits"]),
        ('{"name": 3, "arguments": {}}', ['"name" must be a text, not a number']),
        ('{"name": null, "arguments": {}}', ['"name" must be a text, not null']),
        ('{"arguments": {}, "name": true}', ['"name" must be a text, not true']),
        ('{"name": "a", "arguments": [1]}', ['"arguments" must be an object, not a list']),
        ('{"name": "a", "arguments": 1}', ['"arguments" must be an object, not a number']),
        ('{"name": "a", "arguments": "[1]"}', ['"arguments" must be an object, not a list']),
        (
            '{"name": "a", "arguments": "{x}"}',
            ['"arguments" is a text that is not valid JSON', "line 1, column 2"],
        ),
        ('{"name": "a", "arguments": "{} {}"}', ["something follows the JSON value"]),
        ('{"name": "a", "parameters": {}}', ['the call has the key "parameters"']),
        ('<tool_call>{"arguments": {}}</tool_call>', ['the call has no "name"']),
        ("<tool_call>{}</tool_call>", ['the call has no "name"']),
        (
            '<tool_call>guess("crane")</tool_call>',
            ["<tool_call> is not followed by a JSON object", 'guess(\\"crane\\")'],
        ),
        (f"<tool_call>{BARE} and so on</tool_call>", ["</tool_call> does not follow the call", "and so on"]),
        ("<tool_call><tool_name>guess</arguments></tool_call>", ["<tool_name> is not closed"]),
        (
            "<tool_call><tool_name>guess</tool_name><arguments>3</arguments></tool_call>",
            ["must be an object"],
        ),
        (
            "<tool_call><tool_name>guess</tool_name><arguments>{}</tool_call>",
            ["</arguments> does not follow"],
        ),
        ("<tool_call><tool_name>guess", ["<tool_name> is not closed"]),
    ],
)
def test_a_malformed_call_is_answered_with_what_is_wrong_and_where(text, parts):
    reason = only_fault(text)
    for part in parts:
        assert part in reason
    assert "Write a call as <tool_call>" in reason


def test_reading_goes_on_behind_a_malformed_tagged_call():
    broken, call = read_calls(f'<tool_call>{{"name": guess}}</tool_call> {HERMES}')
    assert isinstance(broken, Unparsable)
    assert "Nothing after it was read" not in broken.reason
    assert call == GUESS


def test_reading_stops_at_a_malformed_bare_call_and_says_so():
    call, broken = read_calls(f'{BARE}\n{{"name": guess}}\n{BARE}')
    assert call == GUESS
    assert isinstance(broken, Unparsable)
    assert "Nothing after it was read." in broken.reason


def test_too_many_malformed_calls_get_a_short_answer():
    found = read_calls("<tool_call>{}</tool_call>" * 1000 + HERMES)
    assert len(found) == MAX_FAULTS
    assert "Nothing after it was read." in found[-1].reason


@pytest.mark.parametrize("depth", [MAX_DEPTH, 5_000, 200_000])
@pytest.mark.parametrize("wrap", [BARE, f"<tool_call>{BARE}</tool_call>"])
def test_deep_nesting_is_answered(depth, wrap):
    assert "nested more than" in only_fault(wrap.replace('"crane"', "[" * depth + "]" * depth))
    assert "nested more than" in only_fault(wrap.replace('"crane"', "[" * depth + "?" + "]" * depth))


def test_the_deepest_nesting_that_can_be_written_can_be_read():
    def nested(depth):
        value = None
        for _ in range(depth):
            value = [value]
        return ToolCall("a", {"x": value})

    for form in TextForm:
        deepest = nested(MAX_DEPTH - 2)
        assert read_calls(write_calls([deepest], form)) == (deepest,)
        with pytest.raises(ValueError, match="nested"):
            write_calls([nested(MAX_DEPTH - 1)], form)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_cannot_be_written(value):
    with pytest.raises(ValueError, match="JSON"):
        write_calls([ToolCall("a", {"x": value})])


@pytest.mark.parametrize(
    "unit",
    [
        *TAGS,
        "{", '{"', '{"a":', '{"name":', '{"arguments":"', '{"a\\"', "[", "```", "```a", "</think>", "&#1;", "{ ", "\\",
        "<tool_call>{", '<tool_call>{"', '<tool_call>{"a":', '<tool_call>{"a</tool_call>', "<tool_call></tool_call>",
        "<tool_call><tool_name>", "<tool_call><tool_name>a</tool_name><arguments>{", '<tool_call>{"a":1,"a":"</tool_call>',
        '{"name":"a","arguments":{}', HERMES, BARE, XML,
    ],
)  # fmt: skip
def test_a_megabyte_of_anything_is_answered(unit):
    # Anything worse than proportional time takes minutes here, which the suite's patience does not cover.
    text = unit * (1_000_000 // len(unit))
    assert read_calls(text)
    assert read_calls(text + HERMES)
    assert read_calls(f'<tool_call>{{"name": "a", "arguments": {{"x": "{text}')


def test_a_character_code_beyond_unicode_stays_text():
    text = f"<tool_call><tool_name>&#{sys.maxunicode + 1};&#65;&lt;&copy;</tool_name></tool_call>"
    assert read_calls(text) == (ToolCall(f"&#{sys.maxunicode + 1};A<&copy;", {}),)


@given(VALUES)
def test_strict_json_reads_what_it_writes(value):
    assert read_json(write_json(value)) == value


@given(st.text(st.sampled_from('{}[]",:\\ntrue1e-. \n\x00fals')) | NASTY_TEXT)
def test_strict_json_accepts_nothing_that_the_standard_library_refuses(text):
    try:
        expected = json.loads(text)
    except (ValueError, RecursionError):
        with pytest.raises(InvalidJSONError):
            read_json(text)
    else:
        try:
            assert read_json(text) == expected
        except InvalidJSONError as error:
            assert error.end is not None or "nested" in error.reason  # noqa: PT017 - either outcome is fine


SPECS = (
    ToolSpec("guess", "Guess “the” word.", {"type": "object", "properties": {"word": {"type": "string"}}}),
    ToolSpec("look", "Look.", MappingProxyType({"type": "object", "properties": {}})),
)


@pytest.mark.parametrize("form", TextForm)
def test_the_description_names_every_tool_with_its_schema_and_how_to_call(form):
    text = describe_tools(SPECS, form)
    lines = text.splitlines()
    for spec in SPECS:
        assert describe_tool(spec) in lines
        assert json.loads(describe_tool(spec)) == spec.to_json()
    example = next(line for line in lines if "TOOL" in line)
    filled = example.replace("TOOL", "guess").replace("ARGUMENT", "word").replace("VALUE", '"crane"')
    assert read_calls(filled) == (GUESS,)
    assert describe_tools(list(SPECS), form) == text


def test_the_description_of_no_tools_says_so():
    assert describe_tools(()) == "There are no tools to call."
