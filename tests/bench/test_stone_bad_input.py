"""Situations of bad input say what came of them in words that stay the same, on both sides."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.facts import FACTS_FILE, read_facts
from bench.stacks import ROOT
from bench.stone.bad_input import ALONE, COMPILED, SITUATIONS, TABLE, Side, _short
from canonical.adapter import AdapterFacts
from canonical.content import ErrorCode
from canonical.stone import Trouble
from canonical.tool import ToolCall

ADAPTERS = sorted(path.parent for path in (ROOT / "adapters").glob("*/adapter.toml"))
CALL = ToolCall("no_such_tool", {"word": "crane"})


def test_a_model_that_writes_text_writes_its_wrong_calls_too():
    def side(writes_text):
        return Side(ALONE, worker=None, writes_text=writes_text, url=None)

    assert side(writes_text=False).wrong(CALL) == CALL
    assert "no_such_tool" in side(writes_text=True).wrong(CALL)


@pytest.mark.parametrize("folder", ADAPTERS, ids=lambda folder: folder.name)
def test_a_trouble_that_stands_for_a_situation_names_one_and_alone(folder):
    named = [
        said.situation for said in AdapterFacts.read(folder / "adapter.toml").stone.troubles.values()
        if said.situation is not None
    ]  # fmt: skip
    assert len(named) == len(set(named))
    assert set(named) <= set(SITUATIONS)
    assert "exception in a tool" in named
    assert Trouble.model_fields["situation"].default is None


def test_both_sides_of_every_situation_are_published_without_what_changes_from_run_to_run():
    facts = read_facts(ROOT / "reports" / "published" / "rosetta" / FACTS_FILE)
    rows = [f"{situation}: {side}" for situation in SITUATIONS for side in (ALONE, COMPILED)]
    for subject in facts.subjects:
        mine = [fact for fact in facts.of(TABLE) if fact.framework == subject.framework]
        assert [fact.row for fact in mine] == rows
        assert [fact.value for fact in mine if re.search(r"127\.0\.0\.1:\d|0x[0-9a-f]{6}", fact.value)] == []
        compiled = {fact.row: fact.value for fact in mine if fact.row.endswith(COMPILED)}
        assert all(
            "the episode goes on" in compiled[f"{situation}: {COMPILED}"]
            for situation in ("unknown tool", "bad arguments", "exception in a tool", "oversized message")
        )


def test_what_a_framework_says_by_itself_is_shown_without_codes_of_ours_and_with_what_it_was_given():
    facts = read_facts(ROOT / "reports" / "published" / "rosetta" / FACTS_FILE)
    codes = [f", error {code}" for code in ErrorCode]
    for fact in facts.of(TABLE):
        (probe,) = fact.evidence
        if fact.row.endswith(ALONE):
            assert [code for code in codes if code in fact.value] == []
            if probe.file.startswith("adapters/"):
                assert fact.value == f"given {probe.sent}: {probe.seen}"
        elif fact.row.startswith("unknown tool"):
            assert f", error {ErrorCode.UNKNOWN_TOOL}" in fact.value


def test_a_session_that_was_still_held_is_said_to_have_been_and_nothing_more():
    facts = read_facts(ROOT / "reports" / "published" / "rosetta" / FACTS_FILE)
    rested = [fact.value for fact in facts.of(TABLE) if fact.row.startswith("idle session")]
    assert [value for value in rested if "there is no time to set" in value] == []
    assert any(value.startswith("it is still held after 1.2 s") for value in rested)


@given(text=st.text(max_size=300))
def test_an_answer_is_shown_by_its_first_line_and_no_more_than_a_cell_holds(text):
    shown = _short(text)
    assert "\n" not in shown
    assert len(shown) <= 126
    first = text.split("\n", maxsplit=1)[0]
    if first.isprintable() and len(first) <= 120:
        assert shown[1:-1] == first
