"""Symbols: which names of a framework this project uses or speaks of, and what they are in a stack."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import protocol
from bench.client import Worker
from bench.stacks import Stack, adapters_folder
from bench.versions.cells import SymbolState


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
