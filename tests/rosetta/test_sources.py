"""Names of sources, their options, and folders of ports are refused in words, before anything is started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import stacks
from bench.porting.records import PortError
from bench.stacks import (
    StackError,
    UnknownStackError,
    all_stacks,
    find_library,
    find_stack,
    library_names,
    library_stacks,
)
from canonical.bridge.source import LiftError
from canonical.catalogue import UnknownEnvironmentError
from canonical.stone import PieceName
from rosetta.__main__ import cli
from rosetta.console import Console
from rosetta.options import make_ready
from rosetta.sources import flag_of


def refused(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, arguments)
    known = (LiftError, UnknownStackError, UnknownEnvironmentError, PortError)
    if isinstance(result.exception, known):
        return 3, str(result.exception)
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["lend", "wordle"], "names no source; write framework:reference"),
        (["lend", "gym:CartPole"], "there is no framework 'gym'"),
        (["lend", "gem:x", "--source-release", "9.9"], "no supported release '9.9'"),
        (["lend", "gem:x", "--argument", "seed"], "'seed' is not NAME=VALUE"),
        (["lend", "gem:x", "--tasks", "0"], "0 is not in the range"),
        (["serve", "gem:x", "--as", "gem"], "runs environments in process; there is nothing to serve"),
        (["ports", "--from", "gym"], "'gym' is not one of"),
        (["ports", "--to", "reasoning_gym"], "'reasoning_gym' is not one of"),
        (["lend", "reasoning_gym:"], "write framework:reference or library:reference"),
        (["lend", "reasoning_gym:x", "--source-release", "9.9"], "no supported release '9.9'"),
        (
            ["port", "reasoning_gym:x", "--to", "textarena", "--out", "x"],
            "nothing is compiled to a library of tasks",
        ),
        (["stack", "build", "textarena", "--release", "9.9"], "no supported release '9.9'"),
        (["stack", "build", "textarenaa"], "and the libraries of tasks reasoning_gym, textarena"),
    ],
)
def test_what_cannot_be_lifted_is_said(arguments: list[str], words: str) -> None:
    code, said = refused(*arguments)
    assert code != 0
    assert words in " ".join(said.split())


def test_a_port_needs_an_empty_folder_known_pieces_and_readable_actions(tmp_path: Path) -> None:
    command = ["port", "gem:game:X", "--to", "gem", "--out", str(tmp_path / "out")]
    code, said = refused(*command, "--accept", "everything")
    assert (code, "'everything' is not one of" in said) == (2, True)
    actions = tmp_path / "actions.jsonl"
    actions.write_text('"fine"\n\n{"name": 1}\n')
    code, said = refused(*command, "--actions", str(actions))
    assert code == 2
    assert "actions.jsonl, line 3: not an action" in " ".join(said.split())
    assert not (tmp_path / "out").exists()


def test_a_folder_without_a_port_cannot_be_verified(tmp_path: Path) -> None:
    code, said = refused("verify-port", str(tmp_path))
    assert (code, "holds no port" in said) == (3, True)


def test_every_piece_can_be_accepted_by_a_word_without_spaces() -> None:
    words = [flag_of(piece) for piece in PieceName]
    assert len(set(words)) == len(words)
    assert not any(" " in word for word in words)


@pytest.mark.parametrize("library", library_names())
def test_a_library_without_its_stack_is_said_with_the_command_that_builds_it(
    library: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(stacks, "STACKS", tmp_path)
    result = CliRunner().invoke(cli, ["lend", f"{library}:x"])
    assert isinstance(result.exception, StackError)
    assert f"is not built; build it with: rosetta stack build {library}" in str(result.exception)


def test_the_doctor_knows_the_stacks_of_libraries() -> None:
    result = CliRunner().invoke(cli, ["doctor", "--json"])
    rows = {row["stack"] for row in json.loads(result.output)["stacks"]}
    assert {stack.label for stack in [*all_stacks(), *library_stacks()]} == rows


def test_stacks_that_are_missing_are_named_together_with_the_flag_that_builds_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(stacks, "STACKS", tmp_path)
    with pytest.raises(
        StackError, match=r"2 stacks are not built.*gem-llm-0\.1\.0, .*; --build builds them first"
    ):
        make_ready([find_stack("gem"), find_library("textarena")], Console(), build=False)
