"""The five stages."""

from __future__ import annotations

from bench.facts import Facts
from canonical.landscape import StageName
from reports.stone.table import Table, tabulate


def render(facts: Facts) -> Table:
    """Return who covers which stage of training."""
    return tabulate(
        facts,
        "stages",
        "The five stages, and who covers which",
        "From tasks to a trained model there are five stages. Covered: the package has what it takes, by the symbols that are "
        "named. In part: it has something, and what it lacks was searched for among the names of all classes and functions of the "
        "package, and not found. Left to others: it has nothing for the stage, by the same search. Other packages of the same "
        "makers are not looked at.",
        StageName,
    )
