"""A framework in hand: its stack, a worker in it, and the symbols that its adapter names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from bench import facts, protocol
from bench.client import Worker, start_worker
from bench.facts import Evidence, Fact, Kind, Symbol
from bench.stacks import Stack, adapters_folder
from canonical.landscape import read_landscape
from canonical.stone import Stone


class UnresolvedSymbols(LookupError):  # noqa: N818 - named for what it is
    """Report symbols of an `adapter.toml` that the installed release does not have."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Hold a framework while facts about it are gathered.

    Attributes:
        stack: Its stack.
        worker: A worker in the stack.
        symbols: What the names in `adapter.toml` are in the installed release.
    """

    stack: Stack
    worker: Worker
    symbols: Mapping[str, Symbol]

    @property
    def name(self) -> str:
        """Folder name of the adapter."""
        return self.stack.adapter

    @property
    def folder(self) -> Path:
        """Folder of the adapter."""
        return adapters_folder() / self.stack.adapter

    @property
    def stone(self) -> Stone:
        """What its `adapter.toml` says under `[stone]`."""
        return self.stack.facts.stone

    @property
    def described(self) -> facts.Subject:
        """The framework as the header of a file of facts has it."""
        return facts.Subject(
            framework=self.name,
            title=self.stack.facts.title,
            release=self.stack.release.label,
            python=self.worker.started.python,
            repository=repository_of(self.stack),
        )

    def fact(  # noqa: PLR0917 - as the columns of a file of facts
        self,
        table: str,
        row: str,
        value: str,
        kind: Kind,
        evidence: Iterable[Evidence],
        data: JsonValue = None,
    ) -> Fact:
        """Return a fact about this framework."""
        return fact_of(self.stack, table, row, value, kind, evidence, data)


def fact_of(  # noqa: PLR0917 - as the columns of a file of facts
    stack: Stack,
    table: str,
    row: str,
    value: str,
    kind: Kind,
    evidence: Iterable[Evidence],
    data: JsonValue = None,
) -> Fact:
    """Return a fact about the framework of a stack."""
    return Fact(
        framework=stack.adapter, release=stack.release.label, table=table, row=row, value=value, kind=kind,
        evidence=tuple(evidence), data=data,
    )  # fmt: skip


def repository_of(stack: Stack) -> str | None:
    """Return where the source of a framework is public, or None where that is not known."""
    said = read_landscape(stack.features_file.parent).ecosystem
    return (said.repository if said else "") or None


@asynccontextmanager
async def take_in_hand(stack: Stack) -> AsyncIterator[Subject]:
    """Start a worker in a stack and resolve every symbol that its `adapter.toml` names.

    Raises:
        UnresolvedSymbols: A symbol does not resolve; the text names all of them, with the reasons.
        WorkerError: The worker does not start.
    """
    async with start_worker(stack.python, stack.worker, label=stack.label) as worker:
        yield Subject(stack, worker, await resolve(worker, stack.facts.stone.symbols))


async def resolve(worker: Worker, names: Sequence[str]) -> dict[str, Symbol]:
    """Return what names are in the stack of a worker.

    Raises:
        UnresolvedSymbols: One does not resolve; the text names all that do not, with the reasons.
    """
    if not names:
        return {}
    reply = await worker.request(
        protocol.Inspected, lambda seq: protocol.Inspect(seq=seq, names=list(names)), timeout_s=120
    )
    missing = [f"{one.name} ({one.missing})" for one in reply.symbols if one.missing is not None]
    if missing:
        raise UnresolvedSymbols(f"{worker.label} does not have: {'; '.join(missing)}")
    return {one.name: symbol_of(one) for one in reply.symbols}


def symbol_of(found: protocol.Inspection) -> Symbol:
    """Return what a name is as a piece of evidence."""
    return Symbol(
        name=found.name,
        distribution="" if found.distribution is None else f"{found.distribution} {found.version}",
        what=found.what or "value",
        signature=found.signature or "",
        file=found.file or "",
        line=found.line,
    )
