"""Drift: what happened to the symbols in use from one release to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby, pairwise

from bench.versions.cells import Cell, SymbolState


class Shift(StrEnum):
    """Name what happened to a symbol from one release to the next."""

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


def drifts(cells: Sequence[Cell]) -> list[tuple[Cell, Cell, list[SymbolChange]]]:
    """Return, for neighbouring releases of one package that could be looked into, what happened to the symbols in use."""
    found = []
    for _, mine in groupby(cells, key=lambda cell: cell.package):
        # Symbols are those of an installation; what environments become there changes none.
        looked_into = list({one.version: one for one in mine if one.symbols}.values())
        found += [
            (before, after, changes(before.symbols, after.symbols)) for before, after in pairwise(looked_into)
        ]
    return found
