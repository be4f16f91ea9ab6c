"""Contract 1: the same task, seed and actions give the same transcript, byte for byte, whatever else happens."""

from __future__ import annotations

import ast
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import canonical
from canonical.catalogue import load_environment
from canonical.environment import Environment
from canonical.episode import Episode, episode_rng
from canonical.tool import ToolCall
from canonical.transcript import Action, action_from_json, first_difference
from tests.canonical.miniatures import (
    Climb,
    Counter,
    DataclassStore,
    DenseClimb,
    Dice,
    ForgivingCounter,
    Gallery,
    LatestClimb,
    ModelStore,
)
from tests.canonical.playing import Playing, play
from tests.canonical.strategies import (
    climb_calls,
    counter_calls,
    dice_calls,
    draw_calls,
    gallery_calls,
    messy,
    seeds,
)

CASES: list[tuple[Environment[Any], st.SearchStrategy[ToolCall]]] = [
    (Counter(), counter_calls),
    (ForgivingCounter(), counter_calls),
    (Dice(), dice_calls),
    (Climb(), climb_calls),
    (DenseClimb(), climb_calls),
    (LatestClimb(), climb_calls),
    (Gallery(), gallery_calls),
    (DataclassStore(), draw_calls),
    (ModelStore(), draw_calls),
    (
        load_environment("wordle"),
        st.sampled_from([ToolCall("guess", {"word": w}) for w in ("crane", "slate", "zz")]),
    ),
]


Plan = tuple[Environment[Any], str, int, list[Action]]


def plans_of(environment: Environment[Any], calls: st.SearchStrategy[ToolCall]) -> st.SearchStrategy[Plan]:
    tasks = [task.id for task in environment.tasks()][:20]
    return st.tuples(st.just(environment), st.sampled_from(tasks), seeds, st.lists(messy(calls), max_size=14))


def plans() -> st.SearchStrategy[Plan]:
    return st.one_of([plans_of(*case) for case in CASES])


@pytest.mark.parametrize(("environment", "calls"), CASES, ids=[environment.name for environment, _ in CASES])
@settings(max_examples=max(settings().max_examples // 2, 5))
@given(data=st.data())
def test_two_plays_of_one_plan_are_equal(
    environment: Environment[Any], calls: st.SearchStrategy[ToolCall], data: st.DataObject
) -> None:
    plan = data.draw(plans_of(environment, calls))
    first, second = play(*plan), play(*plan)
    assert first_difference(first, second) is None
    assert first.digest() == second.digest()


@given(plans())
def test_the_global_generator_is_neither_read_nor_written(
    plan: Plan,
) -> None:
    random.seed(7)
    before = random.getstate()
    first = play(*plan)
    assert random.getstate() == before
    random.seed(8)
    assert play(*plan).digest() == first.digest()


@pytest.mark.parametrize(
    "module", ["content", "dialect", "environment", "episode", "reward", "step", "task", "tool"]
)
def test_the_core_cannot_read_a_clock_or_entropy(module: str) -> None:
    """What an episode runs on imports nothing whose answers differ from run to run."""
    tree = ast.parse((Path(canonical.__file__).parent / f"{module}.py").read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported.isdisjoint({"datetime", "numpy", "os", "secrets", "socket", "threading", "time", "uuid"})
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert {name for name in called if name.startswith("random.")} <= {"random.Random"}
    assert called.isdisjoint({"id", "hash"})


@given(st.lists(plans(), min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_interleaved_sessions_equal_sequential_ones(many: list[Plan], order: random.Random) -> None:
    alone = [play(*plan) for plan in many]
    together = [Playing(Episode.open(environment, task, seed=seed)) for environment, task, seed, _ in many]
    waiting = [list(plan[3]) for plan in many]
    while left := [index for index, actions in enumerate(waiting) if actions]:
        index = order.choice(left)
        together[index].step(waiting[index].pop(0))
    for expected, playing in zip(alone, together, strict=True):
        assert first_difference(expected, playing.transcript) is None


@given(st.integers(2, 6), plans(), st.randoms(use_true_random=False))
def test_sessions_of_one_task_and_seed_do_not_share_a_generator(
    count: int, plan: Plan, order: random.Random
) -> None:
    environment, task, seed, actions = plan
    expected = play(*plan)
    together = [Playing(Episode.open(environment, task, seed=seed)) for _ in range(count)]
    turns = [index for index in range(count) for _ in actions]
    order.shuffle(turns)
    done = [0] * count
    for index in turns:
        together[index].step(actions[done[index]])
        done[index] += 1
    assert {playing.transcript.digest() for playing in together} == {expected.digest()}


def test_another_seed_gives_other_dice() -> None:
    rolls = [ToolCall("roll", {"sides": 100})] * 3
    transcripts = {
        play(Dice(), "train/0", seed, rolls).steps[-1].result.observation.text for seed in range(30)
    }
    assert len(transcripts) == 30


@pytest.mark.parametrize("part", ["name", "version", "task", "seed"])
def test_the_generator_depends_on_name_version_task_and_seed(part: str) -> None:
    class Renamed(Dice):
        name = "dice_two" if part == "name" else "dice"
        version = "2" if part == "version" else "1"

    first, second = Dice().tasks().get("train/0"), Dice().tasks().get("train/1")
    one = episode_rng(Dice(), first, 1)
    other = episode_rng(Renamed(), second if part == "task" else first, 2 if part == "seed" else 1)
    assert one.random() != other.random()
    assert episode_rng(Dice(), first, 1).random() == episode_rng(Dice(), first, 1).random()


def test_the_first_numbers_of_a_generator_are_fixed_for_ever() -> None:
    """A change here changes every episode of every environment, so it needs a new version of all of them."""
    rng = episode_rng(Dice(), Dice().tasks().get("train/0"), 0)
    assert [rng.randrange(1000) for _ in range(6)] == [546, 323, 235, 948, 669, 198]


_CHILD = """
import json, sys
from tests.canonical.playing import play
from tests.canonical.miniatures import environment_of
from canonical.transcript import action_from_json
for line in sys.stdin:
    name, task, seed, actions = json.loads(line)
    actions = [action_from_json(action) for action in actions]
    print(play(environment_of(name), task, seed, actions).digest())
"""


def test_a_fresh_process_with_another_hash_seed_gives_the_same_digests() -> None:
    """Catches whatever depends on hash order, object addresses, or on what the process did before."""
    lines: list[str] = []
    expected: list[str] = []

    @settings(max_examples=40, derandomize=True, database=None)
    @given(plans())
    def collect(plan: Plan) -> None:
        environment, task, seed, actions = plan
        written = [action if isinstance(action, str) else action.to_json() for action in actions]
        lines.append(json.dumps([environment.name, task, seed, written]))
        expected.append(
            play(environment, task, seed, [action_from_json(w) for w in json.loads(lines[-1])[3]]).digest()
        )

    collect()
    done = subprocess.run(
        [sys.executable, "-c", _CHILD],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": "4242"},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == expected
