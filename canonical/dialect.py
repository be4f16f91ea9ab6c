"""Dialect: assistant text to tool calls and back, for frameworks whose actions are text."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from canonical.content import JSON, quote
from canonical.strict_json import InvalidJSONError, place, read_json, read_json_at, skip_space, write_json
from canonical.tool import ToolCall, ToolSpec

MAX_FAULTS = 8
"""After how many unreadable calls the rest of a message is not read, so that an answer to it stays short."""


@dataclass(frozen=True, slots=True)
class Unparsable:
    """Hold text that should be a tool call and is not.

    Attributes:
        text: The text.
        reason: What is wrong and where, as the sentence that the model reads.
    """

    text: str
    reason: str


class TextForm(StrEnum):
    """Name the ways to write a tool call as text."""

    HERMES = "hermes"
    XML = "xml"
    JSON = "json"


_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_NAME, _NAME_CLOSE = "<tool_name>", "</tool_name>"
_ARGUMENTS, _ARGUMENTS_CLOSE = "<arguments>", "</arguments>"
_THOUGHT, _THOUGHT_CLOSE = "<think>", "</think>"
_FENCE = "```"
# Only objects that begin with one of the two keys are read at all: an error of the standard library's decoder counts the
# lines before it, so a megabyte of braces, each tried, would take minutes.
_BARE = re.compile(r"""\{[ \t\r\n]*+["'](?:name|arguments)["'][ \t\r\n]*+:|```([A-Za-z_]*+)""")
_BARE_LANGUAGES = frozenset({"", "json", "jsonl", "tool_call"})
_TAG = re.compile(r"<(?=/?(?:tool_call|tool_name|arguments)>)")
_ODD = re.compile(r"[&<> \t\r\n\ud800-\udfff]")
_ENTITY = re.compile(r"&(?:(amp|lt|gt)|#([0-9]{1,7}));")
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">"}
_PATTERNS = {
    TextForm.HERMES: '<tool_call>{"name": "TOOL", "arguments": {"ARGUMENT": VALUE}}</tool_call>',
    TextForm.XML: (
        '<tool_call><tool_name>TOOL</tool_name><arguments>{"ARGUMENT": VALUE}</arguments></tool_call>'
    ),
    TextForm.JSON: '{"name": "TOOL", "arguments": {"ARGUMENT": VALUE}}',
}
_HOW = f"Write a call as {_PATTERNS[TextForm.HERMES]}"


class _Fault(Exception):  # noqa: N818 - control flow inside this module, never seen outside
    """Hold what is wrong with a call, the index where, and the index from which a closing tag can be real."""

    def __init__(self, reason: str, position: int, resume: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.position = reason, position
        self.resume = position if resume is None else resume


def read_calls(text: str) -> tuple[ToolCall | Unparsable, ...]:
    """Read the tool calls of an assistant message, in order; what should be a call and is not stands in its place.

    Read are `<tool_call>` tags around a JSON object or around `<tool_name>` and `<arguments>`, and, in a message without
    such tags, JSON objects: alone, in a fence, or amid prose when they hold both `name` and `arguments`. `arguments` may
    be a JSON text that holds the object. A `<think>` block at the beginning is skipped. After an unreadable call,
    reading goes on behind the next closing tag; without tags there is no such place, so it stops.

    Never raises, and takes time proportional to the text. The result is never empty: a message without a call gives one
    `Unparsable` that shows how to write one.
    """
    start = skip_space(text, 0)
    if text.startswith(_THOUGHT, start):
        end = text.find(_THOUGHT_CLOSE, start)
        start = len(text) if end == -1 else skip_space(text, end + len(_THOUGHT_CLOSE))
    readers = [_read_tagged, _read_bare]
    if text.startswith(("{", _FENCE), start):
        readers.reverse()
    for read in readers:
        found = read(text, start)
        if found:
            return tuple(found)
    return (Unparsable(text, f"The message holds no tool call. {_HOW}"),)


def write_calls(calls: Sequence[ToolCall], form: TextForm = TextForm.HERMES) -> str:
    """Return calls as text, one per line; `read_calls` turns the text back into equal calls.

    In the JSON form each line is one object. Tags inside arguments are escaped, so a reader that looks for the next
    closing tag, or a model server that stops at it, is not misled.

    Raises:
        ValueError: JSON cannot carry the arguments: a number is not finite, or the nesting is too deep.
    """
    return "\n".join(_write(call, form) for call in calls)


def describe_tool(spec: ToolSpec) -> str:
    """Return one line of JSON that tells a model what a tool is called, what it does, and what arguments it takes."""
    return write_json(spec.to_json())


def describe_tools(specs: Sequence[ToolSpec], form: TextForm = TextForm.HERMES) -> str:
    """Return the text that tells a model which tools exist and how to call them by text.

    The same specifications give the same text.
    """
    if not specs:
        return "There are no tools to call."
    lines = "\n".join(describe_tool(spec) for spec in specs)
    return (
        "You act by calling tools. Each line below describes one tool: its name, what it does, and the JSON Schema of "
        f"its arguments.\n<tools>\n{lines}\n</tools>\n"
        f"To call a tool, write:\n{_PATTERNS[form]}\n"
        "Several calls in one message, each on a line of its own, are carried out in order."
    )


def _write(call: ToolCall, form: TextForm) -> str:
    arguments: JSON = dict(call.arguments)
    if form is TextForm.XML:
        name = call.name
        if not name.isidentifier():
            name = _ODD.sub(lambda match: f"&#{ord(match[0])};", name)
        # One level stands for the object around name and arguments, so that every form has the same limit.
        body = _hide_tags(write_json([arguments])[1:-1])
        return f"{_OPEN}{_NAME}{name}{_NAME_CLOSE}{_ARGUMENTS}{body}{_ARGUMENTS_CLOSE}{_CLOSE}"
    body = _hide_tags(write_json({"name": call.name, "arguments": arguments}))
    return body if form is TextForm.JSON else f"{_OPEN}{body}{_CLOSE}"


def _hide_tags(body: str) -> str:
    return _TAG.sub(r"\\u003c", body) if "<" in body else body


_UNKNOWN = -2
"""Before every position, and not the -1 that says that nothing was found."""


class _Landmark:
    """Find the next of a text's landmarks, for positions that only grow, in time proportional to the text."""

    __slots__ = ("_at", "_needle", "_text")

    def __init__(self, text: str, needle: str) -> None:
        self._text, self._needle = text, needle
        self._at = _UNKNOWN

    def after(self, position: int) -> int:
        if self._at < position and self._at != -1:
            self._at = self._text.find(self._needle, position)
        return self._at


def _read_tagged(text: str, start: int) -> list[ToolCall | Unparsable]:
    found: list[ToolCall | Unparsable] = []
    faults = 0
    openings, closings = _Landmark(text, _OPEN), _Landmark(text, _CLOSE)
    opening = openings.after(start)
    while opening != -1 and faults < MAX_FAULTS:
        inside = skip_space(text, opening + len(_OPEN))
        if not text.startswith(("{", _NAME), inside):
            closing, opening = closings.after(inside), openings.after(inside)
            if closing == -1 or -1 < opening < closing:
                continue  # the tag is only spoken of
        try:
            call, end = _read_between_tags(text, inside)
            found.append(call)
        except _Fault as fault:
            faults += 1
            closing = closings.after(fault.resume)
            end = len(text) if closing == -1 else closing + len(_CLOSE)
            found.append(_unparsable(text[inside:end], text, fault, stops=faults == MAX_FAULTS))
        opening = openings.after(end)
    return found


def _read_between_tags(text: str, inside: int) -> tuple[ToolCall, int]:
    if text.startswith("{", inside):
        value, end = _read_value(text, inside)
        call = _call_of(value, inside, end)
    elif text.startswith(_NAME, inside):
        call, end = _read_xml(text, inside)
    else:
        raise _Fault(f"{_OPEN} is not followed by a JSON object", inside)
    end = skip_space(text, end)
    if text.startswith(_CLOSE, end):
        return call, end + len(_CLOSE)
    if end == len(text):
        # Model servers that are told to stop at the closing tag leave it out.
        return call, end
    raise _Fault(f"{_CLOSE} does not follow the call", end)


def _read_xml(text: str, inside: int) -> tuple[ToolCall, int]:
    begin = inside + len(_NAME)
    end = text.find("<", begin)
    if not text.startswith(_NAME_CLOSE, end):
        raise _Fault(f"{_NAME} is not closed by {_NAME_CLOSE}", begin)
    name = text[begin:end].strip(" \t\r\n")
    if "&" in name:
        name = _ENTITY.sub(_character, name)
    end = skip_space(text, end + len(_NAME_CLOSE))
    if not text.startswith(_ARGUMENTS, end):
        return ToolCall(name, {}), end
    begin = end = skip_space(text, end + len(_ARGUMENTS))
    arguments: JSON = {}
    if not text.startswith(_ARGUMENTS_CLOSE, begin):
        arguments, end = _read_value(text, begin)
        end = skip_space(text, end)
    if not text.startswith(_ARGUMENTS_CLOSE, end):
        raise _Fault(f"{_ARGUMENTS_CLOSE} does not follow the arguments", end)
    return ToolCall(name, _arguments_of(arguments, begin, end)), end + len(_ARGUMENTS_CLOSE)


def _character(match: re.Match[str]) -> str:
    if match[1]:
        return _ENTITIES[match[1]]
    code = int(match[2])
    return chr(code) if code <= sys.maxunicode else match[0]


def _read_bare(text: str, start: int) -> list[ToolCall | Unparsable]:
    found: list[ToolCall | Unparsable] = []
    position = start  # up to here the text has been read
    is_alone = True  # a call is expected at `position`: only there may an object without "arguments" be one
    while match := _BARE.search(text, position):
        begin = match.start()
        is_alone = is_alone and skip_space(text, position) == begin
        if match[0].startswith(_FENCE):
            position = match.end()
            is_alone = match[1].lower() in _BARE_LANGUAGES
            if not is_alone:  # code in another language is not a call, whatever it looks like
                closing = text.find(_FENCE, position)
                position = len(text) if closing == -1 else closing + len(_FENCE)
            continue
        try:
            value, position = _read_value(text, begin)
            is_alone = isinstance(value, dict) and "name" in value and (is_alone or "arguments" in value)
            if is_alone:
                found.append(_call_of(value, begin, position))
        except _Fault as fault:
            found.append(_unparsable(text[begin:], text, fault, stops=True))
            break
    return found


def _read_value(text: str, position: int) -> tuple[JSON, int]:
    try:
        return read_json_at(text, position)
    except InvalidJSONError as error:
        raise _Fault(f"the call is not valid JSON: {error.reason}", error.position, error.end) from None


def _call_of(value: JSON, begin: int, end: int) -> ToolCall:
    assert isinstance(value, dict)  # noqa: S101 - it began with a brace
    for key in value:
        if key not in {"name", "arguments"}:
            raise _Fault(
                f'the call has the key {quote(key, 40)}; its keys are "name" and "arguments"', begin, end
            )
    if "name" not in value:
        raise _Fault('the call has no "name"', begin, end)
    name = value["name"]
    if not isinstance(name, str):
        raise _Fault(f'"name" must be a text, not {_kind(name)}', begin, end)
    return ToolCall(name, _arguments_of(value.get("arguments"), begin, end))


def _arguments_of(value: JSON, begin: int, end: int) -> dict[str, JSON]:
    if isinstance(value, str):
        # Models that were trained on an interface whose arguments are a JSON text write them so here too.
        text = value
        try:
            value = read_json(text) if text.strip() else None
        except InvalidJSONError as error:
            reason = f'"arguments" is a text that is not valid JSON: {error.reason}, {place(text, error.position)} of it'
            raise _Fault(reason, begin, end) from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _Fault(f'"arguments" must be an object, not {_kind(value)}', begin, end)
    return value


def _kind(value: JSON) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return "a text"
    return "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else "a number"


def _unparsable(part: str, text: str, fault: _Fault, *, stops: bool) -> Unparsable:
    rest = text[fault.position : fault.position + 30]
    near = f", at {quote(rest)}" if rest else ", at the end"
    unread = " Nothing after it was read." if stops and fault.position < len(text) else ""
    reason = f"Unreadable tool call: {fault.reason} ({place(text, fault.position)}{near}).{unread} {_HOW}"
    return Unparsable(part, reason)
