"""Who owns the loop, and what stops it."""

from __future__ import annotations

from bench.facts import Facts
from reports.stone.table import Table, tabulate


def render(facts: Facts) -> Table:
    """Return what says that an episode is over, when, and to whom."""
    return tabulate(
        facts,
        "loop",
        "Loop and stop signals",
        "What says in each framework that an episode is over, and how finely; with which answer it was heard in two episodes of Wordle, "
        "one that is solved and one whose turns are used up; and who may own the loop that asks the model and carries out "
        "what it writes. A trainer owns it where it steps; an environment, where it runs agents itself; a harness, where it "
        "stands between a model and an environment and belongs to neither. What is tried is tried with a compiled environment: "
        "where a way to end is emulated, the framework itself has no word for it. Terminated, truncated and the causes behind a colon are "
        "words of the compiled environment in every column.",
        (
            "signal of the end",
            "heard of the end",
            "heard when the turns are used up",
            "truncated, or terminated",
            "why it has ended",
            "loop of the trainer",
            "loop of the environment",
            "loop of the harness",
        ),
    )
