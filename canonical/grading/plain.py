"""Plain data as JSON and back with exact types: how values cross from the code of an agent to the tests.

This module also runs inside sandboxes, so it imports the standard library alone, and of that what starts fast: grading a
task starts dozens of processes.
"""

from __future__ import annotations

import base64
import binascii
import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_DEPTH = 100
_SMALL = 1 << 63


class NotPlainError(ValueError):
    """Report a value that is no plain data, or a text that holds none."""


def dump(value: Any) -> str:
    """Return plain data as a line of text.

    Plain data is None, bool, int, float, str and bytes, and lists, tuples, sets and dicts of it; of exactly these types.

    Raises:
        NotPlainError: The value holds something else, contains itself, or is nested more than 100 deep.
    """
    return json.dumps(_encode(value, 0), separators=(",", ":"))


def load(text: str) -> Any:
    """Return a new value, equal to the one that `dump` was given.

    Raises:
        NotPlainError: The text is not one that `dump` writes.
    """
    try:
        return _decode(json.loads(text), 0)
    except NotPlainError:
        raise
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise NotPlainError(f"this is no plain data: {type(error).__name__}") from None


def same(one: Any, other: Any) -> bool:
    """Return whether two values are the same plain data: same types, same values, at every depth.

    NaN is the same as NaN; the order of sets and of the keys of dicts does not matter. Nothing but plain data is ever
    the same as anything, and no method of either value is trusted.
    """
    try:
        return bool(_canonical(one, 0) == _canonical(other, 0))
    except NotPlainError:
        return False


def _encode(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise NotPlainError(f"the value is nested more than {MAX_DEPTH} deep")
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if -_SMALL <= value < _SMALL else ["i", hex(value)]
    if kind is float:
        return ["f", value.hex()]
    if kind is bytes:
        return ["b", base64.b64encode(value).decode("ascii")]
    if kind is list or kind is tuple or kind is set:
        return [kind.__name__[0], [_encode(item, depth + 1) for item in value]]
    if kind is dict:
        return ["d", [[_encode(key, depth + 1), _encode(item, depth + 1)] for key, item in value.items()]]
    raise NotPlainError(f"a value of type {kind.__name__} is no plain data")


def _decode(stored: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise NotPlainError(f"the value is nested more than {MAX_DEPTH} deep")
    if stored is None or type(stored) in (bool, int, str):
        return stored
    if type(stored) is not list or len(stored) != 2 or type(stored[0]) is not str:
        raise NotPlainError("this is no plain data")
    tag, inner = stored
    if tag in {"i", "f", "b"} and type(inner) is str:
        try:
            if tag == "b":
                return base64.b64decode(inner, validate=True)
            return int(inner, 16) if tag == "i" else float.fromhex(inner)
        except (ValueError, binascii.Error):
            raise NotPlainError("this is no plain data") from None
    if tag in {"l", "t", "s"} and type(inner) is list:
        items = [_decode(item, depth + 1) for item in inner]
        return items if tag == "l" else tuple(items) if tag == "t" else set(items)
    if tag == "d" and type(inner) is list and all(type(pair) is list and len(pair) == 2 for pair in inner):
        return {_decode(key, depth + 1): _decode(item, depth + 1) for key, item in inner}
    raise NotPlainError("this is no plain data")


def _canonical(value: Any, depth: int) -> Any:
    """Return a value of JSON whose equality is that of the plain data."""
    if depth > MAX_DEPTH:
        raise NotPlainError("nested too deeply")
    kind = type(value)
    if kind is bool:
        return ["true" if value else "false"]
    if kind is int:
        return ["i", value]
    if kind is float:
        # Zero has one meaning with and without its sign.
        return ["f", (value + 0.0).hex()]
    if kind is list or kind is tuple:
        return [kind.__name__[0], [_canonical(item, depth + 1) for item in value]]
    if kind is set:
        return ["s", sorted(json.dumps(_canonical(item, depth + 1)) for item in value)]
    if kind is dict:
        pairs = [
            [json.dumps(_canonical(key, depth + 1)), _canonical(item, depth + 1)]
            for key, item in value.items()
        ]
        return ["d", sorted(pairs, key=lambda pair: pair[0])]
    return _encode(value, depth)
