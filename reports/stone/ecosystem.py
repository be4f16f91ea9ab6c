"""Who stands behind a framework."""

from __future__ import annotations

from bench.facts import Facts
from reports.stone.table import Table, tabulate

ROWS = (
    "maker",
    "licence",
    "releases",
    "last release",
    "catalogue",
    "who uses it",
)


def render(facts: Facts) -> Table:
    """Return makers, releases, catalogues and users."""
    return tabulate(
        facts,
        "ecosystem",
        "Ecosystem: makers, releases, catalogues, users",
        "Releases are those that the package index lists of the distribution in use here, older names of the project not among them; "
        "the rate is over the time from the first of them until the facts were gathered. The catalogue is what the installed package holds. Who makes and "
        "who uses a framework is what its makers say, with the date of the source.",
        ROWS,
    )
