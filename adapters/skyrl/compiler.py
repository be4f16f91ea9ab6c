"""Compile an environment into SkyRL's own `BaseTextEnv`, which `skyrl_gym.register` and `skyrl_gym.make` take.

There is no `ToolGroup`: SkyRL's registry of callables is read by nothing outside an environment, a copy of an environment
that has one steps the original, and a tool that is run through it pays nobody. What the model is told of the tools stands
in the system message, and what it writes goes to the episode, which reads the calls.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
import math
import operator
import threading
import weakref
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from adapters.skyrl.conversation import Said, add_tools, texts_of, write_content
from canonical.catalogue import load_environment
from canonical.content import Message, Observation, quote
from canonical.dialect import TextForm, describe_tools
from canonical.environment import Environment
from canonical.episode import Episode
from canonical.reward import ScoringError, finish
from canonical.step import Cause, Ending, StepResult
from canonical.task import Task, UnknownTaskError

ResultT = TypeVar("ResultT")
log = logging.getLogger(__name__)

NO_TOOLS = "none"
"""The value of `tool_form` that leaves the tools out of the system message."""


class CompiledEnvironment(BaseTextEnv):
    """Play one episode of an environment under SkyRL, from `init` to `close`.

    `step` never raises, because one exception aborts the whole batch: when no valid reward can be computed, the episode
    ends with a reward of 0.0, `metadata["failure"]` says why, and the metric `failed` counts it. Whoever would rather
    lose the batch than train on such an episode sets `raise_failures` in `env_config`.

    Args:
        env_config: What the trainer's configuration holds for this environment: a mapping, or an object with attributes.
            `tool_form` is how the system message tells the model to write calls: `hermes` (the default), `xml`, `json`, or
            `none` when the chat template is given the tools itself. `raise_failures` makes failures exceptions.
        extras: The columns of the row. `extra_info` holds `task`, the id of the task, and `seed`, by default 0; `max_turns`
            is how often the trainer steps, after which the episode is truncated.

    Attributes:
        environment: The environment.
        tool_texts: What the system message says of the tools, by form.
        live: The episodes of this class that are open right now.
        waits: Whether the environment needs an event loop.

    Raises:
        ValueError: The row or the configuration is wrong: a mistake that no episode can answer, so it is said at once.
    """

    environment: Environment[Any]
    tool_texts: Mapping[str, str]
    live: set[Episode[Any]]
    waits: bool

    def __init__(self, env_config: Any = None, extras: Mapping[str, Any] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tool_text = _read_form(env_config, self.tool_texts)
        self._raises = bool(_setting(env_config, "raise_failures", default=False))
        row = extras or {}
        self._task, self._seed = _read_row(row, self.environment)
        self._cap = _read_cap(row)
        self.max_turns = episode_turns(self.environment) if self._cap is None else self._cap
        self._begin()

    def _begin(self) -> None:
        self._episode: Episode[Any] | None = None
        self._failure: str | None = None
        self._total = 0.0
        self._errors = 0
        self._cause: Cause | None = None
        self.turns = 0

    def init(self, prompt: Sequence[Mapping[str, Any]]) -> tuple[list[Said], dict[str, Any]]:
        """Start the episode and return what the model reads first; called again, it starts anew.

        Args:
            prompt: The conversation of the row. It is where the model starts, as everywhere in SkyRL; an empty one stands
                for the environment's own prompt. It is not changed.
        """
        self.close()
        self._begin()
        metadata: dict[str, Any] = {"task": self._task.id, "seed": self._seed}
        own: list[Said] = []
        try:
            opening = Episode.open_async(self.environment, self._task, seed=self._seed)
            episode = drive(opening, waits=self.waits)
            self._hold(episode)
            if not prompt:
                own = write_prompt(episode.prompt)
                metadata["texts"] = [texts_of(message.blocks) for message in episode.prompt]
        except (Exception, SystemExit) as error:
            self._fail(f"start task {self._task.id}", error)
            if self._raises:
                raise
            metadata["failure"] = self._failure
        conversation = [dict(message) for message in prompt] or own
        return (add_tools(conversation, self._tool_text) if self._tool_text else conversation), metadata

    def step(self, action: str) -> BaseTextEnvStepOutput:  # type: ignore[override]  # as BaseTextEnv does
        """Carry out what the model wrote: the calls in it, in order."""
        self.turns += 1
        episode = self._episode
        if episode is None:
            self._failure = self._failure or f"{self.environment.name} has no episode here: call init first"
            return self._failed()
        try:
            result = drive(episode.step_async(action), waits=self.waits)
            if self._cap is not None and self.turns >= self._cap and result.cause is None:
                result = self._truncate(episode, result)
        except ScoringError as error:
            # The episode has ended and answers further steps itself; only this step has no reward.
            self._cause, self._failure = episode.cause, f"no valid reward could be computed: {error}"
            if self._raises:
                raise
            return self._failed()
        except (Exception, SystemExit) as error:
            self._fail("carry out the action", error)
            if self._raises:
                raise
            return self._failed()
        observation, blocks = result.observation, result.observation.blocks
        self._total, self._cause = result.total, result.cause
        self._errors += observation.error is not None
        output = _output(result)
        if len(blocks) != 1 and (texts := texts_of(blocks)) is not None:
            output["metadata"]["texts"] = texts
        return output

    def _truncate(self, episode: Episode[Any], result: StepResult) -> StepResult:
        # The trainer steps no more after its own budget, so the state is scored now.
        end = drive(episode.truncate(Cause.BUDGET), waits=self.waits)
        components = dict(result.components)
        for name, value in end.components.items():
            components[name] = components.get(name, 0.0) + value
        reward = math.fsum((result.reward, end.reward))
        return StepResult(result.observation, reward, end.total, end.cause, components)

    def get_metrics(self) -> dict[str, Any]:
        """Return numbers for the trainer's log, which shows their means over the episodes of a batch."""
        ending = None if self._cause is None else self._cause.ending
        return {
            "return": self._total,
            "turns": self.turns,
            "errors": self._errors,
            "terminated": ending is Ending.TERMINATED,
            "truncated": ending is Ending.TRUNCATED,
            "failed": self._failure is not None,
            **{f"cause_{cause}": cause is self._cause for cause in Cause},
        }

    def close(self) -> None:
        """Free the episode. Closing twice is harmless."""
        episode, self._episode = self._episode, None
        if episode is not None:
            self._release.detach()
            drive(_free(episode, self.live), waits=self.waits)

    @classmethod
    def release(cls) -> None:
        """Free every episode of this class that is still open."""
        for episode in list(cls.live):
            drive(_free(episode, cls.live), waits=cls.waits)

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledEnvironment:
        """Return an environment that goes on from here by itself.

        Raises:
            canonical.episode.SnapshotError: The state of the episode is not plain data.
        """
        episode = self._episode
        copied = copy.copy(self)
        if episode is not None:
            copied._hold(episode.fork(1)[0])  # noqa: SLF001 - of its own class
        memo[id(self)] = copied
        return copied

    @classmethod
    def rows(cls, split: str | None = None, *, seed: int = 0) -> Iterator[dict[str, Any]]:
        """Yield the data set of a split, or of all of them, in the columns that SkyRL's trainer reads.

        What a task keeps secret is in no row; the environment knows it by the id of the task.

        Args:
            split: The name of a split.
            seed: The seed of every episode.

        Raises:
            canonical.task.UnknownTaskError: There is no such split.
            canonical.episode.StartError: A task could not be started to see its prompt.
        """
        tasks = cls.environment.tasks()
        for index, task in enumerate(tasks if split is None else tasks.split(split)):
            yield cls.row(task, index=index, seed=seed)

    @classmethod
    def row(cls, task: Task, *, index: int = 0, seed: int = 0) -> dict[str, Any]:
        """Return one row of the data set; the task is started once to see its prompt.

        Raises:
            canonical.episode.StartError: The task could not be started.
        """

        async def look() -> list[Said]:
            episode = await Episode.open_async(cls.environment, task, seed=seed)
            try:
                return write_prompt(episode.prompt)
            finally:
                await episode.close_async()

        return {
            "data_source": cls.environment.name,
            "prompt": drive(look(), waits=cls.waits),
            "env_class": cls.environment.name,
            "reward_spec": {"method": "rule"},
            "extra_info": {"task": task.id, "split": task.split, "index": index, "seed": seed},
        }

    def _hold(self, episode: Episode[Any]) -> None:
        self._episode = episode
        self.live.add(episode)
        # A trainer that fails does not close; an environment that nobody holds any more still frees its episode.
        self._release = weakref.finalize(self, _abandon, episode, self.live, waits=self.waits)

    def _fail(self, doing: str, error: BaseException) -> None:
        self._failure = f"{self.environment.name} could not {doing}: {type(error).__name__}"
        _warn(self._failure, error)
        self.close()

    def _failed(self) -> BaseTextEnvStepOutput:
        cause = self._cause = self._cause or Cause.ERROR
        seen = Observation.of("The episode has ended: it cannot be scored.")
        output = _output(StepResult(seen, 0.0, self._total, cause))
        output["metadata"]["failure"] = self._failure
        return output


