"""A session that does with an environment what SkyRL's generator does, seen as canonical sees sessions.

The generator makes the environment on its event loop and runs `init`, `step` and `close` in a pool of threads; so does
this. Between them it would ask a model for text, which here comes from whoever steps.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from itertools import islice, zip_longest
from typing import Any, ClassVar, NamedTuple, TypeVar

import skyrl_gym
from skyrl_gym.envs.base_text_env import BaseTextEnvStepOutput
from skyrl_gym.envs.registration import EnvSpec

from adapters.skyrl.compiler import NO_TOOLS, CompiledEnvironment, episode_turns
from adapters.skyrl.conversation import Said, add_tools, read_message, take_tools
from canonical.adapter import Opened, SessionError
from canonical.content import JSON, ErrorCode, Observation
from canonical.dialect import TextForm, describe_tools, write_calls
from canonical.episode import SnapshotError, StartError
from canonical.step import NO_COMPONENTS, Cause, StepResult
from canonical.task import UnknownTaskError
from canonical.transcript import Action

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Hold an episode as it was.

    Attributes:
        env: A copy of the environment object.
        paid: The sum of the rewards until then.
        is_over: Whether the episode had ended.
    """

    env: CompiledEnvironment
    paid: float
    is_over: bool


class _Begun(NamedTuple):
    task: str
    seed: int
    conversation: list[Said]


