"""What a table of the stone is: rows of cells, one column per framework, each cell with what shows it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bench.facts import Evidence, Fact, Facts

NO_EVIDENCE = "no evidence"
"""What stands in a cell of which no fact says anything."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One field of a table.

    Attributes:
        value: What a person reads.
        kind: How it came about; several, with commas between them, where it is made of several facts; empty where there is no
            fact.
        evidence: What shows it; none where there is no fact.
        table: Name of the table that tells more; empty where this is the one.
    """

    value: str = NO_EVIDENCE
    kind: str = ""
    evidence: tuple[Evidence, ...] = ()
    table: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its name, and a cell for each column."""

    name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        name: What its files are called.
        title: What it is called.
        about: What its rows and cells mean, in a few sentences.
        columns: The titles of the frameworks.
        releases: Their releases, in the same order.
        rows: The rows.
        code: Whether values are source, and not sentences.
    """

    name: str
    title: str
    about: str
    columns: tuple[str, ...]
    releases: tuple[str, ...]
    rows: tuple[Row, ...]
    code: bool = False

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ValueError(f"table {self.name}: row {row.name} has {len(row.cells)} cells")


def tabulate(
    facts: Facts, name: str, title: str, about: str, rows: Iterable[str] = (), *, code: bool = False
) -> Table:
    """Return the table of all facts of a name.

    Args:
        facts: The facts.
        name: Name of the table in the facts.
        title: What it is called.
        about: What its rows and cells mean.
        rows: The rows that it must have, in order, whether there are facts or not; others follow as they come.
        code: Whether values are source.
    """
    known = {(fact.row, fact.framework): fact for fact in facts.of(name)}
    names = dict.fromkeys([*rows, *(fact.row for fact in facts.of(name))])
    return Table(
        name,
        title,
        about,
        tuple(subject.title for subject in facts.subjects),
        tuple(subject.release for subject in facts.subjects),
        tuple(
            Row(row, tuple(_cell(known.get((row, subject.framework))) for subject in facts.subjects))
            for row in names
        ),
        code,
    )


def _cell(fact: Fact | None) -> Cell:
    return Cell() if fact is None else Cell(fact.value, fact.kind, fact.evidence)