def _output(result: StepResult) -> BaseTextEnvStepOutput:
    observation, cause = result.observation, result.cause
    content: Any = write_content(observation.blocks)
    return BaseTextEnvStepOutput(
        observations=[{"role": "user", "content": content}],
        reward=result.reward,
        done=cause is not None,
        metadata={
            "error": None if observation.error is None else observation.error.value,
            "total": result.total,
            "components": dict(result.components),
            "ending": None if cause is None else cause.ending.value,
            "cause": None if cause is None else cause.value,
        },
        postprocessed_action=None,
    )


def write_prompt(prompt: Sequence[Message]) -> list[Said]:
    """Return the messages of a prompt as SkyRL carries them."""
    return [{"role": message.role, "content": write_content(message.blocks)} for message in prompt]


def episode_turns(environment: Environment[Any]) -> int:
    """Return how many steps an episode can take: with so many in the trainer's `max_turns`, none is cut short."""
    return environment.max_turns + environment.free_errors


def _setting(config: Any, name: str, *, default: Any) -> Any:
    # Trainers pass a plain dict for environments that they do not know, and objects for those in their configuration.
    return config.get(name, default) if isinstance(config, Mapping) else getattr(config, name, default)


def _read_form(config: Any, texts: Mapping[str, str]) -> str:
    form = _setting(config, "tool_form", default=TextForm.HERMES.value)
    if form == NO_TOOLS:
        return ""
    if form not in texts:
        known = ", ".join([*texts, NO_TOOLS])
        raise ValueError(f"env_config: tool_form must be one of {known}, not {quote(str(form))}")
    return texts[form]


