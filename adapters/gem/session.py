"""A session over an environment object of GEM, driven as a trainer drives it, seen as canonical sees sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import gem

from adapters.gem.compiler import CompiledEnvironment, Refusal
from adapters.gem.content import read_content, read_message, read_tool
from canonical.adapter import Opened, SessionError
from canonical.content import JSON, ErrorCode, Observation, project_text
from canonical.dialect import TextForm, describe_tools, write_calls
from canonical.step import NO_COMPONENTS, Cause, Ending, StepResult
from canonical.tool import ToolSpec
from canonical.transcript import Action

ResultT = TypeVar("ResultT")


_last_described: list[tuple[tuple[ToolSpec, ...], str]] = [((), "")]


def _described(tools: tuple[ToolSpec, ...]) -> str:
    """Return tools as a model reads them; the text of the last ones is kept, as sessions mostly have the same."""
    known, text = _last_described[0]
    if tools != known or not text:
        text = describe_tools(tools, TextForm.XML)
        _last_described[0] = (tools, text)
    return text


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Hold an episode as it was.

    Attributes:
        state: What `get_state` of the environment object returned.
        paid: The sum of the rewards until then.
        is_over: Whether the episode had ended.
    """

    state: Mapping[str, Any]
    paid: float
    is_over: bool


class _Begun(NamedTuple):
    """Hold the reset with which an episode began, and what it returned."""

    task: str
    seed: int
    shown: tuple[str, dict[str, Any]]


