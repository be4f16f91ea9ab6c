"""What the published tables say of a framework is what its stack says today, symbol by symbol."""

from __future__ import annotations

import asyncio

import pytest

from bench.client import start_worker
from bench.facts import FACTS_FILE, Fact, Facts, Probe, compare, read_facts
from bench.stacks import ROOT, adapter_names, build_stack, find_stack, releases_of
from bench.stone.gather import gather
from bench.stone.subject import UnresolvedSymbols, resolve

PUBLISHED = ROOT / "reports" / "published" / "rosetta" / FACTS_FILE


def needs_installation(fact: Fact) -> bool:
    """Say whether a fact rests on a fresh installation, which is not made here."""
    return any(isinstance(one, Probe) and one.name == "install" for one in fact.evidence)


@pytest.mark.parametrize("name", adapter_names())
def test_the_stack_says_what_is_published(name):
    stack = find_stack(name)
    for release in releases_of(name):
        build_stack(release)
    found = asyncio.run(gather([stack], install=False))
    published = read_facts(PUBLISHED)
    tables = {fact.table for fact in found.facts}
    mine = tuple(
        fact for fact in published.of_framework(name) if fact.table in tables and not needs_installation(fact)
    )
    assert mine
    changes = compare(Facts(published.header, mine), found)
    assert [(change.table, change.row, change.where) for change in changes] == []


def test_a_symbol_that_the_release_does_not_have_is_named():
    stack = find_stack(adapter_names()[0])
    build_stack(stack)

    async def ask():
        async with start_worker(stack.python, stack.worker) as worker:
            await resolve(worker, ["json:dumps", "json:no_such_name"])

    with pytest.raises(UnresolvedSymbols, match=r"no_such_name"):
        asyncio.run(ask())