class SkyRLSession:
    """Be one trajectory after another, each with an environment object of its own.

    Args:
        spec: The registration of the compiled class.
        compiled: The compiled class.
        pool: Where `init`, `step` and `close` run; None runs them on the event loop, as the trainer's
            `max_env_workers=0` does.
    """

    seed_chooses: ClassVar[bool] = False

    def __init__(self, spec: EnvSpec, compiled: type[CompiledEnvironment], pool: Executor | None) -> None:
        self._spec = spec
        self._compiled = compiled
        self._pool = pool
        self._env: CompiledEnvironment | None = None
        self._running: Future[Any] | None = None
        self._lost: str | None = None
        self._begun: _Begun | None = None
        self._shown: dict[str, Any] = {}
        self._paid = 0.0
        self._is_over = False

    async def open(self, task: str, seed: int) -> Opened:
        """Start an episode of a task; one that is still open is closed, unless the task is refused.

        Raises:
            SessionError: There is no such task, or the environment failed.
        """
        self._check()
        extras = {
            "extra_info": {"task": task, "seed": seed},
            "max_turns": episode_turns(self._compiled.environment),
        }
        try:
            env: Any = skyrl_gym.make(self._spec, env_config={}, extras=extras)
        except ValueError as error:
            raise SessionError(str(error)) from error
        if self._env is not None:
            await self._run(self._env.close)
        self._env, self._begun = env, None
        conversation, metadata = await self._run(env.init, [])
        self._shown = {"init": metadata, "step": None}
        self._paid, self._is_over = 0.0, False
        if "failure" in metadata:
            raise SessionError(metadata["failure"])
        try:
            described = self._compiled.environment.described_tools
            tools, said = take_tools(conversation, TextForm.HERMES) if described else ((), conversation)
            prompt = tuple(
                read_message(message, texts) for message, texts in zip(said, metadata["texts"], strict=True)
            )
        except (KeyError, TypeError, ValueError) as error:
            raise _malformed("what init returned", error) from error
        self._begun = _Begun(task, seed, conversation)
        return Opened(prompt, tools)

    async def open_at(self, _compiled: Any, split: str, index: int | None, seed: int, /) -> Opened:
        """Start the episode that the row at a place of a split's data set names.

        Raises:
            SessionError: There is no such row, or the environment failed.
        """
        rows = self._compiled.rows(split, seed=seed)
        try:
            row = await self._run(next, islice(rows, index, None))
            info = row["extra_info"]
            named = (info["task"], info["seed"], info["split"], info["index"])
        except (KeyError, StartError, StopIteration, UnknownTaskError) as error:
            raise SessionError(f"row {index} of split {split} cannot be played: {error!r}") from error
        if named[1:] != (seed, split, index):
            raise SessionError(f"row {index} of split {split} with seed {seed} says {info!r}")
        return await self.open(*named[:2])

    async def step(self, action: Action) -> StepResult:
        """Carry out an action: text as it is, a call as the text that a model would write.

        Raises:
            SessionError: There is no episode, JSON cannot carry the call, or no valid reward could be computed.
        """
        self._check()
        if self._env is None:
            raise SessionError("open an episode before stepping")
        try:
            text = action if isinstance(action, str) else write_calls([action])
        except ValueError as error:
            raise SessionError(f"the call cannot be written as text: {error}") from error
        output = await self._run(self._env.step, text)
        self._shown["step"] = output
        if "failure" in output["metadata"]:
            raise SessionError(output["metadata"]["failure"])
        try:
            result = read_output(output)
        except (KeyError, TypeError, ValueError) as error:
            raise _malformed("what step returned", error) from error
        self._paid += output["reward"]
        self._is_over = output["done"]
        return result

    async def public_state(self) -> JSON:
        """Return what the environment shows beside its observations: metadata, metrics and its specification.

        Raises:
            SessionError: There is no episode, or the session is lost.
        """
        self._check()
        if self._env is None:
            raise SessionError("open an episode before asking for its state")
        env: Any = self._env  # `make` gives it an attribute that its class does not declare
        spec = env.spec
        return {
            **self._shown,
            "metrics": self._env.get_metrics(),
            "spec": {"id": spec.id, "kwargs": spec.kwargs},
            "name": str(self._env),
        }

    async def reported_return(self) -> float:
        """Return the sum of the rewards of the steps, as SkyRL's trainer adds them up over a trajectory.

        Raises:
            SessionError: The episode is not over.
        """
        if not self._is_over:
            raise SessionError("the episode is not over, so that it has no return yet")
        return self._paid

    async def reread(self, _compiled: Any, /) -> None:
        """Take the row of the data set, from which the trainer starts, and see that its conversation is the same.

        Raises:
            SessionError: It is another one, or the environment failed.
        """
        begun = self._begun
        if self._env is None or begun is None:
            return
        compiled = self._compiled
        task = compiled.environment.tasks().get(begun.task)
        try:
            row = await self._run(partial(compiled.row, task, seed=begun.seed))
            extras = {**row, "max_turns": episode_turns(compiled.environment)}
            prompt = extras.pop("prompt")
            env: Any = skyrl_gym.make(self._spec, env_config={}, extras=extras)
        except (KeyError, ValueError, StartError) as error:
            raise SessionError(f"the row of task {begun.task} cannot be played: {error}") from error
        try:
            conversation, metadata = await self._run(env.init, prompt)
        finally:
            await self._run(env.close)
        await self._check_forms(extras, prompt)
        played = (metadata.get("task"), metadata.get("seed"))
        if played != (begun.task, begun.seed):
            raise SessionError(f"the row of task {begun.task} and seed {begun.seed} plays {played}")
        for place, (shown, began) in enumerate(zip_longest(conversation, begun.conversation)):
            if shown != began:
                raise SessionError(
                    f"message {place} is {shown!r} from the row of task {begun.task}, and {began!r} from its episode"
                )

    async def _check_forms(self, extras: dict[str, Any], prompt: list[Said]) -> None:
        """Begin the row's episode in every form of calls that a trainer can choose, and see that nothing else changes.

        Raises:
            SessionError: A system message is not the row's with the same tools in that form, or the environment failed.
        """
        tools = [tool.spec for tool in self._compiled.environment.described_tools]
        for form in (*TextForm, None):
            name = NO_TOOLS if form is None else form.value
            env: Any = skyrl_gym.make(self._spec, env_config={"tool_form": name}, extras=extras)
            try:
                conversation, _ = await self._run(env.init, prompt)
            finally:
                await self._run(env.close)
            told = form is not None and tools
            expected = add_tools(prompt, describe_tools(tools, form)) if form and told else prompt
            if conversation != expected:
                raise SessionError(
                    f"with the tool_form {name} the conversation is {conversation!r}, and not {expected!r}"
                )

    async def snapshot(self) -> Snapshot:
        """Return a copy of the environment object, which `copy.deepcopy` makes: SkyRL has no call for it.

        Raises:
            SessionError: There is no episode, or its state is not plain data.
        """
        self._check()
        if self._env is None:
            raise SessionError("open an episode before storing it")
        return Snapshot(await self._copied(self._env), self._paid, self._is_over)

    async def restore(self, snapshot: Snapshot) -> None:
        """Go on with a copy of the copy that a snapshot holds.

        Raises:
            SessionError: The session is lost.
        """
        self._check()
        env = await self._copied(snapshot.env)
        if self._env is not None:
            await self._run(self._env.close)
        self._env, self._paid, self._is_over = env, snapshot.paid, snapshot.is_over

    async def fork(self) -> SkyRLSession:
        """Return a session over a copy of the environment object.

        Raises:
            SessionError: There is no episode, or its state is not plain data.
        """
        kept = await self.snapshot()
        child = SkyRLSession(self._spec, self._compiled, self._pool)
        child._env, child._paid, child._is_over = kept.env, kept.paid, kept.is_over
        child._shown, child._begun = dict(self._shown), self._begun
        return child

    async def _copied(self, env: CompiledEnvironment) -> CompiledEnvironment:
        try:
            return await self._run(copy.deepcopy, env)
        except SnapshotError as error:
            raise SessionError(str(error)) from error

    async def close(self) -> None:
        """Close the environment; while a step is still under way, as soon as it is over."""
        self._lost = self._lost or "it is closed"
        env, self._env = self._env, None
        if env is None:
            return
        if self._pool is None or self._running is None or self._running.done():
            await self._run(env.close)
        else:
            pool = self._pool
            self._running.add_done_callback(lambda _: pool.submit(env.close))

    def _check(self) -> None:
        if self._lost is not None:
            raise SessionError(f"this session cannot be used any more: {self._lost}; connect a new one")

    async def _run(self, function: Callable[..., ResultT], *arguments: Any) -> ResultT:
        if self._pool is None:
            return function(*arguments)
        running = self._running = self._pool.submit(function, *arguments)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            self._lost = "an earlier request was abandoned before its answer came"
            raise


