"""What comes of bad input."""

from __future__ import annotations

from bench.facts import Facts
from reports.stone.table import Table, tabulate


def render(facts: Facts) -> Table:
    """Return what each framework does by itself, and with a compiled environment."""
    return tabulate(
        facts,
        "bad-input",
        "Bad input: by itself, and compiled",
        "Each situation twice: with the Wordle that is written by hand in the style of the framework's documentation, and with the "
        "compiled one, both behind the framework's own server and client where it has them, with the limits that "
        "measurements set. Answers are shown by their first line. Codes of errors are those of the compiled environment: what a framework "
        "says by itself is quoted, and no code is read into it. For an exception in a tool, and where no hand-written Wordle "
        "can wait for it, what a framework does by itself is what the probe of a trouble shows, with what it was given before the colon. Sentences about the game, "
        "such as that a guess has five letters or that the episode is over, are written into the Wordle by its author. That an episode goes on was seen "
        "by a right guess after the wrong one. Where the hand-written Wordle is stepped without a server, as Verifiers' is, the words "
        "are those of its tools and of whoever calls them. Whoever steps an object of the same process has no connection and no server "
        "that could be lost.",
    )
