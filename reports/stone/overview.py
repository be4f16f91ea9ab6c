"""The global table: ten dimensions on one sheet, every cell made of cells of the other tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.facts import Evidence, Fact, Facts
from reports.stone.table import Cell, Row, Table

LOST = "own way: lost of the signature"
"""The row of the table of tools that sums up what the framework's own ways lose."""

Saying = Callable[[Fact], str]


def _whole(fact: Fact) -> str:
    return fact.value


def _counted(what: str) -> Saying:
    """Say how many there are, of a cell that begins with a number."""
    return lambda fact: f"{fact.value.partition(':')[0]} {what}"


def _named(what: str) -> Saying:
    return lambda fact: f"{what} {fact.value}"


def _each_named(what: str) -> Saying:
    """Say it of each line of a cell, which has one for each way."""
    return lambda fact: "\n".join(f"{what} {line}" for line in fact.value.splitlines())


def _first_line(fact: Fact) -> str:
    return f"`{fact.value.splitlines()[-1]}`"


@dataclass(frozen=True, slots=True)
class Dimension:
    """One row of the sheet.

    Attributes:
        name: What it is called.
        table: The table that tells more.
        parts: Table and row that it is made of, and how each is said.
    """

    name: str
    table: str
    parts: tuple[tuple[str, str, Saying], ...]


DIMENSIONS = (
    Dimension(
        "code you write",
        "code",
        (
            ("code", "base class", _first_line),
            ("code", "lines with code", _counted("lines for Wordle")),
            ("code", "concepts of the framework", _counted("concepts")),
        ),
    ),
    Dimension(
        "server or in process",
        "transport",
        (
            ("pieces", "transport", _whole),
            ("transport", "bytes of an episode", _named("bytes of an episode:")),
            ("transport", "authentication", _named("authentication:")),
        ),
    ),
    Dimension(
        "tools",
        "tools",
        (("pieces", "tools", _whole), ("tools", LOST, _each_named("lost of a signature:"))),
    ),
    Dimension(
        "reward",
        "reward",
        (("pieces", "reward", _whole), ("reward", "reward of a step", _named("reward of a step:"))),
    ),
    Dimension(
        "loop",
        "loop",
        (("pieces", "episode control", _whole), ("loop", "signal of the end", _named("signal of the end:"))),
    ),
    Dimension("tasks", "stages", (("stages", "tasks", _whole), ("tasks", "splits", _named("splits:")))),
    Dimension(
        "ecosystem and maturity",
        "ecosystem",
        (
            ("ecosystem", "maker", _whole),
            ("ecosystem", "licence", _named("licence")),
            ("ecosystem", "last release", _named("last release")),
            ("ecosystem", "releases", _named("releases:")),
            ("ecosystem", "catalogue", _whole),
        ),
    ),
    Dimension(
        "cost of a new environment",
        "new-environment",
        (
            ("new-environment", "scaffolder", _named("scaffold:")),
            ("new-environment", "lines with code", _named("lines to begin with:")),
            ("new-environment", "from an empty folder to the first passing test", _whole),
        ),
    ),
    Dimension(
        "local and cluster",
        "local",
        (
            ("local", "Python", _named("Python")),
            ("local", "distributions", _counted("distributions")),
            ("local", "size on disk", _whole),
            ("local", "import", _named("import")),
        ),
    ),
    Dimension(
        "scaling",
        "scaling",
        (
            ("scaling", "ceiling", _named("ceiling")),
            ("scaling", "memory per session", _named("per session")),
            ("scaling", "model", _whole),
        ),
    ),
)
"""The ten dimensions, in the order of a reader."""


def render(facts: Facts) -> Table:
    """Return the sheet."""
    known = {fact.cell: fact for fact in facts.facts}
    return Table(
        "overview",
        "Overview: ten dimensions on one sheet",
        "Each cell is made of cells of other tables, whose evidence and kinds it carries; the table that tells more is linked, and says "
        "what compares and what does not. Where none of them knows anything, there is no evidence. Nothing is ranked, and nothing "
        "is added up over frameworks. These cells are no facts of their own, and are not in facts.jsonl.",
        tuple(subject.title for subject in facts.subjects),
        tuple(subject.release for subject in facts.subjects),
        tuple(
            Row(one.name, tuple(_cell(one, subject.framework, known) for subject in facts.subjects))
            for one in DIMENSIONS
        ),
    )


def _cell(dimension: Dimension, framework: str, known: dict[tuple[str, str, str], Fact]) -> Cell:
    found = [
        (fact, say)
        for table, row, say in dimension.parts
        if (fact := known.get((table, row, framework))) is not None
    ]
    if not found:
        return Cell()
    evidence: dict[Evidence, None] = dict.fromkeys(one for fact, _ in found for one in fact.evidence)
    return Cell(
        "\n".join(say(fact) for fact, say in found),
        ", ".join(dict.fromkeys(fact.kind for fact, _ in found)),
        tuple(evidence),
        dimension.table,
    )
