"""The sheet of ten dimensions says what other tables say and nothing else, and claims stand one below the other."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from bench.facts import FACTS_FILE, Code, Fact, Facts, Header, Probe, Source, Subject, read_facts
from bench.stacks import ROOT
from reports.stone import claims, overview
from reports.stone.render import render_tables
from reports.stone.table import NO_EVIDENCE
from reports.stone.writers import markdown_page

PUBLISHED = ROOT / "reports" / "published" / "rosetta" / FACTS_FILE
PROBE = Probe(name="p", sent="s", seen="t", file="f", line=1)
HEADER = Header(
    gathered=datetime(2026, 1, 2, tzinfo=UTC),
    machine="m",
    subjects=(Subject(framework="one", title="One", release="one-1", python="3.11.1"),),
)


def fact(table, row, value, *evidence, data=None):
    return Fact(
        framework="one", release="one-1", table=table, row=row, value=value, kind="probed",
        evidence=evidence or (PROBE,), data=data,
    )  # fmt: skip


def test_a_cell_of_the_sheet_is_made_of_other_cells_carries_their_evidence_and_leads_to_their_table():
    facts = Facts(HEADER, (fact("ecosystem", "maker", "somebody"), fact("ecosystem", "licence", "MIT")))
    (cell,) = [row.cells[0] for row in overview.render(facts).rows if row.name == "ecosystem and maturity"]
    assert cell.value.splitlines() == ["somebody", "licence MIT"]
    assert cell.evidence == (PROBE,)
    assert cell.table == "ecosystem"
    assert "[ecosystem](ecosystem.md)" in markdown_page(facts, overview.render(facts), "")


def test_a_cell_of_several_kinds_names_all_of_them_once():
    kinds = {"Python": "introspected", "import": "measured", "size on disk": "measured"}
    facts = Facts(
        HEADER,
        tuple(fact("local", row, "1").model_copy(update={"kind": kind}) for row, kind in kinds.items()),
    )
    (cell,) = [row.cells[0] for row in overview.render(facts).rows if row.name == "local and cluster"]
    assert cell.kind == "introspected, measured"


def test_what_each_way_loses_stands_in_a_line_of_its_own():
    facts = Facts(HEADER, (fact("tools", overview.LOST, "`@one`: nothing\n`@two`: enum"),))
    (cell,) = [row.cells[0] for row in overview.render(facts).rows if row.name == "tools"]
    assert cell.value.splitlines() == [
        "lost of a signature: `@one`: nothing",
        "lost of a signature: `@two`: enum",
    ]


def test_lines_that_do_not_compare_say_of_what_they_are():
    published = read_facts(PUBLISHED)
    (row,) = [row for row in overview.render(published).rows if row.name == "cost of a new environment"]
    for subject, cell in zip(published.subjects, row.cells, strict=True):
        copied = "none; Rosetta's own hand-written Wordle was copied" in cell.value
        assert copied == ("Rosetta's Wordle, a whole game" in cell.value), subject.framework


def test_without_a_fact_the_sheet_says_so():
    cells = [row.cells[0] for row in overview.render(Facts(HEADER, ())).rows]
    assert {cell.value for cell in cells} == {NO_EVIDENCE}
    assert len(cells) == 10


def test_every_dimension_reads_rows_that_are_published_and_leads_to_a_table_that_is_rendered():
    facts = read_facts(PUBLISHED)
    known = {(one.table, one.row) for one in facts.facts}
    read = [(table, row) for one in overview.DIMENSIONS for table, row, _ in one.parts]
    assert [place for place in read if place not in known] == []
    assert {one.table for one in overview.DIMENSIONS} <= {table.name for table in render_tables(facts)}
    assert [row.name for row in overview.render(facts).rows for cell in row.cells if not cell.evidence] == []


@pytest.mark.parametrize("verdict", ["holds", "stale", "wrong", "open"])
def test_a_claim_shows_who_said_it_the_verdict_and_what_is_true_now(verdict):
    source = Source(title="a page", date=date(2026, 1, 2))
    place = Code(file="adapters/one/claims.toml", first=3, last=3, text='says = "so"')
    data = {
        "source": "a page",
        "dated": "2026-01-02",
        "verdict": verdict,
        "now": "so and so",
        "check": "package",
    }
    table = claims.render(
        Facts(HEADER, (fact("claims", "so", f"{verdict}: so and so", source, place, PROBE, data=data),))
    )
    (row,) = table.rows
    assert row.name == "One: so"
    assert [cell.value for cell in row.cells] == ["a page, 2026-01-02", verdict, "so and so"]
    assert [cell.evidence for cell in row.cells] == [(source, place), (PROBE,), (PROBE,)]


def test_at_least_25_statements_are_published_about_all_frameworks_and_no_verdict_is_missing():
    facts = read_facts(PUBLISHED)
    told = facts.of("claims")
    assert len(told) >= 25
    assert {one.framework for one in told} == {subject.framework for subject in facts.subjects}
    assert {one.data["verdict"] for one in told} <= {"holds", "stale", "wrong", "open"}
    assert all(any(isinstance(piece, Source) for piece in one.evidence) for one in told)
