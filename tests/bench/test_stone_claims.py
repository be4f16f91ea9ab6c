"""Published statements are read, checked against what is there, and judged by code alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest
from pydantic import TypeAdapter, ValidationError

from bench.facts import FACTS_FILE, Fact, Probe, Source, Symbol, read_facts
from bench.stacks import ROOT, find_stack, releases_of
from bench.stone import claims as gathering
from bench.stone.asking import Release
from bench.stone.checks import check, is_of_a_release
from bench.stone.places import NoSuchPlace
from bench.stone.runs import PUBLISHED, measurements, published_runs
from bench.stone.scaling import conditions_of
from bench.worker.answers import answer, evaluate, find_definitions
from bench.worker.inspection import inspect_name
from canonical.claims import CLAIMS_FILE, Check, ClaimsError, Expression, Figure, read_claims

ADAPTERS = sorted(path.parent for path in (ROOT / "adapters").glob("*/adapter.toml"))
STACK = find_stack(ADAPTERS[0].name)
METADATA = {
    "name": "thing",
    "version": "1.2",
    "requires_python": ">=3.10,<=3.12",
    "license": "MIT",
    "requires_dist": ["tool<2,>=1", 'extra-tool; extra == "more"'],
    "description": "It is a thing.",
}
CHECK: TypeAdapter[Check] = TypeAdapter(Check)


def release(**others):
    names = {name: inspect_name(name) for name in ("json:dumps", "json:no_such_name")}
    values = {"1 + 1": 2, "1 / 0": {"raises": "ZeroDivisionError", "saying": "no"}}
    return replace(Release(STACK, METADATA, names, values, {}), **others)


def fact(value="a row that says so"):
    probe = Probe(name="p", sent="s", seen="s", file="f", line=1)
    return Fact(
        framework=STACK.adapter,
        release="r",
        table="t",
        row="r",
        value=value,
        kind="probed",
        evidence=(probe,),
    )


def holds(**fields):
    found = check(CHECK.validate_python(fields), release(), {("t", "r"): fact()})
    assert found.now
    assert found.evidence
    return found.holds


def test_there_are_statements_about_every_framework_and_each_has_its_source():
    claims = {folder.name: read_claims(folder) for folder in ADAPTERS}
    assert all(claims.values())
    assert sum(map(len, claims.values())) >= 25
    assert all(claim.source and claim.dated < date(2100, 1, 1) for one in claims.values() for claim in one)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"kind": "package", "name": "thing"}, True),
        ({"kind": "package", "name": "thing-core"}, False),
        ({"kind": "python", "specifier": "<=3.12,>=3.10"}, True),
        ({"kind": "python", "specifier": ">=3.11"}, False),
        ({"kind": "python", "runs_on": ["3.12.0"]}, True),
        ({"kind": "python", "runs_on": ["3.12.0", "3.12.1"]}, False),
        ({"kind": "metadata", "field": "license", "value": "MIT"}, True),
        ({"kind": "metadata", "field": "license", "value": "BSD"}, False),
        ({"kind": "requires", "distribution": "tool"}, True),
        ({"kind": "requires", "distribution": "tool", "specifier": ">=1,<2"}, True),
        ({"kind": "requires", "distribution": "tool", "specifier": ">=1"}, False),
        ({"kind": "requires", "distribution": "extra-tool", "there": False}, True),
        ({"kind": "requires", "distribution": "tool", "there": False}, False),
        ({"kind": "symbols", "symbols": ["json:dumps"]}, True),
        ({"kind": "symbols", "symbols": ["json:dumps"], "there": False}, False),
        ({"kind": "symbols", "symbols": ["json:no_such_name"]}, False),
        ({"kind": "symbols", "symbols": ["json:no_such_name"], "there": False}, True),
        ({"kind": "expression", "asks": "a", "run": "1 + 1", "gives": 2}, True),
        ({"kind": "expression", "asks": "a", "run": "1 + 1", "gives": 3}, False),
        ({"kind": "expression", "asks": "a", "run": "1 + 1", "at_least": 2}, True),
        ({"kind": "expression", "asks": "a", "run": "1 + 1", "at_least": 3}, False),
        ({"kind": "expression", "asks": "a", "run": "1 + 1"}, True),
        ({"kind": "expression", "asks": "a", "run": "1 / 0"}, False),
        ({"kind": "expression", "asks": "a", "run": "1 / 0", "gives": {"raises": "ZeroDivisionError"}}, True),
        ({"kind": "cell", "table": "t", "row": "r", "reads": "^a row"}, True),
        ({"kind": "cell", "table": "t", "row": "r", "reads": "^row"}, False),
        ({"kind": "cell", "table": "t", "row": "another", "reads": "row"}, None),
        ({"kind": "record", "figure": "no such figure", "conditions": {}, "at_least": 1}, None),
        ({"kind": "arithmetic", "rule": "largest", "stated": 3, "figures": {"a": 1, "b": 3}}, True),
        ({"kind": "arithmetic", "rule": "largest", "stated": 1, "figures": {"a": 1, "b": 3}}, False),
        ({"kind": "arithmetic", "rule": "product", "stated": 6.3, "figures": {"a": 2, "b": 3}}, True),
        ({"kind": "arithmetic", "rule": "product", "stated": 12, "figures": {"a": 2, "b": 3}}, False),
        ({"kind": "arithmetic", "rule": "increasing", "figures": {"a": 1, "b": 2}}, True),
        ({"kind": "arithmetic", "rule": "increasing", "figures": {"a": 1, "b": 1}}, False),
    ],
)
def test_a_statement_holds_when_what_it_says_is_there_and_not_otherwise(fields, expected):
    assert holds(**fields) is expected


def test_what_shows_a_symbol_is_the_symbol_or_why_it_is_not_there():
    there = check(CHECK.validate_python({"kind": "symbols", "symbols": ["json:dumps"]}), release(), {})
    missing = check(
        CHECK.validate_python({"kind": "symbols", "symbols": ["json:no_such_name"]}), release(), {}
    )
    assert isinstance(there.evidence[0], Symbol)
    assert isinstance(missing.evidence[0], Probe)
    assert missing.now == "`json.no_such_name` is not there"


def test_a_bound_of_python_within_a_minor_version_is_said():
    now = check(CHECK.validate_python({"kind": "python", "runs_on": ["3.12.0"]}), release(), {}).now
    assert now == "its metadata says >=3.10,<=3.12, which excludes 3.12.1 and later"


def measured():
    """Return the release of a framework with a measured ceiling, the last run of it, and the ceiling."""
    name, run = next(
        (folder.name, run)
        for folder in ADAPTERS
        for run in published_runs(folder.name)
        if "ceiling slo" in measurements(run)
    )
    return release(stack=find_stack(name)), run, measurements(run)["ceiling slo"].value


def test_a_figure_under_other_conditions_says_nothing_whatever_its_bounds():
    of, run, value = measured()
    same = conditions_of(run)
    others = [{}, *({**same, name: "something else"} for name in same)]
    others += [{key: kept for key, kept in same.items() if key != name} for name in same]
    for conditions in others:
        for bounds in ({"at_least": value + 1}, {"at_most": value - 1}, {"at_least": 1}):
            fields = {"kind": "record", "figure": "ceiling slo", "conditions": conditions, **bounds}
            found = check(CHECK.validate_python(fields), of, {})
            assert found.holds is None
            assert "does not compare" in found.now
            assert f"{value:,.0f} sessions by method" in found.now


def test_a_figure_under_the_same_conditions_is_held_against_its_bounds():
    of, run, value = measured()
    told = {}
    for bound in ("at_least", "at_most"):
        fields = {"kind": "record", "figure": "ceiling slo", "conditions": conditions_of(run), bound: value}
        told[bound] = check(CHECK.validate_python(fields), of, {}).holds
    assert told == {"at_least": True, "at_most": True}
    fields = {"kind": "record", "figure": "ceiling slo", "conditions": conditions_of(run), "at_least": 1e9}
    assert check(CHECK.validate_python(fields), of, {}).holds is False


def test_no_published_verdict_rests_on_a_figure_of_other_conditions():
    claims = {(folder.name, claim.says): claim for folder in ADAPTERS for claim in read_claims(folder)}
    figures = {cell for cell, claim in claims.items() if isinstance(claim.check, Figure)}
    verdicts = {
        fact.data["verdict"]
        for fact in read_facts(PUBLISHED / "rosetta" / FACTS_FILE).of("claims")
        if (fact.framework, fact.row) in figures and "does not compare" in fact.value
    }
    assert verdicts == {"open"}


def test_a_published_verdict_of_wrong_names_every_everyday_release_that_was_asked():
    wrong = [
        fact
        for fact in read_facts(PUBLISHED / "rosetta" / FACTS_FILE).of("claims")
        if fact.data["verdict"] == "wrong" and fact.data["check"] not in {"cell", "record", "arithmetic"}
    ]
    assert wrong
    for fact in wrong:
        tried = fact.value.rpartition("; tried: ")[2].split(", ")
        assert tried == [one.release.label for one in releases_of(fact.framework)]


def test_whether_environments_run_in_process_is_asked_of_the_installed_package():
    for name in ("gem", "skyrl"):
        (claim,) = [
            one
            for one in read_claims(ROOT / "adapters" / name)
            if one.says == "Environments run in the process of the trainer."
        ]
        assert isinstance(claim.check, Expression)
        assert "socket.bind" in claim.check.run


def test_only_what_is_asked_of_a_release_can_be_stale():
    kinds = {
        "package": {"name": "a"},
        "cell": {"table": "t", "row": "r", "reads": "x"},
        "record": {"figure": "f", "conditions": {}},
        "arithmetic": {"rule": "increasing", "figures": {"a": 1, "b": 2}},
    }
    of_release = [
        kind for kind, rest in kinds.items() if is_of_a_release(CHECK.validate_python({"kind": kind, **rest}))
    ]
    assert of_release == ["package"]


def written(folder, *claims):
    lines = [
        f'[[claims]]\nsays = "{says}"\nsource = "a page"\ndated = 2026-01-02\nquoted = "{quoted}"\ncheck = {check_}\n'
        for says, quoted, check_ in claims
    ]
    urls = '[urls]\n"a page" = "https://example.org/page"\n'
    (folder / CLAIMS_FILE).write_text("\n".join([urls, *lines]), encoding="utf-8")


THING, OTHER = '{ kind = "package", name = "thing" }', '{ kind = "package", name = "old-thing" }'
NEITHER = '{ kind = "package", name = "neither" }'


def test_verdicts_come_from_the_default_release_first_and_then_from_the_others(tmp_path, monkeypatch):
    written(tmp_path, ("one", "a thing", THING), ("two", "", OTHER), ("three", "", NEITHER))
    monkeypatch.setattr(type(STACK), "features_file", property(lambda _: tmp_path / "features.json"))
    older = replace(STACK, release=STACK.release.model_copy(update={"version": "0.0"}))
    answers = {STACK.label: METADATA, older.label: {**METADATA, "name": "old-thing"}}
    monkeypatch.setattr(
        gathering, "ask", lambda stack, **_: replace(release(), stack=stack, metadata=answers[stack.label])
    )
    monkeypatch.setattr(gathering, "releases_of", lambda _: [STACK, older])
    monkeypatch.setattr(
        gathering, "line_of", lambda _file, text: gathering.Source(title=text, date=date(2026, 1, 1))
    )
    facts = {one.row: one for one in gathering.gather_claims(STACK, [])}
    assert {row: one.value.partition(":")[0] for row, one in facts.items()} == {
        "one": "holds",
        "two": "stale",
        "three": "wrong",
    }
    assert facts["two"].value.endswith(f"of {older.release.label} it holds: the package is old-thing")
    assert facts["one"].evidence[0] == Source(
        title="a page", date=date(2026, 1, 2), url="https://example.org/page", quoted="a thing"
    )
    assert facts["three"].value.endswith(f"tried: {STACK.release.label}, {older.release.label}")
    asked = [one.seen for one in facts["three"].evidence if isinstance(one, Probe)]
    assert asked == ["thing", "old-thing"]


def test_a_quotation_that_a_release_does_not_have_is_refused(tmp_path, monkeypatch):
    written(tmp_path, ("one", "something else", THING))
    monkeypatch.setattr(type(STACK), "features_file", property(lambda _: tmp_path / "features.json"))
    monkeypatch.setattr(gathering, "ask", lambda *_, **__: release())
    monkeypatch.setattr(gathering, "releases_of", lambda _: [STACK])
    with pytest.raises(NoSuchPlace, match="something else"):
        gathering.gather_claims(STACK, [])


def test_a_malformed_file_is_named_with_the_key(tmp_path):
    assert read_claims(tmp_path) == ()
    written(tmp_path, ("one", "", '{ kind = "rumour" }'))
    with pytest.raises(ClaimsError, match=r"claims\.toml: claims\.0\.check"):
        read_claims(tmp_path)
    written(tmp_path, ("one", "", THING), ("one", "", OTHER))
    with pytest.raises(ClaimsError, match="twice: one"):
        read_claims(tmp_path)
    file = tmp_path / CLAIMS_FILE
    written(tmp_path, ("one", "", THING))
    file.write_text(file.read_text(encoding="utf-8").replace('"a page" =', '"a pgae" ='), encoding="utf-8")
    with pytest.raises(ClaimsError, match="an address of 'a pgae'"):
        read_claims(tmp_path)
    with pytest.raises(ValidationError):
        CHECK.validate_python({"kind": "arithmetic", "rule": "largest", "figures": {"a": 1}})


def test_an_expression_gives_its_last_value_or_what_it_raises():
    assert evaluate("import math\nfloor = math.floor(2.5)\n[floor, {'a': floor}]") == [2, {"a": 2}]
    assert evaluate("{}['x']") == {"raises": "KeyError", "saying": "'x'"}
    assert evaluate("x = 1")["raises"] == "SyntaxError"
    assert isinstance(evaluate("object"), str)


def test_definitions_are_found_with_their_lines_and_without_those_of_tests():
    (found, none) = find_definitions("pydantic", ["^BaseModel$", "^NoSuchThing$"])
    assert any(one.startswith("pydantic/main.py:") and one.endswith(" BaseModel") for one in found)
    assert none == []


def test_a_process_answers_everything_at_once():
    answers = answer(
        {"package": "pydantic", "names": ["pydantic:BaseModel"], "expressions": ["2"], "definitions": []}
    )
    assert answers["metadata"]["name"] == "pydantic"
    assert answers["symbols"][0]["what"] == "class"
    assert answers["values"] == [2]