def _read_row(row: Mapping[str, Any], environment: Environment[Any]) -> tuple[Task, int]:
    info = row.get("extra_info")
    if not isinstance(info, Mapping) or not isinstance(info.get("task"), str):
        raise ValueError(  # noqa: TRY004 - a wrong value in a row; SkyRL prints all arguments of a TypeError
            f"the row names no task: extra_info needs the key 'task', such as {next(iter(environment.tasks())).id!r} "
            "(python -m adapters.skyrl.dataset writes such rows)"
        )
    try:
        task = environment.tasks().get(info["task"])
    except UnknownTaskError as error:
        raise ValueError(f"{environment.name}: {error}") from None
    return task, _integer(info.get("seed", 0), "extra_info: seed")


def _read_cap(row: Mapping[str, Any]) -> int | None:
    cap = row.get("max_turns")
    if cap is None:
        return None
    cap = _integer(cap, "max_turns")
    if cap < 1:
        raise ValueError(f"max_turns must be at least 1, not {cap}")
    return cap


def _integer(value: Any, what: str) -> int:
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise ValueError(f"{what} must be an integer, not {quote(str(value))}")


async def _free(episode: Episode[Any], live: set[Episode[Any]]) -> None:
    try:
        await episode.close_async()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the episode is gone either way, and a trainer goes on
        name = episode.environment.name
        _warn(f"{name} could not close task {episode.task.id}: {type(error).__name__}", error)
    finally:
        live.discard(episode)


def _abandon(episode: Episode[Any], live: set[Episode[Any]], *, waits: bool) -> None:
    # Whatever thread collects garbage, it must not wait: it may be the one that runs the loop.
    if waits:
        asyncio.run_coroutine_threadsafe(_free(episode, live), _loop())
    else:
        finish(_free(episode, live))


def _warn(what: str, error: BaseException) -> None:
    # The text of an unexpected exception may hold the answer, so the log gets its place and not its text.
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = "" if frame is None else f" at {frame.tb_frame.f_code.co_qualname}:{frame.tb_lineno}"
    log.warning("%s%s", what, place)


def drive(work: Coroutine[Any, Any, ResultT], *, waits: bool) -> ResultT:
    """Run the work of an episode to its end, in this thread when it waits for nothing.

    What waits does so on one event loop that all episodes of the process share, beside the trainer's: what coroutines
    hold belongs to a loop, and SkyRL calls `step` in whichever thread is free.
    """
    return asyncio.run_coroutine_threadsafe(work, _loop()).result() if waits else finish(work)


_STARTING = threading.Lock()


def _loop() -> asyncio.AbstractEventLoop:
    with _STARTING:
        return _started_loop()


@cache
def _started_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="rosetta-waiting", daemon=True).start()
    return loop


def compile_environment(environment: Environment[Any]) -> type[CompiledEnvironment]:
    """Return a `BaseTextEnv` class that plays an environment.

    Register it where the trainer runs, under the name that the rows give: `skyrl_gym.register(id="wordle",
    entry_point=compiled)`.
    """
    specs = [tool.spec for tool in environment.described_tools]
    members: dict[str, Any] = {
        "__doc__": inspect.getdoc(type(environment)),
        "__module__": __name__,
        "environment": environment,
        "tool_texts": {form.value: describe_tools(specs, form) if specs else "" for form in TextForm},
        "live": set(),
        "waits": environment.waits,
    }
    return type(type(environment).__name__, (CompiledEnvironment,), members)


@cache
def _compiled(source: str) -> type[CompiledEnvironment]:
    return compile_environment(load_environment(source))


class CatalogueEnvironment(CompiledEnvironment):
    """Play the environment of a name or path, for registrations that must be text.

    For example `skyrl_gym.register(id="wordle", entry_point="adapters.skyrl.compiler:CatalogueEnvironment", kwargs={"source": "wordle"})`.

    Args:
        source: A name of the catalogue, or the path of an `environment.py`.
        env_config: As for `CompiledEnvironment`.
        extras: As for `CompiledEnvironment`.

    Raises:
        canonical.catalogue.UnknownEnvironmentError: There is no such environment.
        ValueError: The row or the configuration is wrong.
    """

    def __init__(self, source: str, env_config: Any = None, extras: Mapping[str, Any] | None = None) -> None:
        compiled = _compiled(source)
        self.environment, self.tool_texts = compiled.environment, compiled.tool_texts
        self.live, self.waits = compiled.live, compiled.waits
        super().__init__(env_config, extras)
