"""Troubles of SkyRL Gym, each shown on the installed release by the smallest environment that has it."""

from __future__ import annotations

import asyncio
import copy
import inspect
from typing import Any

import skyrl_gym
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput
from skyrl_gym.error import Error
from skyrl_gym.tools.core import ToolGroup, tool

from canonical.trouble import Shown

_register: Any = skyrl_gym.register


class _Notes(ToolGroup):
    def __init__(self) -> None:
        self.written: list[str] = []
        super().__init__("notes")

    @tool
    def write(self, title: str, text: str) -> str:
        """Write a note."""
        self.written.append(f"{title}: {text}")
        return f"{title}: {text}"

    @tool
    async def wait(self) -> str:
        """Wait."""
        return "waited"


class _Noting(BaseTextEnv):
    def __init__(self, env_config: Any = None, extras: Any = None) -> None:  # noqa: ARG002 - as the trainer calls it
        super().__init__()  # type: ignore[no-untyped-call]
        self.notes = _Notes()
        self.init_tool_groups([self.notes])

    def step(self, action: str) -> BaseTextEnvStepOutput:  # type: ignore[override]  # as BaseTextEnv does
        seen = self._execute_tool("notes", "write", ["a", action])
        return BaseTextEnvStepOutput(
            observations=[{"role": "user", "content": seen}], reward=0.0, done=True, metadata={},
            postprocessed_action=None,
        )  # fmt: skip


class _Fragile(BaseTextEnv):
    def __init__(self, closed: list[str], text: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._closed, self._text = closed, text

    def step(self, action: str) -> BaseTextEnvStepOutput:  # type: ignore[override]  # as BaseTextEnv does
        raise ValueError(action)

    def close(self) -> None:
        self._closed.append(self._text)


class _Strict(BaseTextEnv):
    def __init__(self, env_config: Any) -> None:  # noqa: ARG002 - it lacks the other argument
        super().__init__()  # type: ignore[no-untyped-call]


async def one_exception_ends_all_rollouts() -> Shown:
    """Gather four rollouts as SkyRL's generator does, one of which raises in its step."""
    finished: list[int] = []
    closed: list[str] = []

    async def rollout(number: int) -> None:
        if number == 0:
            env = _Fragile(closed, "the one that raised")
            env.step("an action")
            env.close()
        await asyncio.sleep(0.05)
        finished.append(number)

    tasks = [asyncio.ensure_future(rollout(number)) for number in range(4)]
    try:
        await asyncio.gather(*tasks)
    except ValueError as error:
        raised = type(error).__name__
    else:
        raised = "nothing"
    seen = f"{raised} ends the gathering with {len(finished)} of 4 rollouts finished, {len(closed)} environments closed"
    await asyncio.gather(*tasks, return_exceptions=True)
    return Shown(
        "four rollouts through `asyncio.gather`, in one of which `step` raises", seen, raised == "ValueError"
    )


def a_copy_steps_the_original() -> Shown:
    """Copy an environment that has a tool group, and step the copy."""
    env = _Noting()
    copied = copy.deepcopy(env)
    copied.step("text")
    return Shown(
        "`copy.deepcopy` of an environment with a `ToolGroup`, then a step of the copy",
        f"{len(env.notes.written)} note in the original, {len(copied.notes.written)} in the copy",
        bool(env.notes.written),
    )


def arguments_by_name_become_their_names() -> Shown:
    """Give a tool its arguments as the mapping that a call holds."""
    seen = _Noting()._execute_tool("notes", "write", {"title": "one", "text": "two"})  # noqa: SLF001 - SkyRL's way
    return Shown(
        '`_execute_tool("notes", "write", {"title": "one", "text": "two"})`',
        f"{seen!r}",
        seen == "title: text",
    )


def arguments_are_not_checked() -> Shown:
    """Call a tool with a number where it says text."""
    group = _Notes()
    seen = group.execute_tool("write", title=1, text=["a"])
    written: Any = group.get_tool("write")
    signature = str(inspect.signature(written))
    return Shown(
        "`execute_tool` of a tool `(title: str, text: str)` with a number and a list",
        f"it runs: {seen!r}; the signature that it shows is {signature}",
        seen == "1: ['a']",
    )


def tools_that_wait_are_not_awaited() -> Shown:
    """Call a tool that is a coroutine."""
    returned = _Notes().execute_tool("wait")
    is_coroutine = inspect.iscoroutine(returned)
    if is_coroutine:
        returned.close()
    return Shown("`execute_tool` of an `async def`", f"a {type(returned).__name__}", is_coroutine)


def nobody_tells_the_model_of_tools() -> Shown:
    """Start an episode of an environment that has tools."""
    prompt = [{"role": "user", "content": "Write a note."}]
    said, metadata = _Noting().init(list(prompt))
    return Shown(
        "`init` of an environment with a `ToolGroup`",
        f"messages {said}, metadata {metadata}",
        said == prompt and not metadata,
    )


def registering_again_is_an_error() -> Shown:
    """Register an id twice, as a module does that is imported under two names."""
    name = "rosetta-noting"
    if name not in skyrl_gym.registry:
        _register(id=name, entry_point=_Noting)
    try:
        _register(id=name, entry_point=_Noting)
    except Error as error:
        return Shown("`register` of the same id and class again", type(error).__name__, True)
    return Shown("`register` of the same id and class again", "nothing", False)


def a_wrong_argument_prints_the_whole_row() -> Shown:
    """Make an environment whose constructor does not take what it is given."""
    name = "rosetta-strict"
    if name not in skyrl_gym.registry:
        _register(id=name, entry_point=_Strict)
    row = {"reward_spec": {"ground_truth": "crane"}}
    try:
        skyrl_gym.make(name, env_config={}, extras=row)
    except TypeError as error:
        has_answer = "crane" in str(error)
        told = "holds" if has_answer else "does not hold"
        return Shown(
            "`make` with a row whose ground truth is `crane`, of a class that does not take it",
            f"the text of the TypeError {told} `crane`",
            has_answer,
        )
    return Shown("`make` with a row, of a class that does not take it", "it is made", False)


def one_turn_unless_told() -> Shown:
    """Read how many turns an environment has by default."""
    most = BaseTextEnv().max_turns  # type: ignore[no-untyped-call]
    return Shown("`BaseTextEnv().max_turns`", str(most), most == 1)
