"""Scenarios of places: every split is opened where it is named, and what is dear is played to its end once."""

from __future__ import annotations

from typing import Any

import pytest

from bench.scenarios import Scenario, place_scenarios
from canonical.catalogue import load_environment
from canonical.environment import Environment


def steps(scenario: Scenario, session: str) -> int:
    return sum(one.kind == "step" and one.session == session for group in scenario.rounds for one in group)


def places(environment: Environment[Any]) -> dict[str, list[Scenario]]:
    found: dict[str, list[Scenario]] = {split: [] for split in environment.tasks().splits}
    for scenario in place_scenarios(environment):
        found[scenario.places["a"].split].append(scenario)
    return found


@pytest.mark.parametrize(("name", "count"), [("wordle", 5), ("coding_agent", 2)])
def test_every_split_is_opened_at_its_last_place_and_before(name: str, count: int) -> None:
    environment = load_environment(name)
    for split, scenarios in places(environment).items():
        tasks = environment.tasks().split(split)
        opened = [scenario.places["a"].index for scenario in scenarios]
        assert len(opened) == count
        assert {len(tasks) // 2, len(tasks) - 1} <= set(opened)
        for scenario in scenarios:
            index = scenario.places["a"].index
            assert index is not None
            assert {task for task, _ in scenario.sessions.values()} == {tasks[index].id}


def test_of_a_dear_environment_one_episode_of_every_split_is_played_to_its_end() -> None:
    environment = load_environment("coding_agent")
    assert environment.dear
    for scenarios in places(environment).values():
        oracles = [
            len([*environment.oracle(environment.tasks().get(one.sessions["a"][0]))]) for one in scenarios
        ]
        assert [steps(one, "a") for one in scenarios] == [oracles[0], *[1] * (len(scenarios) - 1)]
        assert {steps(one, "b") for one in scenarios} == {1}
