"""What a model is told of tools."""

from __future__ import annotations

from bench.facts import Facts
from reports.stone.table import Table, tabulate


def render(facts: Facts) -> Table:
    """Return what frameworks keep of a signature, and what arrives of a compiled environment."""
    return tabulate(
        facts,
        "tools",
        "Tools: what becomes of a signature",
        "The rows of the own way declare one tool, with the same parameters, as each framework has it, and look in the schema that a "
        "policy is shown for every part of them. Lost means that the schema does not say it, and where a type stands behind it, "
        "that this type is all it says. No schema means that the framework makes none of a signature, and that authors write what "
        "a policy is shown by hand. The last row is another thing: one tool for each kind of parameter through the adapter of each "
        "framework. It says what a compiled environment gives, and is alike because adapters hand schemas on whole.",
    )
