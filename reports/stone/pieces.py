"""The eleven pieces."""

from __future__ import annotations

from bench.facts import Facts
from canonical.stone import PieceName
from reports.stone.table import Table, tabulate


def render(facts: Facts) -> Table:
    """Return who has an interface for which piece."""
    return tabulate(
        facts,
        "pieces",
        "The eleven pieces",
        "Every environment has these pieces, in whatever framework. Native: the framework has an interface for it, whose symbols the "
        "installed release has. Convention: it is agreed how to do it, and nothing enforces it. Bring your own: an author "
        "does it alone. Each cell names the probe, scenario or test that shows it.",
        PieceName,
    )
