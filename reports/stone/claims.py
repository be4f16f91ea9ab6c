"""What has been published, and what is true now."""

from __future__ import annotations

from bench.facts import Code, Fact, Facts, Source
from canonical.claims import CLAIMS_FILE
from reports.stone.table import Cell, Row, Table

COLUMNS = ("said by", "verdict", "what is true now")


def render(facts: Facts) -> Table:
    """Return every published statement with its verdict, by framework."""
    titles = {subject.framework: subject.title for subject in facts.subjects}
    return Table(
        "claims",
        "Claims: what has been published, and what is true now",
        "Statements of others about the frameworks, in short, each with its source and date, and checked by code: against the "
        "installed release, against tables and measurements of this project, or against other figures of the same source. Holds: "
        "the check says so of the release in use here. Stale: it says so of another release, which is named, and not of this one. "
        "Wrong: it says so of none of those that were tried, which are named. Open: nothing here could show it; a figure that was "
        "measured here under other conditions shows nothing, neither for a statement nor against it. A statement may have been right "
        "of what its author had at hand.",
        COLUMNS,
        ("",) * len(COLUMNS),
        tuple(_row(titles[fact.framework], fact) for fact in facts.of("claims")),
    )


def _row(title: str, fact: Fact) -> Row:
    told = fact.data if isinstance(fact.data, dict) else {}
    said = tuple(
        one
        for one in fact.evidence
        if isinstance(one, Source) or (isinstance(one, Code) and one.file.endswith(CLAIMS_FILE))
    )
    shown = tuple(one for one in fact.evidence if one not in said) or said
    return Row(
        f"{title}: {fact.row}",
        (
            Cell(f"{told.get('source')}, {told.get('dated')}", "sourced", said),
            Cell(str(told.get("verdict")), fact.kind, shown),
            Cell(str(told.get("now")), fact.kind, shown),
        ),
    )
