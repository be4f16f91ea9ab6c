"""Glob patterns over paths, matched in time that grows with the product of both lengths and no faster.

This module also runs inside sandboxes, so it imports the standard library alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

MAX_ALTERNATIVES = 64


def matches(pattern: str, path: str) -> bool:
    """Return whether a path matches a glob.

    `*` and `?` stay within a name, `[a-z]` and `[!a-z]` stand for one character, `{a,b}` for either text, and `**` as a
    whole name for any number of folders, also none. Names that begin with a dot are names like others.
    """
    names = path.split("/")
    return any(_match(parts, names, "**", _name_matches) for parts in _alternatives(pattern))


def find_flaw(pattern: str) -> str | None:
    """Return why a glob that matches nothing is unlikely to say what was meant, or None."""
    if pattern.startswith("/"):
        return "the pattern begins with a slash, and paths are relative to the folder that is searched"
    if ".." in pattern.split("/"):
        return "the pattern leads out of the folder that is searched, which nothing below it matches"
    expanded = _expand(pattern)
    if any("{" in one for one in expanded):
        return "a { in the pattern is never closed, so it stands for itself"
    if any("[" in _tokens(part) for one in expanded for part in one.split("/")):
        return "a [ in the pattern is never closed, so it stands for itself"
    return None


@cache
def _alternatives(pattern: str) -> tuple[tuple[Any, ...], ...]:
    parts = (one.split("/") for one in _expand(pattern))
    return tuple(
        tuple(part if part == "**" else _tokens(part) for part in one if part not in {"", "."})
        for one in parts
    )


def _expand(pattern: str) -> list[str]:
    done: list[str] = []
    waiting = [pattern]
    while waiting and len(done) + len(waiting) <= MAX_ALTERNATIVES:
        one = waiting.pop()
        stop = one.find("}")
        start = one.rfind("{", 0, stop) if stop >= 0 else -1
        if start < 0:
            done.append(one)
        else:
            waiting.extend(
                one[:start] + inner + one[stop + 1 :] for inner in one[start + 1 : stop].split(",")
            )
    return done or [pattern]


def _tokens(part: str) -> tuple[Any, ...]:
    tokens: list[Any] = []
    index = 0
    while index < len(part):
        stop = part.find("]", index + 2 + part.startswith("[!", index)) if part[index] == "[" else -1
        if stop < 0:
            tokens.append(part[index])
            index += 1
        else:
            inner = part[index + 1 : stop]
            tokens.append((inner.startswith("!"), _ranges(inner.removeprefix("!"))))
            index = stop + 1
    return tuple(tokens)


def _ranges(inner: str) -> tuple[tuple[str, str], ...]:
    ranges, index = [], 0
    while index < len(inner):
        if inner[index + 1 : index + 2] == "-" and index + 2 < len(inner):
            ranges.append((inner[index], inner[index + 2]))
            index += 3
        else:
            ranges.append((inner[index], inner[index]))
            index += 1
    return tuple(ranges)


def _name_matches(tokens: Any, name: str) -> bool:
    return tokens != "**" and _match(tokens, name, "*", _character_matches)


def _character_matches(token: Any, character: str) -> bool:
    if isinstance(token, str):
        return token in ("?", character)
    is_negated, ranges = token
    return any(low <= character <= high for low, high in ranges) is not is_negated


def _match(
    pattern: Sequence[Any], items: Sequence[str], star: str, equal: Callable[[Any, str], bool]
) -> bool:
    # Only the last star has to be tried again: what stood before it has matched as early as it can.
    place = index = 0
    star_at, resume = -1, 0
    while index < len(items):
        if place < len(pattern) and pattern[place] == star:
            star_at, resume = place, index
            place += 1
        elif place < len(pattern) and equal(pattern[place], items[index]):
            place += 1
            index += 1
        elif star_at >= 0:
            resume += 1
            place, index = star_at + 1, resume
        else:
            return False
    return all(part == star for part in pattern[place:])
