"""What is shown steers no terminal, whoever wrote it, and logs are told what goes on."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.progress import Progress
from rosetta.console import Console, visible

STEERING = "\x1b[2J\x1b]0;title\x07\x1b]52;c;Y2xpcGJvYXJk\x07\x9b31m\r\x08\x7f\u202eback\u2066"


@given(st.text())
def test_only_lines_and_tabs_are_left_of_what_controls(text: str) -> None:
    shown = visible(text)
    assert {letter for letter in shown if unicodedata.category(letter) == "Cc"} <= {"\n", "\t"}
    assert visible(shown) == shown


@given(st.text(st.characters(exclude_categories=["Cc", "Cf", "Zl", "Zp"])))
def test_other_text_is_shown_as_it_is(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize("as_json", [False, True])
def test_a_result_steers_nothing_and_json_keeps_every_character(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    Console(as_json=as_json).result(STEERING, {"text": STEERING})
    out = capsys.readouterr().out
    assert not set("\x1b\x07\x9b\r\x08\x7f\u202e\u2066") & set(out)
    if as_json:
        assert json.loads(out) == {"text": STEERING}
    else:
        assert r"\x1b[2J" in out


def test_where_there_is_no_terminal_each_part_of_long_work_is_told_when_it_begins_and_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = []
    with Console().progress() as show:
        for done in range(4):
            show(Progress("episodes", done, 3, "0 differ"))
            told.append(capsys.readouterr().err)
    assert told == ["episodes: begun, 3 to do\n", "", "", "episodes: done, 0 differ\n"]
