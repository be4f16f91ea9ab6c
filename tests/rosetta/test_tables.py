"""The verbs about frameworks side by side work on published facts, and refuse wrong ones in words."""

from __future__ import annotations

import json

import pytest

from bench.facts import FACTS_FILE, Facts, read_facts, write_facts
from reports.stone.render import render_tables
from rosetta.__main__ import main
from rosetta.tables import PUBLISHED


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(list(arguments))
    shown = capsys.readouterr()
    return left.value.code, shown.out, shown.err


@pytest.mark.slow
def test_tables_are_rendered_into_a_folder_without_any_framework(capsys, tmp_path):
    code, out, _ = run(capsys, "tables", "--out", str(tmp_path / "side"), "--json")
    assert code == 0
    assert json.loads(out)["facts"] == len(read_facts(tmp_path / "side" / FACTS_FILE).facts)
    assert (tmp_path / "side" / "index.html").is_file()
    assert (tmp_path / "side" / "tables" / "words.html").is_file()


def test_a_difference_is_shown_by_its_cell_and_is_a_finding(capsys, tmp_path):
    facts = read_facts(PUBLISHED / FACTS_FILE)
    changed = facts.facts[0].model_copy(update={"value": "something else"})
    write_facts(tmp_path / "b.jsonl", Facts(facts.header, (changed, *facts.facts[1:])))
    same = run(capsys, "tables", "--diff", str(PUBLISHED / FACTS_FILE), str(PUBLISHED / FACTS_FILE))
    assert (same[0], same[1]) == (0, "no cell differs\n")
    code, out, _ = run(capsys, "tables", "--diff", str(PUBLISHED / FACTS_FILE), str(tmp_path / "b.jsonl"))
    assert code == 1
    assert "+ something else" in out
    assert "cells that differ: 1" in out


def test_explain_shows_a_piece_with_its_evidence_and_refuses_what_is_not_known(capsys):
    code, out, _ = run(capsys, "explain", "gem", "reward")
    assert code == 0
    assert "symbol gem.core:Env.step" in out
    code, _, err = run(capsys, "explain", "gem", "colour")
    assert code == 2
    assert "Same concept, six names: environment, task" in err
    assert run(capsys, "explain", "nobody")[0] == 2


def test_facts_that_are_not_whole_are_refused_in_one_line(capsys, tmp_path):
    (tmp_path / "half.jsonl").write_text("{}\n", encoding="ascii")
    code, _, err = run(
        capsys, "tables", "--facts", str(tmp_path / "half.jsonl"), "--out", str(tmp_path / "out")
    )
    assert code == 3
    assert "half.jsonl, line 1" in err


def test_explain_tells_all_that_is_known_of_a_framework_in_every_table(capsys):
    code, out, _ = run(capsys, "explain", "gem", "--json")
    assert code == 0
    told = {(fact["table"], fact["row"]) for fact in json.loads(out)}
    facts = read_facts(PUBLISHED / FACTS_FILE)
    assert told == {(fact.table, fact.row) for fact in facts.of_framework("gem")}
    shown = {
        one.name
        for one in render_tables(facts)
        # Cells that another table tells more of are made of its facts.
        if any(cell.evidence and not cell.table for row in one.rows for cell in row.cells)
    }
    assert {table for table, _ in told} == shown
