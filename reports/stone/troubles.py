"""What costs people time."""

from __future__ import annotations

from bench.facts import Code, Fact, Facts
from reports.stone.table import Cell, Row, Table


def render(facts: Facts) -> Table:
    """Return the troubles of each framework beside what its adapter does about them."""
    titles = {subject.framework: subject.title for subject in facts.subjects}
    return Table(
        "troubles",
        "Troubles: what costs people time",
        "Defects and surprises of the frameworks, each shown by a probe that ran on the installed release, and what the adapter "
        "does about it, with the line that does it. Where a public thread is known, it is named with its day; that none is named "
        "does not mean that there is none. A trouble is not a judgement: much of it is a choice that suits another use.",
        ("What happens", "What the adapter does"),
        ("on the installed release", "and where"),
        tuple(
            Row(f"{titles[fact.framework]}: {fact.row}", _cells(fact))
            for framework in titles
            for fact in facts.of("troubles")
            if fact.framework == framework
        ),
    )


def _cells(fact: Fact) -> tuple[Cell, Cell]:
    said = fact.data
    assert isinstance(said, dict)  # noqa: S101 - as bench.stone.troubles writes it
    ours = tuple(one for one in fact.evidence if isinstance(one, Code))
    theirs = tuple(one for one in fact.evidence if not isinstance(one, Code))
    return Cell(str(said["what"]), fact.kind, theirs), Cell(str(said["answer"]), fact.kind, ours)
