"""Tasks and splits."""

from __future__ import annotations

from bench.facts import Facts
from reports.stone.table import Table, tabulate


def render(facts: Facts) -> Table:
    """Return how tasks are listed and chosen."""
    return tabulate(
        facts,
        "tasks",
        "Tasks and splits",
        "How a task is chosen, as conformance has proven it, and what a user of the framework who lists the tasks of Wordle sees, "
        "compared with their definition.",
    )
