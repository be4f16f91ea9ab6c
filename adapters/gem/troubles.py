"""Troubles of GEM, each shown on the installed release by the smallest environment that has it."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import gem
from gem.tools.base_tool import BaseTool
from gem.tools.tool_env_wrapper import ToolEnvWrapper
from gem.wrappers.episode_tracking_wrapper import EpisodeTrackingWrapper

from canonical.trouble import Shown


class _Counting(gem.Env):
    """Count steps, and end with the second."""

    def __init__(self, seed: int = 0, **_: Any) -> None:
        super().__init__()
        self.seed = seed
        self.turn = 0

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:  # type: ignore[override]
        super().reset(seed)
        self.turn = 0
        return "first observation", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:  # type: ignore[override]
        self.turn += 1
        return f"answered {action}", float(self.turn), self.turn >= 2, False, {}

    def spawn(self, same_state: bool = False, **kwargs: Any) -> _Counting:
        child = _Counting(**{"seed": self.seed, **kwargs})
        child.turn = self.turn if same_state else 0
        return child


class _Seedless(gem.Env):
    """Take no seed when it is made."""

    def __init__(self) -> None:
        super().__init__()

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:  # type: ignore[override] # noqa: ARG002 - GEM's
        return "", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:  # type: ignore[override] # noqa: ARG002
        return "", 0.0, True, False, {}


class _Raising(_Counting):
    """Raise for one word."""

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:  # type: ignore[override]
        if action == "raise":
            raise ValueError(action)
        return super().step(action)


class _Failing(BaseTool):
    """Recognise every action, and fail."""

    tool_type = "failing"

    def instruction_string(self) -> str:
        return "Write anything."

    def execute_action(self, action: str) -> tuple[bool, bool, str, str]:
        return True, True, "the tool failed", action


class _Deaf(_Failing):
    """Recognise no action."""

    tool_type = "deaf"

    def execute_action(self, action: str) -> tuple[bool, bool, str, str]:
        return False, True, "", action


def _register(name: str, kind: type[gem.Env]) -> None:
    # A probe may be asked twice, and GEM registers once.
    with suppress(ValueError):
        gem.register(name, kind)


def _tools(*kinds: Any) -> list[BaseTool]:
    # Any, because GEM's own constructor has no annotations.
    return [kind() for kind in kinds]


def a_seeded_reset_seeds_the_whole_process() -> Shown:
    """Draw from Python's global generator with and without a reset of an environment in between."""
    before = random.getstate()
    try:
        random.seed(5)
        undisturbed = random.random()  # noqa: S311 - what is looked at
        random.seed(5)
        _Counting().reset(seed=1)
        drawn = random.random()  # noqa: S311
    finally:
        random.setstate(before)
    is_there = drawn != undisturbed
    return Shown(
        "`random.seed(5)`, `env.reset(seed=1)` of an environment that calls `super().reset(seed)`, `random.random()`",
        "another number than without the reset" if is_there else "the same number as without the reset",
        is_there,
    )


def wrappers_keep_the_values_of_when_they_wrapped() -> Shown:
    """Read an attribute through a wrapper after a step."""
    env = _Counting()
    wrapped: Any = EpisodeTrackingWrapper(env)
    wrapped.reset()
    wrapped.step("a")
    return Shown(
        "one step through `EpisodeTrackingWrapper`, then `turn` of the wrapper and of the environment",
        f"{wrapped.turn} of the wrapper, {env.turn} of the environment",
        wrapped.turn != env.turn,
    )


def a_wrapped_environment_cannot_be_spawned() -> Shown:
    """Spawn through a wrapper what can be spawned without it."""
    wrapped: Any = EpisodeTrackingWrapper(_Counting())
    try:
        wrapped.spawn(same_state=True)
    except NotImplementedError as error:
        return Shown(
            "`spawn` of `EpisodeTrackingWrapper` around an environment that has it",
            type(error).__name__,
            True,
        )
    return Shown("`spawn` of `EpisodeTrackingWrapper` around an environment that has it", "another", False)


def a_tool_that_fails_turns_its_call_into_an_answer() -> Shown:
    """Call a tool that fails, beside one that is not meant."""
    env = _Counting()
    wrapped = ToolEnvWrapper(env, _tools(_Failing, _Deaf))
    wrapped.reset()
    seen = wrapped.step("a call")[0]
    return Shown(
        "a call of the first of two tools, which fails, through `ToolEnvWrapper`",
        f"the environment steps {env.turn} time, and the model reads {seen!r}",
        env.turn == 1,
    )


def every_answer_is_marked_as_that_of_a_tool() -> Shown:
    """Step an environment whose tools recognise nothing."""
    wrapped = ToolEnvWrapper(_Counting(), _tools(_Deaf))
    wrapped.reset()
    info = wrapped.step("an answer")[4]
    return Shown(
        "a text that no tool recognises, through `ToolEnvWrapper`",
        f"info: use_tool {info['use_tool']}, tool_use_counter {info['tool_use_counter']}",
        bool(info["use_tool"]) and info["tool_use_counter"] == 0,
    )


def the_last_observation_of_an_episode_is_dropped() -> Shown:
    """End an episode in a vector environment."""
    name = "rosetta:Counting"
    _register(name, _Counting)
    vector: Any = gem.make_vec([name])
    vector.reset()
    vector.step(["one"])
    seen, _, ended, _, infos = vector.step(["two"])
    return Shown(
        "the step that ends an episode, through `make_vec`",
        f"terminated {bool(ended[0])}, observation {seen[0]!r}, info {infos[0]}",
        bool(ended[0]) and "two" not in seen[0] and "two" not in str(infos[0]),
    )


def environments_without_a_seed_cannot_be_made_many() -> Shown:
    """Make a vector environment of a class that takes no seed."""
    name = "rosetta:Seedless"
    _register(name, _Seedless)
    gem.make(name)
    try:
        gem.make_vec([name])
    except TypeError as error:
        return Shown("`make`, then `make_vec`, of a class whose constructor takes nothing", str(error), True)
    return Shown("`make`, then `make_vec`, of a class whose constructor takes nothing", "both work", False)


def an_exception_ends_the_step_of_all() -> Shown:
    """Step two environments together, one of which raises."""
    name = "rosetta:Raising"
    _register(name, _Raising)
    vector: Any = gem.make_vec([name, name])
    vector.reset()
    sent = "a step of two environments through `make_vec`, the second of which raises ValueError"
    try:
        vector.step(["one", "raise"])
    except ValueError as error:
        turns = [env.turn for env in vector.envs]
        return Shown(
            sent, f"{type(error).__name__}, and no answer of the first, whose turn is {turns[0]}", True
        )
    return Shown(sent, "two answers", False)
