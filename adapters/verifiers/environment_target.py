"""The target of releases before 0.4: an environment becomes a `StatefulToolEnv` with a data set and a `Rubric`.

One rollout is one episode. It lives in the environment, under the rollout's `trajectory_id`, and not in the state, which
trainers store and send on.
"""

from __future__ import annotations

import inspect
import json
import math
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from adapters.verifiers.live import LiveEpisode, RolloutError
from adapters.verifiers.messages import TEXT_KEY, read_action, write_content
from canonical.content import Message
from canonical.environment import Environment
from canonical.episode import Episode, StartError
from canonical.reward import finish
from canonical.step import Cause, Ending
from canonical.task import Task

# Named by texts, because the type checker of a newer release knows neither of them.
vf: Any = import_module("verifiers")
types: Any = import_module("verifiers.types")

_KINDS = {
    "system": types.SystemMessage,
    "user": types.UserMessage,
    "assistant": types.AssistantMessage,
}


class EpisodeError(vf.Error):  # type: ignore[misc]
    """Report that a rollout's episode failed; Verifiers stops this rollout, and no other, and keeps the error."""


class CompiledEnvironment(vf.StatefulToolEnv):  # type: ignore[misc]
    """Play an environment under Verifiers.

    Verifiers' own limit on turns is off by default, because it stops a rollout before the last call is carried out; the
    episode knows its budget. Text without a call goes on, too: the episode says what is wrong with it.

    Args:
        environment: The environment.
        split: The split that becomes the data set; by default the first.
        eval_split: The split that becomes the data set for evaluation; by default the second, or the only one.
        seed: The seed of the episodes.
        options: Passed on to `StatefulToolEnv`, such as `system_prompt`, `timeout_seconds` or `max_turns`.

    Attributes:
        environment: The environment.
        live: The episodes of rollouts that go on right now.
    """

    def __init__(
        self,
        environment: Environment[Any],
        *,
        split: str | None = None,
        eval_split: str | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        self.environment = environment
        self.live: set[LiveEpisode] = set()
        self._episodes: dict[str, LiveEpisode] = {}
        tasks = environment.tasks()
        train = tasks.split(tasks.training_split if split is None else split)
        evaluation = tasks.split(tasks.evaluation_split if eval_split is None else eval_split)
        rubric = vf.Rubric(funcs=[episode_return])
        for metric in (solved, truncated, turns):
            rubric.add_metric(metric)
        with signals_kept():
            super().__init__(
                tools=[],
                dataset=lambda: self._dataset(train, seed),
                eval_dataset=lambda: self._dataset(evaluation, seed),
                rubric=rubric,
                **{"max_turns": -1, **options},
            )
        for tool in environment.tools:
            self.add_tool(
                self._function(tool.name, tool.spec.description), args_to_skip=["rollout", "arguments"]
            )
        # The functions take whatever the model wrote; what it is told of them is the schema that the episode checks.
        self.tool_defs = [
            types.Tool(
                name=tool.name, description=tool.spec.description, parameters=dict(tool.spec.parameters)
            )
            for tool in environment.tools
        ]

    def row(self, task: str, seed: int) -> dict[str, Any]:
        """Return the row of a data set that plays a task; the prompt is put in its place when the rollout begins."""
        return {
            "prompt": [{"role": "user", "content": self._description()}],
            "example_id": 0,
            "info": json.dumps({"task_id": task, "seed": seed}),
        }

    def _description(self) -> str:
        return inspect.getdoc(type(self.environment)) or self.environment.name

    def rows(self, tasks: Sequence[Task], seed: int) -> list[dict[str, Any]]:
        """Return the rows of a data set; their prompts are previews of what the rollout will put in their place."""
        rows = []
        for index, task in enumerate(tasks):
            row = self.row(task.id, seed)
            rows.append({**row, "prompt": self._preview(task, seed) or row["prompt"], "example_id": index})
        return rows

    def _dataset(self, tasks: Sequence[Task], seed: int) -> Any:
        # Loaded only where a data set is wanted: it takes longer to import than everything else here.
        return import_module("datasets").Dataset.from_list(self.rows(tasks, seed))

    def _preview(self, task: Task, seed: int) -> list[dict[str, Any]] | None:
        """Return the prompt of an episode, unless the environment has to wait for its beginning."""
        environment = self.environment
        if inspect.iscoroutinefunction(environment.start) or inspect.iscoroutinefunction(environment.close):
            return None
        try:
            episode = Episode.open(environment, task, seed=seed)
        except StartError:
            return None
        finish(episode.close_async())
        return [{"role": message.role, "content": message.text} for message in episode.prompt]

    async def setup_state(self, state: Any) -> Any:
        """Start the episode of a rollout, and show what its model reads first.

        Raises:
            EpisodeError: The row names no task, or the environment could not start.
        """
        info = state.get("info") or {}
        try:
            live = await LiveEpisode.open(
                self.environment, str(info.get("task_id")), int(info.get("seed", 0)), self.live
            )
        except (RolloutError, TypeError, ValueError) as error:
            raise EpisodeError(str(error)) from None
        self._episodes[state["trajectory_id"]] = live
        state["prompt"] = [
            *(message for message in state["prompt"] if message.role == "system" and self.system_prompt),
            *(_message(message) for message in live.episode.prompt),
        ]
        state["episode"] = live.books()
        return state

    def update_tool_args(
        self,
        tool_name: str,  # noqa: ARG002 - Verifiers asks for it
        tool_args: dict[str, Any],
        messages: Any,  # noqa: ARG002
        state: Any,
        **_: Any,
    ) -> dict[str, Any]:
        """Return the arguments of `call_tool`: which rollout calls, and what the model wrote."""
        return {"rollout": state["trajectory_id"], "arguments": tool_args}

    def _function(self, name: str, description: str) -> Any:
        async def call(rollout: str, arguments: dict[str, Any]) -> Any:
            action = read_action(name, json.dumps(arguments))
            result = await self._live({"trajectory_id": rollout}).step(action)
            return write_content(result.observation.blocks)

        call.__name__ = call.__qualname__ = name
        call.__doc__ = description
        # Verifiers reads them where the names of this module are unknown.
        call.__annotations__ = {"rollout": str, "arguments": dict, "return": object}
        return call

    def _live(self, state: Any) -> LiveEpisode:
        try:
            return self._episodes[state["trajectory_id"]]
        except KeyError:
            raise EpisodeError(
                "this rollout has no episode: it was not set up, or has been cleaned up"
            ) from None

    async def env_response(self, messages: Any, state: Any, **_: Any) -> Any:
        """Carry out the calls of the last message, in order, or its text when it has none.

        The step of the trajectory gets its reward, and `results` in its extras: error code, reward, total, ending, cause
        and components of every action.

        Raises:
            EpisodeError: No valid reward could be computed.
        """
        live, last = self._live(state), messages[-1]
        step = state["trajectory"][-1]
        before = len(live.results)
        answers: list[Any] = []
        rewards: list[float] = []
        try:
            for call in last.tool_calls or ():
                result = await live.step(read_action(call.name, call.arguments))
                rewards.append(result.reward)
                content = write_content(result.observation.blocks)
                answers.append(types.ToolMessage(role="tool", content=content, tool_call_id=call.id))
            if not answers:
                text = step["extras"].get(TEXT_KEY, last.content)
                result = await live.step(text if isinstance(text, str) else "")
                rewards.append(result.reward)
                answers.append(
                    types.UserMessage(role="user", content=write_content(result.observation.blocks))
                )
        except RolloutError as error:
            raise EpisodeError(str(error)) from None
        finally:
            step["reward"] = math.fsum(rewards)
            step["extras"]["results"] = live.results[before:]
            state["episode"] = live.books()
        if live.is_over:
            # Without it the model would be asked once more.
            state["final_env_response"] = answers
        return answers

    @vf.stop(priority=50)  # type: ignore[untyped-decorator, unused-ignore]
    async def episode_over(self, state: Any) -> bool:
        """End the rollout with its episode."""
        live = self._episodes.get(state["trajectory_id"])
        return live is not None and live.is_over

    async def no_tools_called(self, state: Any) -> bool:  # noqa: ARG002
        """Go on after a text without a call; overriding it without the decorator takes Verifiers' own stop away."""
        return False

    @vf.cleanup(priority=50)  # type: ignore[untyped-decorator, unused-ignore]
    async def free_episode(self, state: Any) -> None:
        """End and free the episode; one that was stopped from outside is truncated, so that its state is scored."""
        live = self._episodes.pop(state["trajectory_id"], None)
        if live is None:
            return
        try:
            await live.end(_cause_of(state))
        except RolloutError as error:
            state["error"] = state.get("error") or EpisodeError(str(error))
        state["episode"] = live.books()


async def episode_return(state: Any) -> float:
    """Pay the return of the episode."""
    return float(state.get("episode", {}).get("total", 0.0))


async def solved(state: Any) -> float:
    """Say whether the task was solved."""
    return float(state.get("episode", {}).get("cause") == Cause.SOLVED)


async def truncated(state: Any) -> float:
    """Say whether something outside the task ended the episode, such as its budget of turns."""
    return float(state.get("episode", {}).get("ending") == Ending.TRUNCATED)


async def turns(state: Any) -> float:
    """Count the turns that the episode charged."""
    return float(state.get("episode", {}).get("turn", 0))


def _message(message: Message) -> Any:
    content = write_content(message.blocks)
    if message.role == "tool":
        return types.ToolMessage(role="tool", content=content, tool_call_id="prompt")
    return _KINDS[message.role](role=message.role, content=content)


def _cause_of(state: Any) -> Cause | None:
    """Return why a rollout has stopped whose episode goes on, or None when it was abandoned."""
    stop = state.get("stop_condition")
    if state.get("error") is not None:
        return Cause.ERROR
    if stop == "timeout_reached":
        return Cause.TIMEOUT
    return None if stop is None else Cause.BUDGET


@contextmanager
def signals_kept() -> Iterator[None]:
    """Keep the process's own answers to signals: the constructor of Verifiers replaces them.

    Raises:
        RuntimeError: This is not the main thread, in which alone Verifiers can be constructed.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "an environment of this release of Verifiers sets signal handlers, so make it in the main thread"
        )
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            if handler is not None:
                signal.signal(number, handler)


def task_ids(environment: Environment[Any], split: str) -> list[str]:
    """Return the ids of the tasks of a split, from the data set of an environment that plays it.

    Raises:
        canonical.task.UnknownTaskError: There is no such split.
    """
    rows = CompiledEnvironment(environment, split=split).get_dataset()
    return [json.loads(row["info"])["task_id"] for row in rows]


def compile_environment(environment: Environment[Any], **options: Any) -> CompiledEnvironment:
    """Return the environment as a `StatefulToolEnv`; see `CompiledEnvironment` for the options."""
    return CompiledEnvironment(environment, **options)
