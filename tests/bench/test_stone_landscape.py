"""Stages, first steps, published figures and makers: what is said leads to what shows it, and is refused when it does not."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import replace
from datetime import date

import pytest
from pydantic import ValidationError

from bench.facts import Probe, Record, Source
from bench.records import METHOD, RECORDS_FILE, Ceiling, End, Live, Verdict
from bench.stacks import ROOT, find_stack
from bench.stone import ecosystem, scaling, stages
from bench.stone.asking import Release
from bench.stone.beginning import fill
from bench.stone.ecosystem import Releases, licence_of
from bench.stone.places import NoSuchPlace
from bench.stone.runs import live_episodes, measurements, published_runs
from bench.stone.subject import UnresolvedSymbols
from bench.worker.inspection import inspect_name
from canonical.landscape import (
    LANDSCAPE_FILE,
    Edit,
    Landscape,
    LandscapeError,
    Stage,
    StageName,
    read_landscape,
)

ADAPTERS = sorted(path.parent for path in (ROOT / "adapters").glob("*/adapter.toml"))
STACK = find_stack(ADAPTERS[0].name)

each = pytest.mark.parametrize("folder", ADAPTERS, ids=lambda folder: folder.name)


@each
def test_every_stage_is_there_and_the_ecosystem_and_the_first_test(folder):
    said = read_landscape(folder)
    assert set(said.stages) == set(StageName)
    assert said.ecosystem is not None
    assert said.beginning is not None
    compile(said.beginning.first_test, "first_test", "exec")
    compile(said.ecosystem.catalogue.run, "catalogue", "exec")


def test_a_stage_is_as_covered_as_what_shows_it():
    assert Stage(how="so", symbols=("a:b",)).level == "covered"
    assert Stage(how="so", symbols=("a:b",), lacks="no c", without="c").level == "in part"
    assert Stage(how="so", lacks="no c", without="c").level == "left to others"
    for wrong in ({}, {"symbols": ("a:b",), "lacks": "no c"}, {"symbols": ("a:b",), "without": "c"}):
        with pytest.raises(ValidationError):
            Stage(how="so", **wrong)


def test_a_malformed_file_is_named_with_the_key(tmp_path):
    assert read_landscape(tmp_path) == Landscape()
    (tmp_path / LANDSCAPE_FILE).write_text("[stages.nothing]\nhow = 1\n", encoding="ascii")
    with pytest.raises(LandscapeError, match=r"landscape\.toml: stages\.nothing"):
        read_landscape(tmp_path)
    (tmp_path / LANDSCAPE_FILE).write_text("[", encoding="ascii")
    with pytest.raises(LandscapeError, match=r"landscape\.toml"):
        read_landscape(tmp_path)


def staged(tmp_path, monkeypatch, text, found):
    (tmp_path / LANDSCAPE_FILE).write_text(text, encoding="ascii")
    monkeypatch.setattr(type(STACK), "features_file", property(lambda _: tmp_path / "features.json"))

    def ask(stack, names, **_):
        return Release(stack, {}, {name: inspect_name(name) for name in names}, {}, {"Trainer$": found})

    monkeypatch.setattr(stages, "ask", ask)
    return stages.gather_stages(STACK)


LACKS = 'how = "others do"\nlacks = "no trainer"\nwithout = "Trainer$"\n'


def test_what_a_package_lacks_is_searched_for_and_refused_when_it_is_there(tmp_path, monkeypatch):
    (fact,) = staged(tmp_path, monkeypatch, f"[stages.trainer]\n{LACKS}", [])
    assert fact.value == "left to others: others do; no trainer"
    assert isinstance(fact.evidence[0], Probe)
    with pytest.raises(NoSuchPlace, match=r"Trainer.*no trainer"):
        staged(tmp_path, monkeypatch, f"[stages.trainer]\n{LACKS}", ["x.py:3 BigTrainer"])


def test_a_symbol_of_a_stage_that_is_not_there_is_refused(tmp_path, monkeypatch):
    text = '[stages.tasks]\nhow = "so"\nsymbols = ["json:dumps", "json:no_such_name"]\n'
    with pytest.raises(UnresolvedSymbols, match="no_such_name"):
        staged(tmp_path, monkeypatch, text, [])
    (fact,) = staged(tmp_path, monkeypatch, text.replace(', "json:no_such_name"', ""), [])
    assert fact.value == "covered: so"


def test_a_gap_is_filled_only_where_it_stands_exactly_once(tmp_path):
    (tmp_path / "a.py").write_text("x = ...\ny = ...\n", encoding="ascii")
    fill(tmp_path, Edit(file="a.py", old="x = ...\n", new="x = 1\n"))
    assert (tmp_path / "a.py").read_text(encoding="ascii") == "x = 1\ny = ...\n"
    for file, old in (("a.py", "z"), ("a.py", " = "), ("b.py", "x")):
        with pytest.raises(NoSuchPlace, match=file):
            fill(tmp_path, Edit(file=file, old=old, new=""))


def test_the_rate_of_releases_counts_until_today():
    releases = Releases(("3", "2", "1"), date(2024, 1, 1), date(2024, 2, 1))
    assert releases.per_year(date(2025, 12, 31)) == pytest.approx(1.5, abs=0.01)
    assert releases.per_year(date(2024, 1, 1)) is None


@pytest.mark.parametrize(
    ("elsewhere", "known"),
    [
        ("", 7),
        ('elsewhere = { says = "a hub", source = "a page", dated = 2026-01-02 }', None),
        ('elsewhere = { says = "a hub", source = "a page", dated = 2026-01-02, count = 40 }', 40),
    ],
)
def test_a_catalogue_is_counted_in_all_only_where_all_of_it_is_known(tmp_path, monkeypatch, elsewhere, known):
    who = '{ says = "somebody", source = "the read-me", dated = 2026-01-02, quoted = "by somebody" }'
    (tmp_path / LANDSCAPE_FILE).write_text(
        f"[urls]\n'the read-me' = 'https://example.org/'\n[ecosystem]\nmaker = {who}\nusers = {who}\n{elsewhere}\n[ecosystem.catalogue]\nof = 'games'\nrun = '3 + 4'\n",
        encoding="ascii",
    )
    metadata = {"license": "MIT\n\nthe whole text", "description": "Made by somebody."}
    monkeypatch.setattr(type(STACK), "features_file", property(lambda _: tmp_path / "features.json"))
    monkeypatch.setattr(ecosystem, "ask", lambda stack, **_: Release(stack, metadata, {}, {"3 + 4": 7}, {}))
    monkeypatch.setattr(
        ecosystem, "find_releases", lambda _: Releases(("2", "1"), date(2025, 1, 1), date(2025, 6, 1))
    )
    facts = {fact.row: fact for fact in ecosystem.gather_ecosystem(STACK)}
    assert facts["catalogue"].data == {"count": known}
    assert facts["catalogue"].value.startswith("7 games")
    assert facts["licence"].value == "no name of one"
    assert facts["maker"].evidence[0] == Source(
        title="the read-me", date=date(2026, 1, 2), url="https://example.org/", quoted="by somebody"
    )
    assert facts["last release"].value == "2, 2025-06-01"
    metadata["description"] = "Made by others."
    with pytest.raises(NoSuchPlace, match="by somebody"):
        ecosystem.gather_ecosystem(STACK)


@pytest.mark.parametrize(
    ("metadata", "name"),
    [
        ({"license_expression": "MIT", "license": "another"}, "MIT"),
        ({"license": "Apache-2.0"}, "Apache-2.0"),
        ({"license": "  Apache License\n\n  Version 2.0", "classifier": ["Typing :: Typed", "License :: OSI Approved :: Apache Software License"]},
         "Apache Software License"),
        ({"license": "the whole\ntext"}, "no name of one"),
        ({}, "no name of one"),
    ],
)  # fmt: skip
def test_a_licence_is_named_by_what_names_one_and_never_by_the_first_line_of_its_text(metadata, name):
    assert licence_of(metadata)[1] == name


def ecosystem_of(tmp_path, monkeypatch, text, metadata):
    (tmp_path / LANDSCAPE_FILE).write_text(text, encoding="ascii")
    monkeypatch.setattr(type(STACK), "features_file", property(lambda _: tmp_path / "features.json"))
    monkeypatch.setattr(ecosystem, "ask", lambda stack, **_: Release(stack, metadata, {}, {"1": 1}, {}))
    monkeypatch.setattr(
        ecosystem, "find_releases", lambda _: Releases(("2", "1"), date(2025, 1, 1), date(2025, 6, 1))
    )
    return {fact.row: fact for fact in ecosystem.gather_ecosystem(STACK)}


ONE = """
[ecosystem]
maker = { says = "two people", source = "a page", dated = 2026-01-02, quoted = ["by one", "and another"] }
users = { says = "many", source = "a page", dated = 2026-01-02 }
[ecosystem.catalogue]
of = "games"
one = "game"
run = "1"
"""


def test_every_quotation_is_looked_up_and_what_has_none_says_that_nothing_checks_it(tmp_path, monkeypatch):
    facts = ecosystem_of(tmp_path, monkeypatch, ONE, {"description": "Made by one, and another."})
    assert facts["maker"].value == "two people"
    assert facts["maker"].evidence[0].quoted == "by one [...] and another"
    assert facts["who uses it"].value == "many; said elsewhere, and not checked here"
    assert facts["catalogue"].value == "1 game"
    with pytest.raises(NoSuchPlace, match="and another"):
        ecosystem_of(tmp_path, monkeypatch, ONE, {"description": "Made by one."})


def test_an_address_of_nothing_that_the_file_names_is_refused(tmp_path):
    (tmp_path / LANDSCAPE_FILE).write_text(
        '[urls]\n"a pgae" = "https://example.org/"\n' + ONE, encoding="ascii"
    )
    with pytest.raises(LandscapeError, match="an address of 'a pgae'"):
        read_landscape(tmp_path)


def published_stacks():
    return [stack for folder in ADAPTERS if published_runs((stack := find_stack(folder.name)).adapter)]


def test_what_was_measured_is_read_from_the_records_and_nothing_else():
    # Frameworks that run in process have no ceiling.
    stack = next(stack for stack in published_stacks() if stack.facts.kind == "server")
    facts = {fact.row: fact for fact in scaling.gather_scaling(stack)}
    (run, *_) = published_runs(stack.adapter)
    (ceiling,) = [one for one in run.of(Ceiling) if one.criterion == "slo" and one.subject == "compiled"]
    assert f"{ceiling.lower:,} sessions" in facts["ceiling"].value
    (shown,) = facts["ceiling"].evidence
    assert isinstance(shown, Record)
    written = (run.folder / RECORDS_FILE).read_text(encoding="utf-8").splitlines()
    assert json.loads(written[shown.line - 1]) == json.loads(ceiling.model_dump_json(exclude_none=True))
    assert measurements(run)["ceiling slo per core"].value == ceiling.lower / (run.header.machine.cores or 1)


def test_a_rate_that_a_saturated_generator_set_is_no_figure_of_the_framework():
    stack = next(stack for stack in published_stacks() if stack.facts.kind == "server")
    (run, *_) = published_runs(stack.adapter)
    assert "throughput" in measurements(run)
    saturated = tuple(
        record.model_copy(update={"generator": record.generator.model_copy(update={"saturated": True})})
        if isinstance(record, End) and record.generator
        else record
        for record in run.records
    )
    assert "throughput" not in measurements(replace(run, records=saturated))


def test_what_is_stepped_in_process_shows_its_live_episodes_and_has_no_ceiling():
    for stack in published_stacks():
        facts = {fact.row: fact for fact in scaling.gather_scaling(stack)}
        assert set(scaling.ROWS) <= set(facts)
        if stack.facts.kind == "server":
            assert facts["live episodes"].value == scaling.NO_PROCESS
            continue
        (run, *_) = published_runs(stack.adapter)
        most = live_episodes(run)
        assert most.sessions == max(one.sessions for one in run.of(Live) if one.executor == most.executor)
        assert f"{1e9 / most.step_ns:,.0f} steps/s" in facts["throughput"].value
        assert f"{most.sessions:,} episodes" in facts["live episodes"].value
        assert facts["memory per session"].data[0]["value"] == most.bytes_per_session
        assert {facts[row].value for row in scaling.SEARCHED} == {scaling.NO_SERVER}


def test_a_rate_says_at_which_size_and_how_long_a_step_waits_and_whether_that_is_beyond_the_ceiling():
    stack = next(stack for stack in published_stacks() if stack.facts.kind == "server")
    (run, *_) = published_runs(stack.adapter)
    told, per_core = measurements(run)["throughput"].note, measurements(run)["ceiling slo per core"].note
    assert re.search(r"in one trial, at [\d,]+ sessions.*, each step waits \d+ ms in its tool", told)
    assert "load generator shares" in per_core
    low = tuple(
        record.model_copy(update={"lower": 1, "upper": 2}) if isinstance(record, Ceiling) else record
        for record in run.records
    )
    assert "beyond the ceiling" in measurements(replace(run, records=low))["throughput"].note


def test_a_run_of_an_older_method_says_so_and_one_of_todays_does_not():
    stack = next(stack for stack in published_stacks() if stack.facts.kind == "server")
    (run, *_) = published_runs(stack.adapter)

    def by(method, *, is_asked):
        records = tuple(
            record.model_copy(
                update={
                    "criteria": tuple(
                        one.model_copy(update={"name": "freed" if is_asked else "held"})
                        for one in record.criteria
                    )
                }
            )
            if isinstance(record, Verdict)
            else record
            for record in run.records
        )
        header = run.header.model_copy(update={"method": method})
        return scaling.caveat_of(replace(run, header=header, records=records), is_judged=True)

    assert by(METHOD, is_asked=True) == ""
    assert f"method 1, newer runs have {METHOD}" in by(1, is_asked=True)
    assert "not judged" not in by(1, is_asked=True)
    assert "not judged by `freed`" in by(1, is_asked=False)
    for stack in published_stacks():
        old = any(run.header.method < METHOD for run in published_runs(stack.adapter))
        measured = [fact.value for fact in scaling.gather_scaling(stack) if fact.kind == "measured"]
        assert {f"newer runs have {METHOD}" in value for value in measured} == {old}


def test_without_a_published_run_there_is_no_fact_of_a_ceiling(monkeypatch):
    monkeypatch.setattr(scaling, "published_runs", lambda _: [])
    rows = {fact.row for fact in scaling.gather_scaling(STACK)}
    assert {"model", "isolation"} <= rows
    assert not rows & set(scaling.ROWS)


def test_a_published_figure_compares_only_where_every_condition_is_the_same(tmp_path, monkeypatch):
    (stack, *_) = published_stacks()
    (run, *_) = published_runs(stack.adapter)
    same = scaling.conditions_of(run)
    kept = (stack.features_file.parent / "adapter.toml").read_text(encoding="utf-8")
    (tmp_path / "features.json").write_bytes(stack.features_file.read_bytes())
    (tmp_path / "adapter.toml").write_text(kept, encoding="utf-8")
    monkeypatch.setattr(type(STACK), "features_file", property(lambda _: tmp_path / "features.json"))

    def told(conditions):
        written = ", ".join(f'"{name}" = "{value}"' for name, value in conditions.items())
        text = f'[[published]]\nsays = "many"\nsource = "a page"\ndated = 2026-01-02\nconditions = {{ {written} }}\n'
        assert tomllib.loads(text)
        (tmp_path / LANDSCAPE_FILE).write_text(text, encoding="utf-8")
        (fact,) = [one for one in scaling.gather_scaling(stack) if one.row.startswith("published")]
        assert fact.evidence[0] == Source(title="a page", date=date(2026, 1, 2))
        return fact

    assert told(same).data["compares"] is True
    other = told({**same, "cores": "4096"})
    assert other.data["compares"] is False
    assert f"cores: 4096 there, {same['cores']} here" in other.value
