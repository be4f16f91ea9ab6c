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
        "How a task is chosen, as conformance has proven it, and what whoever lists the tasks of the compiled Wordle sees, compared with "
        "their definition. Where a framework lists no tasks by itself, the adapter does, and refuses in its own words: what the framework "
        "has of its own stands in the row of tasks in the eleven pieces.",
    )
