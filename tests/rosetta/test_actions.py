"""Files of actions are read or refused with the line that is wrong, whatever they hold; what is read can be shown."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from canonical.strict_json import write_json
from canonical.tool import ToolCall
from canonical.transcript import Transcript
from rosetta.__main__ import cli
from rosetta.actions import ActionsError, read_actions, read_transcripts

DEEP = "[" * 5000 + "]" * 5000
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=9,
)
KEYS = st.sampled_from(
    ["name", "arguments", "environment", "version", "task", "seed", "prompt", "tools", "steps"]
)
LINES = st.one_of(
    st.text(max_size=60),
    VALUES.map(json.dumps),
    st.dictionaries(KEYS, VALUES, max_size=9).map(json.dumps),
    st.sampled_from([DEEP, f'{{"name": "a", "arguments": {{"x": {DEEP}}}}}', "NaN", "1" * 5000, "\ufeff{}"]),
)


@settings(max_examples=60)
@given(lines=st.lists(LINES, min_size=1, max_size=3), loose=st.booleans())
def test_whatever_a_file_holds_it_is_read_or_refused_with_the_place(
    lines: list[str], loose: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "actions.jsonl"
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass" if loose else "replace"))
    for read in (read_actions, read_transcripts):
        refused = ""
        try:
            assert read(path)
        except ActionsError as error:
            refused = str(error)
        assert not refused or refused.startswith(str(path))


@settings(max_examples=20)
@given(
    name=st.text(max_size=9),
    arguments=st.dictionaries(st.text(max_size=9), VALUES, max_size=3),
    said=st.text(max_size=20),
)
def test_what_is_written_as_a_call_or_a_text_is_read_as_it(
    name: str, arguments: dict[str, object], said: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "written.jsonl"
    call = write_json({"name": name, "arguments": arguments})  # type: ignore[dict-item]
    path.write_bytes(f"{call}\n\n{write_json(said)}\n".encode("utf-8", "surrogatepass"))
    assert read_actions(path) == [ToolCall(name, arguments), said]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("policy", "text", "words"),
    [
        ("scripted", '"fine"\n{"name": "guess"}\n', "line 2: an action is a text, or an object"),
        ("scripted", DEEP, "line 1: objects and lists are nested more than 100 deep"),
        ("scripted", "\n\nguess crane\n", "line 3: a value is expected"),
        ("replay", DEEP, "line 1: not JSON: nested too deeply"),
        ("replay", '{"name": "guess", "arguments": {}}', "line 1: not a transcript: 'environment'"),
        ("replay", "", "is empty"),
        ("scripted", " \n", "is empty"),
    ],
)
def test_a_file_of_another_format_is_a_wrong_command_with_the_line(
    policy: str, text: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "actions.jsonl"
    path.write_text(text, encoding="utf-8")
    done = CliRunner().invoke(cli, ["rollout", "wordle", "--policy", policy, "--actions", str(path)])
    assert done.exit_code == 2
    assert f"{path}" in done.output
    assert words in " ".join(done.output.split())
    assert "played with --policy" in done.output or "is empty" in words


@pytest.mark.parametrize("encoding", [pytest.param("utf-8", marks=pytest.mark.slow), "latin-1"])
def test_a_character_that_nothing_can_encode_is_shown_escaped(encoding: str, tmp_path: Path) -> None:
    script, out = tmp_path / "script.jsonl", tmp_path / "out.jsonl"
    script.write_text(
        '{"name": "guess", "arguments": {"word": "\\ud83d"}}\n"\\udc00 \u4f60"\n', encoding="utf-8"
    )
    environment = {"PYTHONIOENCODING": encoding, "PYTHONSAFEPATH": "1", "PATH": ""}
    command = [
        sys.executable,
        "-m",
        "rosetta",
        "rollout",
        "wordle",
        "--policy",
        "scripted",
        "--actions",
        str(script),
    ]
    for extra in (["--out", str(out)], ["--json"]):
        done = subprocess.run([*command, *extra], capture_output=True, env=environment, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        text = done.stdout.decode(encoding)
        assert "\\ud83d" in text
    (played,) = json.loads(text)
    assert played["steps"][1]["action"] == "\udc00 \u4f60"
    (kept,) = out.read_text(encoding="ascii").splitlines()
    assert Transcript.from_line(kept).steps[1].action == "\udc00 \u4f60"
