"""What a new environment costs."""

from __future__ import annotations

from bench.facts import Facts
from reports.stone.table import Table, tabulate

ROWS = (
    "scaffolder",
    "files",
    "lines with code",
    "lines to write before anything runs",
    "concepts of the framework",
    "from an empty folder to the first passing test",
    "what the first test tests",
)


def render(facts: Facts) -> Table:
    """Return what it takes until the first test of a new environment passes."""
    return tabulate(
        facts,
        "new-environment",
        "Cost of a new environment",
        "From an empty folder to the first test that passes, really run. Where a release brings a command that makes an environment, "
        "files and lines are what the command makes; elsewhere there is nothing to begin with, and the Wordle that this project has "
        "written by hand for the framework was copied. It is a whole game and no skeleton, so that the two kinds do not compare. Most of the time is imports. "
        "Processor time is of the command and the test together; the clock is that of a machine that did much else, and says little.",
        ROWS,
    )
