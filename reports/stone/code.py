"""What code one writes."""

from __future__ import annotations

from bench.facts import Facts
from reports.stone.table import Table, tabulate

ROWS = (
    "base class",
    "tool declaration",
    "what gives the reward",
    "entry point",
    "files",
    "lines with code",
    "concepts of the framework",
    "names of other packages",
)


def render(facts: Facts) -> Table:
    """Return the parts and counts of the hand-written Wordles."""
    return tabulate(
        facts,
        "code",
        "What code you write",
        "The same Wordle, written by hand for each framework in its documented style, read from its source. Lines with code are "
        "those that hold more than a comment or documentation; the rules of the game are among them, the same for all "
        "six. A concept is a name of the framework that the file imports or reaches through an imported module.",
        ROWS,
        code=True,
    )
