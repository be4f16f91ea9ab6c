"""Symbols: which names of a framework this project uses or speaks of, what they are in a release, and what changed."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from bench import protocol
from bench.client import Worker
from bench.stacks import Stack, adapters_folder
from bench.versions.cells import SymbolState


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


def symbols_of(stack: Stack) -> tuple[str, ...]:
    """Return the names that matter to this project: those that `adapter.toml` speaks of, and those that the adapter imports."""
    facts = stack.facts
    own = {"canonical", "adapters", "bench"}
    watched = {name for name in facts.imports if name not in own}
    folder = adapters_folder() / stack.adapter
    imported = [
        name
        for file in sorted(folder.glob("*.py"))
        for name in _imports(file, {one for one in watched if one in _modules(stack)})
    ]
    return tuple(sorted({*facts.stone.symbols, *imported}))


def _modules(stack: Stack) -> set[str]:
    """Return the top-level modules that are the framework itself, as the symbols of `adapter.toml` begin."""
    return {name.partition(":")[0].partition(".")[0] for name in stack.facts.stone.symbols}


def _imports(file: Path, modules: set[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in modules:
            yield from (f"{node.module}:{one.name}" for one in node.names)


async def states(worker: Worker, names: Sequence[str]) -> tuple[SymbolState, ...]:
    """Return what names are in the stack of a worker."""
    if not names:
        return ()
    reply = await worker.request(
        protocol.Inspected, lambda seq: protocol.Inspect(seq=seq, names=list(names)), timeout_s=120
    )
    return tuple(
        SymbolState(
            name=one.name, there=one.missing is None, what=one.what or "", signature=one.signature or ""
        )
        for one in reply.symbols
    )


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
