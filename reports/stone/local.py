"""What a framework is on a machine."""

from __future__ import annotations

from bench.facts import Facts
from reports.stone.table import Table, tabulate

ROWS = (
    "Python",
    "distributions",
    "largest distributions",
    "size on disk",
    "install",
    "import",
    "other releases that are played here",
)


def render(facts: Facts) -> Table:
    """Return what installing and importing takes."""
    return tabulate(
        facts,
        "local",
        "On a machine",
        "Each release was installed by uv into an empty environment of its own, at the versions that this project pins, and imported in "
        "fresh processes as its hand-written Wordle imports it: the median, with the range. Sizes are of the files, in millions "
        "of bytes. Times are of a machine that did other work too, so that small differences mean nothing. All of it is of the release "
        "in the head of the column; other releases ask for other Pythons, and are played where this project supports them.",
        ROWS,
    )
