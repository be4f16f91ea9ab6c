"""Same concept, six names."""

from __future__ import annotations

from bench.facts import Facts
from reports.stone.table import Table, tabulate


def render(facts: Facts) -> Table:
    """Return the word list."""
    return tabulate(
        facts,
        "words",
        "Same concept, six names",
        "A row is a word of this project. A cell is what the framework calls it, with the symbols that the installed release has "
        "for it, and the line of the adapter where one becomes the other. What the adapter puts somewhere is the adapter's own, and "
        "no word of the framework.",
    )
