"""Who can share an environment."""

from __future__ import annotations

from bench.facts import Facts
from reports.stone.table import Table, tabulate


def render(facts: Facts) -> Table:
    """Return which releases can be installed together."""
    return tabulate(
        facts,
        "sharing",
        "Who can share an environment",
        "Whether uv finds versions of everything for two releases together, on a Python; where it does not, its resolver's own words "
        "name the requirements that exclude each other. uv overlooks upper bounds on Python: where the metadata of a release exclude the "
        "Python and uv installs it all the same, the cell says both. The cells of a framework with itself say whether it can be installed "
        "there at all. That two can be installed together does not mean that anybody has tried them together.",
    )
