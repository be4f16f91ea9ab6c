"""Verifiers' own commands accept the compiled task set: vf-validate takes its tasks, and vf-eval plays them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from adapters.verifiers.compiler import Target, targets
from canonical.episode import Episode
from canonical.tool import ToolCall

BIN = Path(sys.executable).parent
WORDS = ("crane", "sloth", "zzzzz", "bumpy", "fjord", "vixen", "waltz")
EXPORT = "from adapters.verifiers.tasks import EpisodeEnv, EpisodeHarness, EpisodeTaskset\n__all__ = [{}]\n".format(
    '"EpisodeEnv", "EpisodeHarness", "EpisodeTaskset"'
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        targets() != (Target.TASK_SET,) or not (BIN / "vf-validate").exists(),
        reason="this release has no commands of these names for task sets",
    ),
]


def run(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(folder), "SCRIPTED_KEY": "none"}
    done = subprocess.run(
        [BIN / arguments[0], "wordle_tasks", "-n", "2", "-o", folder / "out", *arguments[1:]],
        capture_output=True, text=True, timeout=240, check=False, cwd=folder, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "wordle_tasks").mkdir()
    (tmp_path / "wordle_tasks" / "__init__.py").write_text(EXPORT, encoding="utf-8")
    return tmp_path


def test_vf_validate_finds_nothing_wrong_with_the_tasks(folder):
    said = run(folder, "vf-validate", "--runtime.type", "subprocess", "--rich", "False")
    summary = json.loads(next(folder.glob("out/*/summary.json")).read_text(encoding="utf-8"))
    counts = dict(_numbers(summary))
    assert counts["recorded"] == counts["total"] > 0, said
    for name in ("invalid", "error", "missing", "timeout"):
        assert counts.get(name, 0) == 0, said


def _numbers(value):
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield from _numbers(inner)
        elif isinstance(inner, int):
            yield name, inner


def test_vf_eval_plays_tasks_and_scores_what_the_episodes_score(folder, wordle, model):
    script = [ToolCall("guess", {"word": word}) for word in WORDS]

    async def main():
        async with model(script) as endpoint:
            await asyncio.to_thread(
                run, folder, "vf-eval", "-m", "scripted", "--client.base-url", endpoint.url,
                "--client.api-key-var", "SCRIPTED_KEY", "--no-push",
            )  # fmt: skip

    asyncio.run(main())
    lines = next(folder.glob("out/*/traces.jsonl")).read_text(encoding="utf-8").splitlines()
    played = {}
    for line in lines:
        trace = json.loads(line)
        episode = _find(trace, "episode")
        played[episode["task"]] = episode["total"]
    expected = {}
    for task in played:
        episode = Episode.open(wordle, task)
        for call in script:
            episode.step(call)
        expected[task] = episode.total
    assert played == expected
    assert len(played) == 2


def _find(value, name):
    if isinstance(value, dict):
        if name in value and isinstance(value[name], dict) and "task" in value[name]:
            return value[name]
        return next((found for inner in value.values() if (found := _find(inner, name))), None)
    if isinstance(value, list):
        return next((found for inner in value if (found := _find(inner, name))), None)
    return None
