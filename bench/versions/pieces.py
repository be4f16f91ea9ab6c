"""Pieces: what can be asked of a release, checked by name before anything is installed."""

from __future__ import annotations

import re

from bench.conformance import TOUCHSTONE, plan_scenarios
from bench.scenarios import Fuzzer
from bench.stacks import Stack
from bench.versions.symbols import symbols_of
from canonical.adapter import Feature
from canonical.catalogue import load_environment

KINDS = ("symbol", "feature", "trouble")
_SYMBOL = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_FUZZED = re.compile(r"\bfuzz-\d")
_PREFIX = re.compile(r"(\w+):(?=\S)")


class PieceError(ValueError):
    """Report a piece that nothing has, and what there is."""


def check_piece(piece: str, stack: Stack, environment: str) -> None:
    """Refuse a piece that no release could have.

    Args:
        piece: `symbol:<module:name>`, `feature:<name>`, `trouble:<name>`, a text of a promise, or nothing for all promises.
        stack: A stack of the framework.
        environment: Name or path of what is played.

    Raises:
        PieceError: It is none of these, or there is no such feature, trouble or promise; the text lists what there is.
    """
    kind, _, name = piece.partition(":")
    if kind == "symbol":
        if not _SYMBOL.fullmatch(name):
            raise PieceError(
                f"{piece!r} names no symbol; write symbol:<module>:<name>, such as one of {_listed(symbols_of(stack))}"
            )
    elif kind == "feature":
        _among(name, "feature", [one.value for one in Feature])
    elif kind == "trouble":
        _among(name, f"trouble of {stack.facts.title}", list(stack.facts.stone.troubles))
    elif piece:
        known = promises(environment)
        if not any(piece in one or piece.startswith(one) for one in known) and not _FUZZED.search(piece):
            prefix = _PREFIX.match(piece)
            told = f"there is no kind of piece {prefix.group(1)!r}, and no" if prefix else "no"
            raise PieceError(
                f"{told} promise has {piece!r} in it; pieces are symbol:<module:name>, feature:<name>, trouble:<name>, or a "
                f"text of a promise, of which there are:\n{_listed(known, chr(10))}"
            )


def promises(environment: str) -> list[str]:
    """Return every promise that conformance tests with an environment, in its order."""
    told = []
    for source in (environment, TOUCHSTONE):
        played = load_environment(source)
        scenarios = [
            *plan_scenarios(played, source=source, episodes=1, seed=0),
            Fuzzer(played, 0).scenario(0),
        ]
        told += [f"{played.name} / {one.name}: {one.promise}" for one in scenarios]
    told += [f"feature {one.value}" for one in Feature]
    return list(dict.fromkeys([*told, "after all scenarios: closed sessions free everything"]))


def _among(name: str, what: str, known: list[str]) -> None:
    if name not in known:
        raise PieceError(f"there is no {what} {name!r}; there are {_listed(known)}")


def _listed(names: list[str] | tuple[str, ...], separator: str = ", ") -> str:
    return separator.join(names) or "none"
