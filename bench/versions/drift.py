"""Drift: what happened to the symbols in use, and to the messages of an episode, from one release to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import groupby, pairwise

from bench.versions.cells import Cell, Frame, SymbolState
from canonical.content import JSON


class Shift(StrEnum):
    """Name what happened from one release to the next."""

    APPEARED = "appeared"
    VANISHED = "vanished"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class SymbolChange:
    """Hold what happened to a symbol.

    Attributes:
        name: Module and qualified name.
        shift: What happened.
        before: Its signature in the earlier release, or its kind where it has none; empty where it was not there.
        after: The same in the later release.
    """

    name: str
    shift: Shift
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class FrameChange:
    """Hold what happened to a field of a message, or to a whole message.

    Attributes:
        frame: The message.
        field: The place in it; empty where the whole message appeared or vanished.
        shift: What happened.
        before: The value in the earlier release, the first where there are several; empty where it was not there.
        after: The same in the later release.
        times: In how many messages of this name.
    """

    frame: str
    field: str
    shift: Shift
    before: str = ""
    after: str = ""
    times: int = 1


def changes(before: Sequence[SymbolState], after: Sequence[SymbolState]) -> list[SymbolChange]:
    """Return what happened to the symbols that both releases were asked for, in the order of the later one."""
    earlier = {one.name: one for one in before}
    found = []
    for later in after:
        former = earlier.get(later.name)
        if former is None or former == later:
            continue
        shift = Shift.APPEARED if not former.there else Shift.VANISHED if not later.there else Shift.CHANGED
        found.append(SymbolChange(later.name, shift, _shape(former), _shape(later)))
    return found


def _shape(state: SymbolState) -> str:
    return state.signature or state.what if state.there else ""


def frame_changes(before: Sequence[Frame], after: Sequence[Frame]) -> list[FrameChange]:
    """Return what happened to the messages of an episode, in their order; what happened to several alike, once."""
    found: dict[tuple[str, str, Shift], FrameChange] = {}
    for one in _frame_changes(before, after):
        key = (one.frame, one.field, one.shift)
        found[key] = replace(found[key], times=found[key].times + 1) if key in found else one
    return list(found.values())


def _frame_changes(before: Sequence[Frame], after: Sequence[Frame]) -> Iterator[FrameChange]:
    matcher = SequenceMatcher(None, [one.name for one in before], [one.name for one in after], autojunk=False)
    for kind, low, high, other_low, other_high in matcher.get_opcodes():
        if kind == "equal":
            for earlier, later in zip(before[low:high], after[other_low:other_high], strict=True):
                yield from _field_changes(earlier, later)
            continue
        yield from (FrameChange(one.name, "", Shift.VANISHED) for one in before[low:high])
        yield from (FrameChange(one.name, "", Shift.APPEARED) for one in after[other_low:other_high])


def _field_changes(before: Frame, after: Frame) -> Iterator[FrameChange]:
    for field in dict.fromkeys([*before.fields, *after.fields]):
        earlier, later = before.fields.get(field), after.fields.get(field)
        if earlier == later:
            continue
        shift = Shift.APPEARED if earlier is None else Shift.VANISHED if later is None else Shift.CHANGED
        yield FrameChange(after.name, field, shift, earlier or "", later or "")


def drifts(cells: Sequence[Cell]) -> list[tuple[Cell, Cell, list[SymbolChange]]]:
    """Return, for neighbouring releases of one package that could be looked into, what happened to the symbols in use."""
    # Symbols are those of an installation; what environments become there changes none.
    return [
        (before, after, changes(before.symbols, after.symbols))
        for before, after in _neighbours(cells, lambda one: bool(one.symbols))
    ]


def wire_drifts(cells: Sequence[Cell]) -> list[tuple[Cell, Cell, list[FrameChange]]]:
    """Return, for neighbouring releases of one package with a server, what happened to the messages of an episode."""
    return [
        (before, after, frame_changes(before.frames, after.frames))
        for before, after in _neighbours(cells, lambda one: bool(one.frames))
    ]


def drift_json(cells: Sequence[Cell]) -> dict[str, JSON]:
    """Return the drift of symbols and of the wire as JSON: for each, a list of pairs of neighbouring releases."""
    return {
        "symbols": [_pair(before, after, found) for before, after, found in drifts(cells)],
        "wire": [_pair(before, after, found) for before, after, found in wire_drifts(cells)],
    }


def _pair(before: Cell, after: Cell, found: Sequence[SymbolChange | FrameChange]) -> JSON:
    return {"before": before.stack, "after": after.stack, "changes": [asdict(one) for one in found]}


def _neighbours(cells: Sequence[Cell], has: Callable[[Cell], bool]) -> Iterator[tuple[Cell, Cell]]:
    for _, mine in groupby(cells, key=lambda cell: cell.package):
        yield from pairwise({one.version: one for one in mine if has(one)}.values())
