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
    "live episodes",
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
        "figures of other machines only where a cell says that the conditions are the same. Per core divides it by all cores of the "
        "machine, though the generator has its share of them and one event loop uses no more than one. What is stepped in process has no "
        "server to search: episodes were held alive and stepped in one process, whose figures are of another kind and do not compare with "
        "those of a server. Figures of a run of an older method say so. No evidence means that no published run has the figure, or that "
        "no figure of others is known. Figures of others stand below, with their date, and with the reason why they do or do not compare.",
        ROWS,
    )
