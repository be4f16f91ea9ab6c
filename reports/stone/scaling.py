"""Many sessions at once."""

from __future__ import annotations

from bench.facts import Facts
from reports.stone.table import Table, tabulate

ROWS = (
    "model",
    "isolation",
    "ceiling",
    "ceiling per core",
    "success alone",
    "throughput",
    "memory per session",
)


def render(facts: Facts) -> Table:
    """Return what is known of many sessions of each framework."""
    return tabulate(
        facts,
        "scaling",
        "Scaling: many sessions at once",
        "How a framework runs many sessions, and how many were held open at once before a limit was broken, in runs that are published "
        "with their records. A ceiling is a number of one machine, which carried the load generator too: compare it with "
        "figures of other machines only where a cell says that the conditions are the same. Where no run is published, there "
        "is no evidence. Figures of others stand below, with their date, and with the reason why they do or do not compare.",
        ROWS,
    )
