"""JSON text, strictly: one reading in every Python release, and errors in words that a model can act on."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from canonical.content import JSON, quote

MAX_DEPTH = 100
"""How many objects and lists may lie inside each other; far below what any Python release can read."""

MAX_DIGITS = 4300
"""How many characters an integer may have; the limit of Python's own conversion."""

_TOO_DEEP = f"objects and lists are nested more than {MAX_DEPTH} deep"
_BLANK = " \t\n\r"
_SPACE = re.compile(rf"[{_BLANK}]*+")
_STRING = re.compile(r'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+')
_SCALAR = re.compile(
    r"true|false|null|NaN|-?Infinity|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
)
_SURROGATE = re.compile(r"[\ud800-\udbff]|(?<![\ud800-\udbff])[\udc00-\udfff]")


class InvalidJSONError(ValueError):
    """Say what keeps a text from being JSON.

    Attributes:
        reason: What is wrong, in words that quote nothing of the text but a key or a number.
        position: The index where it is wrong.
        end: The index after the value when only its content is wrong, such as a key that appears twice.
    """

    def __init__(self, reason: str, position: int, end: int | None = None) -> None:
        self.reason = reason
        self.position = position
        self.end = end
        super().__init__(f"{reason} (at index {position})")


def skip_space(text: str, position: int) -> int:
    """Return the index of the first character at or after `position` that is not JSON white space."""
    if text[position : position + 1] not in _BLANK:
        return position  # as almost always; to look costs a fraction of a match
    match = _SPACE.match(text, position)
    return position if match is None else match.end()


def read_json_at(text: str, position: int) -> tuple[JSON, int]:
    """Read the JSON value that begins at an index; return it and the index after it.

    Numbers that overflow, `NaN`, `Infinity`, keys that appear twice and nesting deeper than `MAX_DEPTH` are refused.

    Raises:
        InvalidJSONError: There is no such value at this index.
    """
    try:
        value, end = _PLAIN.raw_decode(text, position)
    except (json.JSONDecodeError, RecursionError, _OddValueError):
        # Read again, slowly, to say in words what is wrong.
        value, end = _read_and_explain(text, position)
    # Few brackets cannot nest deeply, and counting them costs a fraction of walking through the value.
    brackets = text.count("{", position, end) + text.count("[", position, end)
    if brackets > MAX_DEPTH and not _is_shallow(value):
        raise InvalidJSONError(_TOO_DEEP, position)
    return value, end


class _OddValueError(Exception):
    """Stop reading at what JSON's grammar allows and this project does not."""


