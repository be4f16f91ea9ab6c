"""When the reward arrives, and who reads what."""

from __future__ import annotations

from bench.facts import Facts
from reports.stone.table import Table, tabulate


def render(facts: Facts) -> Table:
    """Return what trainers of different habits read of the same two episodes."""
    return tabulate(
        facts,
        "reward",
        "Reward: when it arrives, and who reads what",
        "The same two episodes through the adapter of each framework: one of an environment that pays at every step, and one of Wordle, "
        "which pays at the end. The first four calls, or two, end the episode; one more is made after the end. A trainer that "
        "sums adds up all of them; one that takes the last value takes that of the step that ends the episode. The return is what "
        "the adapter reads, and the cell says whose it is: the framework's own number, or a sum that the adapter makes of the "
        "rewards. Where the reward of a step is emulated, the framework itself has none on "
        "the trace, and the adapter carries it as the first row says. Columns are alike because adapters make them so: they say "
        "what a compiled environment gives, not what frameworks do with environments written for them.",
    )
