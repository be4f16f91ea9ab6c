"""What the core answers is what a person last agreed to, byte for byte.

Both sides of a conformance run stand on the same core, so a fault in it would go unseen there. It shows here.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from canonical.transcript import Transcript, first_difference
from tests.canonical.miniatures import environment_of
from tests.canonical.playing import play
from tests.golden.record import GOLDEN, record

FOLDER = Path(__file__).parent
LINES = {name: (FOLDER / name).read_text(encoding="ascii").splitlines() for name in GOLDEN}
NAMES = {name: [scenario.name for scenario in scenarios()] for name, scenarios in GOLDEN.items()}
CASES = [
    pytest.param(line, id=f"{name.removesuffix('.jsonl')}-{title}")
    for name in GOLDEN
    for title, line in zip(NAMES[name], LINES[name], strict=True)
]


@pytest.mark.parametrize("line", CASES)
def test_the_recorded_actions_give_the_recorded_transcript(line: str) -> None:
    golden = Transcript.from_line(line)
    played = play(
        environment_of(golden.environment), golden.task, golden.seed, [step.action for step in golden.steps]
    )
    difference = first_difference(golden, played)
    assert difference is None, f"left is the golden transcript, right is what happened now: {difference}"
    assert played.to_line() == line


@pytest.mark.parametrize("name", GOLDEN)
def test_a_new_recording_gives_every_golden_file_byte_for_byte(name: str) -> None:
    assert record(GOLDEN[name]()).splitlines() == LINES[name]


def test_scenarios_have_names_of_their_own() -> None:
    for names in NAMES.values():
        assert len(set(names)) == len(names)


class TestScript:
    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(FOLDER / "record.py"), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    def test_it_compares_and_writes_only_when_told_to(self, tmp_path: Path) -> None:
        for name in GOLDEN:
            shutil.copy(FOLDER / name, tmp_path / name)
        same = self.run("--folder", tmp_path)
        assert (same.returncode, same.stderr) == (0, "")

        damaged = (
            (tmp_path / "miniatures.jsonl")
            .read_text(encoding="ascii")
            .replace('"reward":1.0', '"reward":2.0', 1)
        )
        (tmp_path / "miniatures.jsonl").write_text(damaged, encoding="ascii")
        refused = self.run("--folder", tmp_path)
        assert refused.returncode == 1
        assert (
            "line 15 (left is the file, right the new recording): reward differs at step 1" in refused.stderr
        )
        assert "nothing was written; --write overwrites the files" in refused.stderr
        assert (tmp_path / "miniatures.jsonl").read_text(encoding="ascii") == damaged

        assert self.run("--folder", tmp_path, "--write").returncode == 0
        for name in GOLDEN:
            assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        missing = self.run("--folder", tmp_path)
        assert missing.returncode == 1
        assert f"{tmp_path / 'miniatures.jsonl'} does not exist" in missing.stderr
        assert not list(tmp_path.iterdir())
