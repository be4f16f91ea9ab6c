"""The tree of questions answers from facts: what no fact says is said to be unknown, and every path ends."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product

import pytest

from bench.facts import FACTS_FILE, Code, Fact, Facts, Header, Probe, Subject, Symbol, read_facts
from bench.stacks import ROOT
from reports.stone.tree import LARGE_CATALOGUE, QUESTIONS, grounds, grow, returns_five_values

PUBLISHED = ROOT / "reports" / "published" / "rosetta" / FACTS_FILE
HEADER = Header(
    gathered=datetime(2026, 1, 2, tzinfo=UTC),
    machine="m",
    subjects=tuple(
        Subject(framework=name, title=name.title(), release=f"{name}-1", python="3.11.1")
        for name in ("one", "two", "three")
    ),
)


def runs_in(framework: str, *places: str) -> Fact:
    place = Code(file="a.py", first=1, last=1)
    return Fact(
        framework=framework, release=f"{framework}-1", table="transport", row="where it runs", value="so",
        kind="declared", evidence=(place,), data={"places": list(places)},
    )  # fmt: skip


def step(framework: str, signature: str) -> Fact:
    symbol = Symbol(name="m:E.step", distribution="m 1", what="function", signature=signature)
    return Fact(
        framework=framework, release=f"{framework}-1", table="words", row="step result", value="five",
        kind="introspected", evidence=(symbol,),
    )  # fmt: skip


def said(table: str, row: str, data, *evidence) -> Fact:
    place = Code(file="a.py", first=1, last=1)
    return Fact(
        framework="one", release="one-1", table=table, row=row, value="so", kind="declared",
        evidence=evidence or (place,), data=data,
    )  # fmt: skip


def catalogue(packaged: str, everywhere: int | None) -> Fact:
    counted = Probe(name="catalogue", sent="len(them)", seen=packaged, file="a.py", line=1)
    return said("ecosystem", "catalogue", {"count": everywhere}, counted)


def leaf_of(facts: Facts, **chosen: str):
    key = "-".join(chosen.get(question.key, "any") for question in QUESTIONS)
    (found,) = [leaf for leaf in grow(facts).leaves if leaf.key == key]
    return found


def names(verdicts) -> list[str]:
    return [verdict.subject.framework for verdict in verdicts]


def test_every_path_through_the_questions_ends_in_one_answer_that_places_every_framework():
    for facts in (Facts(HEADER, ()), read_facts(PUBLISHED)):
        tree = grow(facts)
        paths = product(*([choice.key for choice in question.choices] for question in QUESTIONS))
        assert [leaf.key for leaf in tree.leaves] == ["-".join(path) for path in paths]
        for leaf in tree.leaves:
            placed = names([*leaf.fits, *leaf.open, *leaf.ruled_out])
            assert sorted(placed) == sorted(subject.framework for subject in facts.subjects)
            assert leaf.fits or leaf.open or leaf.nearest


def test_what_no_fact_says_is_neither_a_yes_nor_a_no():
    facts = Facts(HEADER, (runs_in("one", "server"), runs_in("two", "in_process")))
    leaf = leaf_of(facts, place="server")
    assert (names(leaf.fits), names(leaf.ruled_out), names(leaf.open)) == (["one"], ["two"], ["three"])
    assert leaf.open[0].unknown == (QUESTIONS[0].text,)


def test_where_nothing_fits_the_frameworks_with_the_fewest_conditions_against_them_are_named():
    five = "(self, a) -> tuple[str, float, bool, bool, dict[str, Any]]"
    facts = Facts(
        HEADER,
        (
            *(
                runs_in(name, place)
                for name, place in (("one", "in_process"), ("two", "server"), ("three", "in_process"))
            ),
            *(
                step(name, signature)
                for name, signature in (("one", five), ("two", "-> int"), ("three", "-> int"))
            ),
        ),
    )
    leaf = leaf_of(facts, place="server", gymnasium="yes")
    assert not leaf.fits
    assert names(leaf.nearest) == ["one", "two"]


@pytest.mark.parametrize(
    ("question", "fact", "fits"),
    [
        ("trainer", said("stages", "trainer", {"level": "covered"}), True),
        ("trainer", said("stages", "trainer", {"level": "in part"}), True),
        ("trainer", said("stages", "trainer", {"level": "left to others"}), False),
        ("catalogue", catalogue("20", None), True),
        ("catalogue", catalogue("19", 19), False),
        ("catalogue", catalogue("1", 40), False),
        ("catalogue", catalogue("no number", 40), None),
        ("catalogue", said("ecosystem", "catalogue", {"count": 40}), None),
    ],
)
def test_trainers_and_catalogues_are_read_from_what_tables_hold(question, fact, fits):
    leaf = leaf_of(Facts(HEADER, (fact,)), **{question: "yes"})
    where = leaf.fits if fits else leaf.ruled_out if fits is False else leaf.open
    assert "one" in names(where)


def test_what_runs_in_process_and_behind_a_transport_fits_whoever_wants_either():
    facts = Facts(
        HEADER, (runs_in("one", "in_process", "server"), runs_in("two"), runs_in("three", "server"))
    )
    for place, others in (("server", ["three"]), ("in_process", [])):
        leaf = leaf_of(facts, place=place)
        assert (names(leaf.fits), names(leaf.open)) == (["one", *others], ["two"])
    assert grounds(facts, grow(facts)).rows[0].cells[0].value == "either: so"


def test_only_what_comes_in_the_package_counts_as_a_catalogue_in_the_package():
    facts = read_facts(PUBLISHED)
    counted = {
        fact.framework: int(probe.seen)
        for fact in facts.of("ecosystem")
        for probe in fact.evidence
        if isinstance(probe, Probe) and probe.name == "catalogue"
    }
    leaf = leaf_of(facts, catalogue="yes")
    assert not leaf.open
    assert names(leaf.fits) == [name for name, count in counted.items() if count >= LARGE_CATALOGUE]


def test_where_nothing_is_asked_everything_fits():
    assert names(leaf_of(Facts(HEADER, ())).fits) == ["one", "two", "three"]


def test_the_answers_rest_on_facts_with_their_evidence():
    facts = Facts(HEADER, (runs_in("one", "server"),))
    first, *others = grounds(facts, grow(facts)).rows
    assert first.cells[0].value == "behind a transport: so"
    assert first.cells[0].evidence == facts.facts[0].evidence
    assert {cell.value for row in (others) for cell in row.cells} == {"no evidence"}


@pytest.mark.parametrize(
    ("signature", "five"),
    [
        ("(self, action: ~A) -> Tuple[~O, SupportsFloat, bool, bool, dict[str, Any]]", True),
        ("(self) -> tuple[dict[str, int], float, bool, bool, dict]", True),
        ("(self) -> tuple[str, float, bool, dict[str, Any]]", False),
        ("(self) -> tuple[str, float, bool, bool, list[str]]", False),
        ("(self) -> tuple[str, bool, bool, bool, dict[str, Any]]", False),
        ("(observation: O, reward: float, done: bool) -> None", False),
        ("", False),
    ],
)
def test_five_values_are_known_by_their_types(signature, five):
    assert returns_five_values(signature) is five