def read_output(output: BaseTextEnvStepOutput) -> StepResult:
    """Return what a step of a compiled environment showed.

    Raises:
        KeyError, TypeError, ValueError: It is not what a compiled environment shows.
    """
    metadata: Any = output["metadata"]
    (message,) = output["observations"]
    error, cause = metadata["error"], None if metadata["cause"] is None else Cause(metadata["cause"])
    ending = None if cause is None else cause.ending
    if output["done"] != (cause is not None) or metadata["ending"] != ending:
        raise ValueError(
            f"done is {output['done']} and ending is {metadata['ending']}, which does not fit the cause {cause}"
        )
    answer = read_message(message, metadata.get("texts"))
    if answer.role != "user" or output.get("postprocessed_action") is not None:
        raise ValueError("an observation is one message of the user, and the action stays as it was written")
    if not isinstance(output["reward"], float):
        raise ValueError(f"the reward is {output['reward']!r}")  # noqa: TRY004 - a wrong value, not a wrong argument
    observation = Observation(answer.blocks, None if error is None else ErrorCode(error))
    return StepResult(
        observation, output["reward"], metadata["total"], cause, metadata["components"] or NO_COMPONENTS
    )


def _malformed(what: str, error: Exception) -> SessionError:
    reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
    return SessionError(f"{what} is not what a compiled environment shows: {reason}")
