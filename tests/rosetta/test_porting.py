"""`rosetta port` writes a package, says what it has written, and says why it has not."""

from __future__ import annotations

import json

import pytest

from bench.stacks import ROOT
from rosetta.__main__ import main

EXAMPLE = str(ROOT / "docs" / "examples" / "higher_lower.py")


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(["port", *map(str, arguments)])
    return ended.value.code


def test_a_loss_that_nobody_accepted_is_refused_before_anything_is_written(tmp_path, capsys):
    assert run(EXAMPLE, "--to", "openenv", "--out", tmp_path / "out") == 1
    said = capsys.readouterr()
    assert "state between turns: an episode that is stored, restored or forked" in said.err
    assert "--accept state-between-turns" in said.err
    assert not (tmp_path / "out").exists()

    assert run(EXAMPLE, "--to", "openenv", "--out", tmp_path / "out", "--accept", "state-between-turns") == 0
    ledger = json.loads((tmp_path / "out" / "loss.json").read_text())["ledger"]
    assert {entry["piece"] for entry in ledger if entry["status"] == "lost"} == {"state between turns"}
    assert len({entry["piece"] for entry in ledger}) == 11
    assert "| state between turns | lost |" in (tmp_path / "out" / "PORT.md").read_text()


def test_a_program_reads_what_was_written(tmp_path, capsys):
    assert run(EXAMPLE, "--to", "gem", "--out", tmp_path / "out", "--json") == 0
    said = capsys.readouterr()
    written = json.loads(said.out)
    assert (written["framework"], written["module"]) == ("gem", "higher_lower_gem")
    assert all((tmp_path / "out" / name).is_file() for name in written["files"])
    assert said.err == ""


def test_a_person_reads_where_it_is_and_what_comes_next(tmp_path, capsys):
    assert run(EXAMPLE, "--to", "gem", "--out", tmp_path / "out") == 0
    said = capsys.readouterr()
    assert str(tmp_path / "out") in said.out
    assert "README.md" in said.out
    assert "writing" in said.err


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ((EXAMPLE, "--to", "gem"), 3, "is not empty; nothing was written"),
        ((EXAMPLE, "--to", "none"), 2, "there is no framework 'none'"),
        (("none", "--to", "gem"), 2, "there is no environment 'none'"),
    ],
)
def test_what_is_refused_is_said_in_one_line_and_changes_nothing(tmp_path, capsys, arguments, code, text):
    (tmp_path / "mine").write_text("mine")
    assert run(*arguments, "--out", tmp_path, "--quiet") == code
    said = capsys.readouterr()
    assert text in " ".join(said.err.split())
    assert said.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
