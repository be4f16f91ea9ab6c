"""What a model is told of tools."""

from __future__ import annotations

from bench.facts import Facts
from reports.stone.table import Table, tabulate


def render(facts: Facts) -> Table:
    """Return what arrives of tools of every kind."""
    return tabulate(
        facts,
        "tools",
        "Tools: what arrives at the model",
        "One tool for each kind of parameter went through the adapter of each framework, and what a model is told of it was compared "
        "with what was sent, key by key. Kept means that name, description and schema are the same; otherwise the paths "
        "are named that are missing, changed or new. What it says is what a compiled environment gives: adapters hand schemas on "
        "whole, also where a framework's own way to declare a tool would lose a part.",
    )