class GemSession:
    """Be one environment object, stepped in a thread as `AsyncVectorEnv` steps it, or where the caller is.

    Args:
        env: What `gem.make` returned.
        threads: Where to call it; None calls it on the event loop, as `SyncVectorEnv` does it in the trainer's thread.
    """

    seed_chooses: ClassVar[bool] = True

    def __init__(self, env: CompiledEnvironment, threads: Executor | None) -> None:
        self._env = env
        self._threads = threads
        self._under_way: Future[Any] | None = None
        self._last: dict[str, Any] = {}
        self._paid = 0.0
        self._is_over = False
        self._begun: _Begun | None = None
        self._ending: dict[str, Any] | None = None

    async def open(self, task: str, seed: int) -> Opened:
        """Start an episode of a task; one that is still open is closed by the environment.

        Raises:
            SessionError: The environment refused or failed.
        """
        return await self._begin(partial(self._env.reset, seed=seed, task=task))

    async def open_at(self, _compiled: Any, split: str, index: int | None, seed: int, /) -> Opened:
        """Start an episode by `reset` with `idx`, or with the seed alone, on an object that GEM makes for the split.

        Raises:
            SessionError: The environment refused or failed.
        """
        try:
            env = cast("CompiledEnvironment", gem.make(self._env.env_id, split=split))
        except Refusal as error:
            raise SessionError(str(error)) from error
        await self._call(self._env.close)
        self._env = env
        return await self._begin(partial(env.reset, seed=seed, idx=index))

    async def _begin(self, reset: Callable[[], tuple[str, dict[str, Any]]]) -> Opened:
        observation, info = await self._call(reset)
        self._last = {"observation": observation, "info": info}
        self._paid, self._is_over = 0.0, False
        self._begun = self._ending = None
        try:
            prompt = tuple(read_message(message) for message in info["messages"])
            tools = tuple(read_tool(tool) for tool in info["tools"])
            # The observation is what a model reads first; prompt and tools come from `info`, which it never sees.
            described = [_described(tools)] if tools else []
            if observation != "\n\n".join([*(message.text for message in prompt), *described]):
                raise ValueError("the observation is not the prompt and the tools")  # noqa: TRY301 - one way out
        except (KeyError, TypeError, ValueError) as error:
            raise _malformed("reset", error) from error
        self._begun = _Begun(info["task"], info["seed"], (observation, info))
        return Opened(prompt, tools)

    async def step(self, action: Action) -> StepResult:
        """Carry out an action; a call is written as text, in the form of GEM's `MCPTool`.

        Raises:
            SessionError: The environment refused or failed, or text cannot carry the call.
        """
        try:
            text = action if isinstance(action, str) else write_calls((action,), TextForm.XML)
        except ValueError as error:
            raise SessionError(str(error)) from error
        observation, reward, terminated, truncated, info = await self._call(partial(self._env.step, text))
        self._last = {"observation": observation, "info": info}
        self._paid += reward
        self._is_over = terminated or truncated
        try:
            result = read_result(observation, reward, terminated, truncated, info)
        except (KeyError, TypeError, ValueError) as error:
            raise _malformed("step", error) from error
        if self._begun is not None and result.cause is not None:
            self._ending = {
                "task": self._begun.task,
                "seed": self._begun.seed,
                "turn": info["turn"],
                "total": result.total,
                "ending": result.cause.ending.value,
                "cause": result.cause.value,
                "observation": observation,
                "components": dict(result.components),
            }
        return result

    async def reread(self, _compiled: Any, /) -> None:
        """Reset to the same episode, as vector environments do after an end, whose last step is then in `previous` alone.

        Raises:
            SessionError: The episode begins otherwise, `previous` is not what the last step showed, or it failed.
        """
        begun = self._begun
        if begun is None:
            return
        observation, info = await self._call(partial(self._env.reset, seed=begun.seed, task=begun.task))
        if (previous := info.pop("previous", None)) != self._ending:
            raise SessionError(
                f"the next reset says of this episode {previous!r}, and its steps {self._ending!r}"
            )
        before = {key: value for key, value in begun.shown[1].items() if key != "previous"}
        if (observation, info) != (begun.shown[0], before):
            raise SessionError(f"a second reset shows {(observation, info)!r}, and the first {begun.shown!r}")

    async def public_state(self) -> JSON:
        """Return the last observation and `info`, and the attributes that wrappers of GEM copy."""
        env = self._env
        attributes = {"env_id": env.env_id, "seed": env.seed, "split": env.split, "max_turns": env.max_turns}
        return {**self._last, "attributes": attributes}

    async def reported_return(self) -> float:
        """Return the sum of the rewards of the steps, as GEM's `EpisodeTrackingWrapper` accumulates them.

        Raises:
            SessionError: The episode is not over.
        """
        if not self._is_over:
            raise SessionError("the episode is not over, so that it has no return yet")
        return self._paid

    async def snapshot(self) -> Snapshot:
        """Return what GEM's `get_state` gives, which is plain data, with the rewards so far.

        Raises:
            SessionError: The state of the environment is not plain data.
        """
        return Snapshot(await self._call(self._env.get_state), self._paid, self._is_over)

    async def restore(self, snapshot: Snapshot) -> None:
        """Give the environment object the state of a snapshot, by GEM's `set_state`.

        Raises:
            SessionError: This is no such state, or of another environment.
        """
        await self._call(partial(self._env.set_state, snapshot.state))
        self._paid, self._is_over = snapshot.paid, snapshot.is_over
        # What was shown last does not belong to this episode.
        self._begun = self._ending = None

    async def fork(self) -> GemSession:
        """Return a session over an object that GEM's `spawn` makes with the same state.

        Releases without `spawn` make another object, which is given the state.

        Raises:
            SessionError: The state of the environment is not plain data.
        """
        if hasattr(gem.Env, "spawn"):
            env = await self._call(partial(self._env.spawn, same_state=True))
        else:
            env = cast("CompiledEnvironment", gem.make(self._env.env_id))
            await self._call(partial(env.set_state, await self._call(self._env.get_state)))
        child = GemSession(env, self._threads)
        child._paid, child._is_over = self._paid, self._is_over
        return child

    async def close(self) -> None:
        """Free the episode, after a call that is still under way."""
        if self._under_way is not None and not self._under_way.done():
            await asyncio.gather(asyncio.wrap_future(self._under_way), return_exceptions=True)
        await self._call(self._env.close)

    async def _call(self, work: Callable[[], ResultT]) -> ResultT:
        try:
            if self._threads is None:
                return work()
            if self._under_way is not None and not self._under_way.done():
                raise SessionError("a call that was abandoned is still under way in its thread")
            # Kept, because a call that is given up goes on in its thread, where nothing can stop it.
            under_way = self._under_way = self._threads.submit(work)
            return await asyncio.wrap_future(under_way)
        except Refusal as error:
            raise SessionError(str(error)) from error


def read_result(text: str, reward: Any, terminated: Any, truncated: Any, info: dict[str, Any]) -> StepResult:
    """Return what a step of a compiled environment showed.

    Raises:
        KeyError, TypeError, ValueError: It is not what a compiled environment shows.
    """
    cause = Cause(info["cause"]) if "cause" in info else None
    ending = None if cause is None else cause.ending
    if (terminated, truncated) != (ending is Ending.TERMINATED, ending is Ending.TRUNCATED):
        raise ValueError(f"terminated is {terminated} and truncated is {truncated}, and the cause is {cause}")
    blocks = read_content(info.get("content", text))
    if "content" in info and project_text(blocks) != text:
        raise ValueError("the observation is not the text form of its content")
    error = ErrorCode(info["error"]) if "error" in info else None
    return StepResult(
        Observation(blocks, error), float(reward), info["total"], cause, info.get("components", NO_COMPONENTS)
    )


def _malformed(call: str, error: Exception) -> SessionError:
    reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
    return SessionError(f"what {call} returned is not what a compiled environment returns: {reason}")
