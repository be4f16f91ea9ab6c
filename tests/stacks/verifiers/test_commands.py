"""Verifiers' own commands accept what is compiled: its validator takes the tasks, and its evaluations play them."""

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

TASK_SETS = {"validate": ("vf-validate", "validate"), "eval": ("vf-eval", "eval")}
"""What the commands for task sets are called, newest name first; where there is `validate`, `vf-eval` is another program."""

pytestmark = pytest.mark.slow
needs_task_sets = pytest.mark.skipif(Target.TASK_SET not in targets(), reason="this release has no task sets")
needs_environments = pytest.mark.skipif(
    Target.ENVIRONMENT not in targets(), reason="this release has no environments"
)


def command(verb):
    newest = (BIN / TASK_SETS["validate"][0]).exists()
    return BIN / TASK_SETS[verb][0 if newest else 1]


def call(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(folder), "SCRIPTED_KEY": "none"}
    done = subprocess.run(
        arguments, capture_output=True, text=True, timeout=240, check=False, cwd=folder, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run(folder, verb, *arguments):
    return call(folder, command(verb), "wordle_tasks", "-n", "2", "-o", folder / "out", *arguments)


def rewards(played, script, environment):
    """Return what an episode of each task pays for a script."""
    expected = {}
    for task in played:
        episode = Episode.open(environment, task)
        for step in script:
            episode.step(step)
        expected[task] = episode.total
    return expected


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "wordle_tasks").mkdir()
    (tmp_path / "wordle_tasks" / "__init__.py").write_text(EXPORT, encoding="utf-8")
    return tmp_path


@needs_task_sets
def test_the_validator_finds_nothing_wrong_with_the_tasks(folder):
    said = run(folder, "validate", "--runtime.type", "subprocess", "--rich", "False")
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


@needs_task_sets
def test_an_evaluation_plays_tasks_and_scores_what_the_episodes_score(folder, wordle, model):
    script = [ToolCall("guess", {"word": word}) for word in WORDS]

    async def main():
        async with model(script) as endpoint:
            await asyncio.to_thread(
                run, folder, "eval", "-m", "scripted", "--client.base-url", endpoint.url,
                "--client.api-key-var", "SCRIPTED_KEY", "--no-push",
            )  # fmt: skip

    asyncio.run(main())
    lines = next(folder.glob("out/*/traces.jsonl")).read_text(encoding="utf-8").splitlines()
    played = {}
    for line in lines:
        trace = json.loads(line)
        episode = _find(trace, "episode")
        played[episode["task"]] = episode["total"]
    assert played == rewards(played, script, wordle)
    assert len(played) == 2


@needs_environments
def test_an_evaluation_plays_an_environment_and_scores_what_the_episodes_score(folder, wordle, model):
    script = [ToolCall("guess", {"word": word}) for word in WORDS]

    async def main():
        async with model(script) as endpoint:
            await asyncio.to_thread(
                call, folder, BIN / "vf-eval", "adapters.verifiers.tasks", "--env-args", '{"environment": "wordle"}',
                "-m", "scripted", "-b", endpoint.url, "-k", "SCRIPTED_KEY", "-n", "2", "-r", "1", "--save-results",
                "--state-columns", "episode",
            )  # fmt: skip

    asyncio.run(main())
    lines = next(folder.rglob("results.jsonl")).read_text(encoding="utf-8").splitlines()
    results = [json.loads(line) for line in lines]
    played = {_find(result, "episode")["task"]: result["reward"] for result in results}
    assert played == rewards(played, script, wordle)
    assert len(played) == 2


def _find(value, name):
    if isinstance(value, dict):
        if name in value and isinstance(value[name], dict) and "task" in value[name]:
            return value[name]
        return next((found for inner in value.values() if (found := _find(inner, name))), None)
    if isinstance(value, list):
        return next((found for inner in value if (found := _find(inner, name))), None)
    return None
