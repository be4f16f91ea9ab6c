"""The golden set of an environment is what the core gives today, holds what can happen, and says where a file is wrong."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.golden import golden_cases, record_golden
from canonical.catalogue import UnknownEnvironmentError, environment_names, load_environment
from canonical.content import ErrorCode
from canonical.golden import (
    EPISODES,
    Case,
    GoldenEpisode,
    GoldenError,
    GoldenSet,
    cases_of,
    difference,
    golden_folder,
    record,
)
from canonical.step import Cause, StepResult
from canonical.tool import ToolCall
from tests.canonical import miniatures

RECORDED = [
    # Where actions need a sandbox, a recording takes a hundred times as long.
    pytest.param(name, marks=() if name == "wordle" else pytest.mark.slow)
    for name in environment_names()
    if (golden_folder(load_environment(name)) / EPISODES).is_file()
]
WORDLE = load_environment("wordle")
FILE = golden_folder(WORDLE) / EPISODES


def short(*names: str) -> GoldenSet:
    actions = [ToolCall("add"), "?"]
    return asyncio.run(record(miniatures.Counter(), [Case(name, "train/6", 0, actions) for name in names]))


def results(golden: GoldenSet) -> Iterator[StepResult]:
    return (step.result for episode in golden.episodes for step in episode.transcript.steps)


def test_every_environment_that_ships_has_a_golden_set() -> None:
    assert [recorded.values[0] for recorded in RECORDED] == list(environment_names())


@pytest.mark.parametrize("name", RECORDED)
def test_a_new_recording_gives_the_file_byte_for_byte(name: str) -> None:
    environment = load_environment(name)
    path = golden_folder(environment) / EPISODES
    recorded = asyncio.run(record_golden(environment))
    assert difference(GoldenSet.read(path), recorded) is None
    assert recorded.to_text().encode("ascii") == path.read_bytes()


def test_the_golden_set_of_wordle_holds_what_can_happen() -> None:
    golden = GoldenSet.read(FILE)
    assert len(golden.episodes) >= 500
    assert FILE.stat().st_size < 1_500_000
    assert {result.cause for result in results(golden)} == {None, Cause.SOLVED, Cause.FAILED, Cause.BUDGET}
    assert {result.observation.error for result in results(golden)} == {None, *ErrorCode} - {
        ErrorCode.INTERNAL_ERROR
    }
    assert any(len(result.observation.blocks) > 1 for result in results(golden))
    assert {"oracle", "random", "errors", "adversarial", "unicode", "several", "text", "over", "fuzz"} <= set(
        golden.groups
    )
    tasks = {episode.transcript.task for episode in golden.episodes}
    assert {task.split("/")[0] for task in tasks} == set(WORDLE.tasks().splits)
    assert len(tasks) > 300


@pytest.mark.parametrize("environment", [miniatures.Gallery(), miniatures.Dice()], ids=lambda e: e.name)
def test_any_environment_gets_cases_from_its_tools_with_or_without_an_oracle(environment: Any) -> None:
    cases = list(golden_cases(environment))
    assert len({case.name for case in cases}) == len(cases) > 400
    assert cases == list(golden_cases(environment))
    called = {action.name for case in cases for action in case.actions if isinstance(action, ToolCall)}
    assert {tool.name for tool in environment.tools} <= called


def test_a_set_is_read_back_as_it_was_written_with_prompts_and_images_of_every_kind() -> None:
    looks = [ToolCall("look", {"angle": 90}), "\ud800", ToolCall("leave")]
    gallery = asyncio.run(record(miniatures.Gallery(), [Case("a-1", "train/hall", 0, looks)]))
    prompts = asyncio.run(record(WORDLE, list(cases_of(GoldenSet.read(FILE)))[:2]))
    other = dataclasses.replace(prompts.episodes[1].transcript, prompt=gallery.episodes[0].transcript.prompt)
    mixed = GoldenSet((prompts.episodes[0], GoldenEpisode("other", other)))
    for golden in (gallery, mixed):
        assert GoldenSet.from_text(golden.to_text()) == golden
        assert GoldenSet.from_text(golden.to_text()).to_text() == golden.to_text()


def test_a_changed_episode_is_named_with_its_step() -> None:
    golden = short("a-1", "a-2")
    changed = GoldenSet.from_text(golden.to_text().replace('"reward":0.0', '"reward":0.5', 3))
    told = difference(changed, golden)
    assert told is not None
    assert "episode 'a-1' (left is the file, right the new recording): reward differs at step 0" in told
    assert difference(golden, golden) is None
    assert difference(short("a-1"), golden) == "the file holds 1 episodes, the new recording 2"
    assert difference(short("b-1"), golden) == "episode 'b-1' of the file is 'a-1' in the new recording"
    assert changed.digest() != golden.digest() == short("x-1", "x-2").digest()


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda lines: lines[:1], "a golden set has a heading and at least one episode"),
        (lambda lines: [lines[0], lines[2]], "line 2: a step stands before the first episode"),
        (lambda lines: [*lines[:2], "{"], "line 3: "),
        (lambda lines: [*lines[:2], '{"action": "?"}'], "line 3: it has no 'result'"),
        (lambda lines: [*lines[:2], "7"], "line 3: "),
        (lambda lines: ["{}", *lines[1:]], "line 1: it has no 'environment'"),
    ],
)
def test_a_damaged_file_is_refused_with_the_place(damage: Any, told: str, tmp_path: Path) -> None:
    path = tmp_path / EPISODES
    path.write_text("\n".join(damage(short("a-1").to_text().splitlines())), encoding="ascii")
    with pytest.raises(GoldenError) as refused:
        GoldenSet.read(path)
    assert str(refused.value).startswith(f"{path}: {told}")


def test_a_missing_file_and_names_that_are_used_twice_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GoldenError, match="No such file"):
        GoldenSet.read(tmp_path / EPISODES)
    with pytest.raises(GoldenError, match="these have not: a-1"):
        short("a-1", "a-1")
    with pytest.raises(GoldenError, match="there is no case"):
        short()


def test_an_author_adds_cases_in_a_file_beside_the_set(tmp_path: Path) -> None:
    example = (Path(__file__).parents[2] / "docs/examples/higher_lower.py").read_text(encoding="utf-8")
    (tmp_path / "environment.py").write_text(example, encoding="utf-8")
    environment = load_environment(str(tmp_path))
    folder = golden_folder(environment)
    assert folder == tmp_path / "golden"
    folder.mkdir()
    general = len(list(golden_cases(environment)))
    (folder / "cases.py").write_text("from __future__ import annotations\n", encoding="utf-8")
    with pytest.raises(UnknownEnvironmentError, match="has no function 'cases'"):
        list(golden_cases(environment))
    own = (
        "from canonical.golden import Case\n\n"
        "def cases(environment):\n    yield Case('mine-1', 'train/001', 0, ['?'])\n"
    )
    (folder / "cases.py").write_text(own, encoding="utf-8")
    assert [case.name for case in golden_cases(environment)][general:] == ["mine-1"]


def test_an_author_says_which_of_the_usual_cases_are_played(tmp_path: Path) -> None:
    example = (Path(__file__).parents[2] / "docs/examples/higher_lower.py").read_text(encoding="utf-8")
    (tmp_path / "environment.py").write_text(example, encoding="utf-8")
    environment = load_environment(str(tmp_path))
    usual = [case.name for case in golden_cases(environment)]
    golden_folder(environment).mkdir()
    (golden_folder(environment) / "cases.py").write_text(
        "def keep(environment, case):\n    return case.name.startswith('budget-')\n\n"
        "def cases(environment):\n    return ()\n",
        encoding="utf-8",
    )
    kept = [case.name for case in golden_cases(environment)]
    assert kept == [name for name in usual if name.startswith("budget-")] != []