def _plain_object(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _OddValueError
    return value


def _plain_constant(_: str) -> None:
    raise _OddValueError


def _plain_float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise _OddValueError
    return value


def _plain_integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise _OddValueError
    return int(digits)


_PLAIN = json.JSONDecoder(
    object_pairs_hook=_plain_object,
    parse_constant=_plain_constant,
    parse_float=_plain_float,
    parse_int=_plain_integer,
)


def _read_and_explain(text: str, position: int) -> tuple[JSON, int]:
    problems: list[str] = []

    def read_object(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
        value = dict(pairs)
        if len(value) != len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            problems.append(f"the key {quote(twice, 40)} appears twice in one object")
        return value

    def read_constant(word: str) -> None:
        problems.append(f"{word} is not a JSON value")

    def read_float(digits: str) -> float:
        value = float(digits)
        if math.isinf(value):
            problems.append(f"the number {quote(digits, 40)} is too large")
        return value

    def read_integer(digits: str) -> int:
        if len(digits) > MAX_DIGITS:
            problems.append(f"an integer has more than {MAX_DIGITS} digits")
            return 0
        return int(digits)

    decoder = json.JSONDecoder(
        object_pairs_hook=read_object,
        parse_constant=read_constant,
        parse_float=read_float,
        parse_int=read_integer,
    )
    try:
        value: JSON
        value, end = decoder.raw_decode(text, position)
    except json.JSONDecodeError as error:
        _explain(text, position)
        # Reached only if the two readings disagree, which a property test denies.
        raise InvalidJSONError("the text is not JSON", error.pos) from None
    except RecursionError:
        raise InvalidJSONError(_TOO_DEEP, position) from None
    if not _is_shallow(value):
        raise InvalidJSONError(_TOO_DEEP, position)
    if problems:
        raise InvalidJSONError(problems[0], position, end)
    return value, end


def read_json(text: str) -> JSON:
    """Read a text that is one JSON value and nothing else but white space.

    Raises:
        InvalidJSONError: The text is something else.
    """
    value, end = read_json_at(text, skip_space(text, 0))
    end = skip_space(text, end)
    if end != len(text):
        raise InvalidJSONError("something follows the JSON value", end)
    return value


def write_json(value: JSON) -> str:
    """Return a value as one line of JSON that `read_json` turns back into the same value.

    Characters stay readable. A surrogate without its partner is written as an escape, so that the line can be encoded
    as UTF-8; only two surrogates that happen to stand side by side without forming one character cannot.

    Raises:
        ValueError: JSON cannot carry the value: it holds a number that is not finite, or is nested too deeply.
    """
    try:
        line = _WRITER.encode(value)
    except RecursionError:
        raise ValueError(f"the value is nested more than {MAX_DEPTH} deep") from None
    if line.count("{") + line.count("[") > MAX_DEPTH and not _is_shallow(value):
        raise ValueError(f"the value is nested more than {MAX_DEPTH} deep")
    return _escape_surrogates(line)


def place(text: str, position: int) -> str:
    """Return where an index lies, as `line 2, column 7`, both counted from 1."""
    before = text.rfind("\n", 0, position)
    return f"line {text.count(chr(10), 0, position) + 1}, column {position - before}"


_WRITER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def _escape_surrogates(line: str) -> str:
    if line.isascii():
        return line
    # A low surrogate after a high one stays as it is: two escapes side by side would be read as one character.
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", line)


def _is_shallow(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return True
    return False


def _explain(text: str, position: int) -> None:
    # The standard library words and places the same fault differently from release to release, and what a model reads
    # must not depend on the release; so a second, slower reading finds the fault.
    start = position
    closers: list[str] = []
    wanted = "value"
    while True:
        position = skip_space(text, position)
        char = text[position : position + 1]
        if not char:
            raise InvalidJSONError("the text ends before the JSON does", position)
        if char in "]}" and closers and closers[-1] == char and wanted in {"next", "first"}:
            closers.pop()
            position, wanted = position + 1, "next"
        elif wanted == "next":
            position, wanted = _separator(char, closers, position)
        elif wanted == "colon":
            if char != ":":
                raise InvalidJSONError("a colon is missing after a key", position)
            position, wanted = position + 1, "value"
        elif wanted == "key" or (wanted == "first" and closers[-1] == "}"):
            if char != '"':
                _refuse_key(char, position)
            position, wanted = _after_string(text, position), "colon"
        elif char in "{[":
            closers.append("}" if char == "{" else "]")
            if len(closers) > MAX_DEPTH:
                raise InvalidJSONError(_TOO_DEEP, start)
            position, wanted = position + 1, "first"
        else:
            position, wanted = _after_scalar(text, position, char), "next"
        if wanted == "next" and not closers:
            return


def _separator(char: str, closers: list[str], position: int) -> tuple[int, str]:
    if char != ",":
        raise InvalidJSONError(f"a comma or {closers[-1]} is missing", position)
    return position + 1, "key" if closers[-1] == "}" else "value"


def _refuse_key(char: str, position: int) -> NoReturn:
    if char == "}":
        raise InvalidJSONError("a comma stands before }", position)
    raise InvalidJSONError("a key in double quotes is expected", position)


def _after_scalar(text: str, position: int, char: str) -> int:
    if char == '"':
        return _after_string(text, position)
    match = _SCALAR.match(text, position)
    if match is None:
        reason = "a comma stands before ]" if char == "]" else "a value is expected"
        raise InvalidJSONError(reason, position)
    return match.end()


def _after_string(text: str, position: int) -> int:
    match = _STRING.match(text, position)
    end = position + 1 if match is None else match.end()
    char = text[end : end + 1]
    if char == '"':
        return end + 1
    if not char:
        raise InvalidJSONError("a text in double quotes is never closed", position)
    if char == "\\":
        raise InvalidJSONError("a backslash must be written \\\\ or begin an escape such as \\n", end)
    name = {"\n": "a line break, to be written \\n,", "\t": "a tab, to be written \\t,"}.get(
        char, "a control character"
    )
    raise InvalidJSONError(f"{name} stands inside a text in double quotes", end)
