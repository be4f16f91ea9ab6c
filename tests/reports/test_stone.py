"""Tables of the stone: every form says the same, escapes what it must, and says where nothing is known."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import UTC, date, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.facts import (
    FACTS_FILE,
    Code,
    Fact,
    Facts,
    Header,
    Probe,
    Record,
    Source,
    Subject,
    Symbol,
    read_facts,
)
from bench.records import RECORDS_FILE
from bench.stacks import ROOT
from reports.stone.inputs import NOTHING, read_inputs
from reports.stone.pages import MEASURED, Pages
from reports.stone.render import render_files, render_tables, render_undrawn
from reports.stone.site import table_page
from reports.stone.table import NO_EVIDENCE, tabulate
from reports.stone.writers import csv_text, json_text, line_of, markdown_page, newest_releases

PUBLISHED = ROOT / "reports" / "published" / "rosetta"
HEADER = Header(
    gathered=datetime(2026, 1, 2, tzinfo=UTC),
    machine="m",
    subjects=tuple(
        Subject(framework=name, title=name.title(), release=f"{name}-1", python="3.11.1")
        for name in ("one", "two")
    ),
)
EVIDENCE = (
    Symbol(name="m:A.b", distribution="one 1", what="field", signature="<int> | None", file="m.py", line=4),
    Code(file="adapters/one/x.py", first=2, last=5, name="f", text='if a < b | c: "`"'),
    Probe(name="p", sent="<x>", seen="& y", file="bench/p.py", line=9),
)


def of(value: str, row: str = "row") -> Facts:
    fact = Fact(
        framework="one", release="one-1", table="t", row=row, value=value, kind="probed", evidence=EVIDENCE
    )
    return Facts(HEADER, (fact,))


def page(facts: Facts, table, root: str = "") -> str:
    return table_page(Pages(facts, [table], NOTHING, root), table)


def test_a_cell_without_a_fact_says_so_in_every_form():
    facts = of("known")
    table = tabulate(facts, "t", "T", "about", ["row", "another"])
    assert [[cell.value for cell in row.cells] for row in table.rows] == [
        ["known", NO_EVIDENCE],
        [NO_EVIDENCE] * 2,
    ]
    for text in (
        csv_text(table),
        json_text(table),
        markdown_page(facts, table, ""),
        page(facts, table),
    ):
        assert text.count(NO_EVIDENCE) >= 3


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if "id" in found:
            self.ids.add(found["id"])
        if tag == "a":
            self.links.append(found["href"])

    def handle_data(self, data):
        self.text += data


@settings(max_examples=30, deadline=None)
@given(
    value=st.text(
        st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp", "Cs"]), min_size=1, max_size=40
    )
)
def test_any_value_is_carried_by_every_form(value):
    facts = of(value)
    table = tabulate(facts, "t", "T", "about", code=True)
    rows = list(csv.DictReader(io.StringIO(csv_text(table))))
    assert rows[0]["value"] == value
    assert json.loads(rows[0]["evidence"]) == json.loads(json_text(table))["rows"][0]["cells"][0]["evidence"]
    reader = _Reader()
    reader.feed(page(facts, table))
    assert value in reader.text


@pytest.mark.parametrize("code", [True, False])
def test_a_cell_holds_its_evidence_and_leads_to_the_place_of_it(code):
    facts = of("`a|b` <c> *d* [e]")
    reader = _Reader()
    reader.feed(page(facts, tabulate(facts, "t", "T", "about", code=code), "../"))
    assert "../../adapters/one/x.py#L2-L5" in reader.links
    assert "../../bench/p.py#L9" in reader.links
    for said in ("m:A.b", "field <int> | None", "sent: <x>; seen: & y", "probed"):
        assert said in reader.text


def test_a_symbol_leads_to_the_repository_of_its_distribution_and_a_source_to_its_address():
    subjects = (
        HEADER.subjects[0].model_copy(update={"repository": "https://example.org/one"}),
        HEADER.subjects[1],
    )
    source = Source(title="a page", date=date(2026, 1, 2), url="https://example.org/page", quoted="so it is")
    fact = of("x").facts[0]
    facts = Facts(
        HEADER.model_copy(update={"subjects": subjects}),
        (fact.model_copy(update={"evidence": (*EVIDENCE, source)}),),
    )
    table = tabulate(facts, "t", "T", "about")
    reader = _Reader()
    reader.feed(page(facts, table))
    assert {"https://example.org/one", "https://example.org/page"} <= set(reader.links)
    assert '2026-01-02, "so it is"' in reader.text
    assert "](https://example.org/page)" in markdown_page(facts, table, "")


def test_markdown_keeps_its_cells_whatever_a_value_holds():
    facts = of("`a|b` c|d")
    text = markdown_page(facts, tabulate(facts, "t", "T", "about"), "../")
    (row,) = [line for line in text.splitlines() if line.startswith("| row ")]
    assert len(re.findall(r"(?<!\\)\|", row)) == 4
    assert {int(n) for n in re.findall(r"\(#e(\d+)\)", text)} == {
        int(n) for n in re.findall(r'<a id="e(\d+)">', text)
    }


def test_evidence_without_a_way_to_the_repository_names_places_and_links_to_none():
    facts = of("x")
    reader = _Reader()
    reader.feed(page(facts, tabulate(facts, "t", "T", "about")))
    assert [link for link in reader.links if "adapters/" in link or "bench/" in link] == []
    assert "adapters/one/x.py:2" in reader.text


def test_evidence_names_the_function_that_ran_and_the_line_of_a_record():
    probe = Probe(name="p", sent="x", seen="y", file="bench/p.py", line=9, function="Probes.look")
    record = Record(run="one-1", record="ceiling by the criterion slo", line=58)
    assert line_of(probe, "../").place == "bench/p.py:9 (Probes.look)"
    assert line_of(probe, "../").link == "../bench/p.py#L9"
    assert line_of(record, "../").place == f"one-1/{RECORDS_FILE}:58"
    assert line_of(record.model_copy(update={"line": None}), "../").place == "one-1"


def test_a_column_whose_release_is_not_the_newest_says_which_is():
    def released(framework, version):
        return Fact(
            framework=framework, release=f"{framework}-1", table="ecosystem", row="last release", value=version,
            kind="probed", evidence=EVIDENCE, data={"version": version},
        )  # fmt: skip

    facts = Facts(HEADER, (*of("so").facts, released("one", "2"), released("two", "1")))
    table = tabulate(facts, "t", "T", "about")
    for text in (markdown_page(facts, table, ""), page(facts, table)):
        assert "one-1; newest 2" in text
        assert "One is shown as of one-1; its newest release is 2." in text
        assert "two-1; newest" not in text
        assert "Two is shown" not in text


def test_every_published_table_says_of_which_releases_there_are_newer_ones():
    facts = read_facts(PUBLISHED / FACTS_FILE)
    newer = newest_releases(facts)
    last = {
        fact.release: fact.data["version"] for fact in facts.of("ecosystem") if fact.row == "last release"
    }
    assert newer == {label: version for label, version in last.items() if not label.endswith(f"-{version}")}
    for table in render_tables(facts):
        text = (PUBLISHED / f"{table.name}.md").read_text(encoding="utf-8")
        for label, version in newer.items():
            assert f"is shown as of {label}; its newest release is {version}." in text
            assert (label in table.releases) == (f"{label}; newest {version}" in text)


def published_files() -> dict[str, str]:
    return {
        path.relative_to(PUBLISHED).as_posix(): path.read_text(encoding="utf-8")
        for path in PUBLISHED.rglob("*")
        if path.is_file()
    }


def test_the_published_tables_are_what_the_published_facts_give():
    files = render_undrawn(read_facts(PUBLISHED / FACTS_FILE), read_inputs(ROOT), root="../../../")
    published = published_files()
    assert [name for name, text in files.items() if published.get(name) != text] == []
    assert set(published) - set(files) == {MEASURED, "figures.css"}


@pytest.mark.slow
def test_the_published_figures_are_what_the_published_runs_give():
    files = render_files(read_facts(PUBLISHED / FACTS_FILE), read_inputs(ROOT), root="../../../")
    published = published_files()
    assert set(published) == set(files)
    # Figures depend on the release of matplotlib, which the page names.
    (drawn_by,) = re.findall(r"Figures are drawn by (.+?)\.</p>", files[MEASURED])
    if drawn_by in published[MEASURED]:
        assert files[MEASURED] == published[MEASURED]


UNMEASURED = {
    "scaling": "figures of others are about one framework each",
    "ecosystem": "not everybody says what is offered outside of the package",
}
"""Tables that say of some cells that there is no evidence, and why."""


def test_the_published_facts_fill_every_cell_that_can_be_known_and_lead_to_files_that_are_there():
    facts = read_facts(PUBLISHED / FACTS_FILE)
    empty = [
        (table.name, row.name)
        for table in render_tables(facts)
        if table.name not in UNMEASURED
        for row in table.rows
        for cell in row.cells
        if not cell.evidence
    ]
    assert empty == []
    named = {one.file for fact in facts.facts for one in fact.evidence if isinstance(one, Code | Probe)}
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []
    assert {path.parent.name for path in Path(ROOT / "adapters").glob("*/adapter.toml")} == {
        subject.framework for subject in facts.subjects
    }
