"""A file of facts is whole and consistent, or the reader says where it is not."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.facts import (
    Code,
    Fact,
    Facts,
    FactsError,
    Header,
    Source,
    Subject,
    compare,
    read_facts,
    write_facts,
)

TEXT = st.text(min_size=1, max_size=30)
HEADER = Header(
    gathered=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    machine="a machine",
    subjects=(
        Subject(framework="one", title="One", release="one-1.0", python="3.11.7"),
        Subject(framework="two", title="Two", release="two-2.0", python="3.12.1"),
    ),
)


def fact(row: str = "reward", framework: str = "one", value: str = "a float", line: int = 3) -> Fact:
    return Fact(
        framework=framework,
        release="one-1.0" if framework == "one" else "two-2.0",
        table="words",
        row=row,
        value=value,
        kind="introspected",
        evidence=(Code(file="a.py", first=line, last=line, name="f", text="def f():"),),
    )


FACTS = Facts(HEADER, (fact(), fact(framework="two")))


@given(rows=st.dictionaries(TEXT, TEXT, max_size=5), title=TEXT)
def test_what_is_written_is_read(tmp_path_factory, rows, title):
    facts = [
        fact(row=row, value=value).model_copy(
            update={"evidence": (Source(title=title, date=date(2026, 1, 2)),)}
        )
        for row, value in rows.items()
    ]
    path = tmp_path_factory.mktemp("facts") / "facts.jsonl"
    write_facts(path, Facts(HEADER, tuple(facts)))
    assert read_facts(path) == Facts(HEADER, tuple(facts))


def _damaged(change) -> str:
    rows = [json.loads(line) for line in FACTS.to_text().splitlines()]
    change(rows)
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows.pop(), "footer is missing"),
        (lambda rows: rows.pop(0), "line 1: the file does not begin with a header"),
        (lambda rows: rows.pop(1), "counts 2 facts, and there are 1"),
        (lambda rows: rows.__setitem__(2, rows[1]), "stands there twice"),
        (lambda rows: rows[1].update(evidence=[]), "line 2: evidence"),
        (lambda rows: rows[1].update(value=""), "line 2: value"),
        (lambda rows: rows[1].update(more=1), "line 2: more"),
        (lambda rows: rows[1].update(kind="guessed"), "line 2: kind"),
        (lambda rows: rows[1].update(release="one-9.9"), "one-9.9, which the header does not name"),
        (lambda rows: rows[0].update(schema=99), "schema 99"),
        (lambda rows: rows.insert(1, rows[0]), "line 2: a second header"),
    ],
)
def test_a_file_that_is_not_whole_is_refused_where_it_is_not(tmp_path: Path, change, words):
    path = tmp_path / "facts.jsonl"
    path.write_text(_damaged(change), encoding="ascii")
    with pytest.raises(FactsError, match=words):
        read_facts(path)


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(FactsError, match=r"nowhere\.jsonl: No such file"):
        read_facts(tmp_path / "nowhere.jsonl")


def test_facts_that_contradict_each_other_are_not_written(tmp_path: Path):
    with pytest.raises(FactsError, match="twice"):
        write_facts(tmp_path / "facts.jsonl", Facts(HEADER, (fact(), fact(value="an integer"))))


def test_cells_that_differ_are_found_and_those_that_moved_are_not():
    before = Facts(HEADER, (fact("a"), fact("b"), fact("gone"), fact("moved", line=3)))
    after = Facts(HEADER, (fact("a"), fact("b", value="new"), fact("come"), fact("moved", line=30)))
    changes = compare(before, after)
    assert [(change.row, change.before is None, change.after is None) for change in changes] == [
        ("b", False, False),
        ("come", True, False),
        ("gone", False, True),
    ]
    assert {change.where for change in changes} == {"value"}


def test_other_evidence_of_the_same_value_is_a_difference():
    other = fact().model_copy(update={"evidence": (Source(title="a page", date=date(2026, 1, 2)),)})
    (change,) = compare(Facts(HEADER, (fact(),)), Facts(HEADER, (other,)))
    assert change.where == "evidence"
