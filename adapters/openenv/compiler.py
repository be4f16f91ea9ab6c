"""Compile an environment into OpenEnv's own `Environment` class, and into the app that OpenEnv serves.

The target is a plain `Environment` with `action_cls=CallToolAction`, not `MCPEnvironment`: every call then goes through
`step`, the one place where OpenEnv carries reward and end, and none passes through the forty threads and the fixed time
limit that tools of `MCPEnvironment` share.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import Coroutine
from typing import Any, ClassVar, TypeVar
from uuid import uuid4

from fastapi import FastAPI, HTTPException
from openenv.core.env_server import Environment as OpenEnvEnvironment
from openenv.core.env_server import create_app
from openenv.core.env_server.mcp_types import (
    CallToolAction,
    CallToolObservation,
    ListToolsAction,
    ListToolsObservation,
    Tool,
    ToolError,
    ToolErrorType,
)
from openenv.core.env_server.types import Action, EnvironmentMetadata, Observation, State
from pydantic import Field
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from adapters.openenv.wire import TEXT_KEY, write_content
from canonical.catalogue import UnknownEnvironmentError, load_environment
from canonical.content import ErrorCode, quote
from canonical.environment import Environment
from canonical.episode import Episode, StartError
from canonical.reward import ScoringError, finish
from canonical.task import Task, UnknownTaskError
from canonical.tool import ToolCall

MAX_CONCURRENT_ENVS = 65_536
"""How many sessions a server admits. OpenEnv's default is 1; this is far above what one process can hold."""

CLOSE_PATIENCE = 30.0
"""Seconds that closing waits for an environment whose `close` is a coroutine."""

ResultT = TypeVar("ResultT")
log = logging.getLogger(__name__)

_ERROR_TYPES = {
    ErrorCode.UNKNOWN_TOOL: ToolErrorType.TOOL_NOT_FOUND,
    ErrorCode.INVALID_ARGUMENTS: ToolErrorType.INVALID_ARGS,
    ErrorCode.UNPARSABLE: ToolErrorType.INVALID_ARGS,
    ErrorCode.TOOL_ERROR: ToolErrorType.EXECUTION_ERROR,
    ErrorCode.INTERNAL_ERROR: ToolErrorType.EXECUTION_ERROR,
    ErrorCode.EPISODE_OVER: ToolErrorType.EXECUTION_ERROR,
}


class Refusal(HTTPException):
    """Say why a request cannot be carried out; the session and its episode go on.

    OpenEnv sends `str(error)` over its sockets, and FastAPI the status with the detail over HTTP: readable on both.
    """

    def __str__(self) -> str:
        return str(self.detail)


class ResetObservation(Observation):
    """Show the beginning of an episode."""

    prompt: list[dict[str, Any]] = Field(
        description="What the model reads first: messages with `role` and `content`, a text or a list of content blocks"
    )
    task: str = Field(description="The id of the task that is played")
    seed: int = Field(description="The seed of the episode; the same task and seed give the same episode")


class StepObservation(CallToolObservation):
    """Show what one action led to; `result` is what the model reads, a text or a list of content blocks."""

    error_code: str | None = Field(
        default=None, description="Why the action had no effect, more exactly than `error.error_type`"
    )
    total: float = Field(default=0.0, description="The return of the episode so far")
    components: dict[str, float] = Field(
        default_factory=dict, description="The named parts of this step's reward"
    )
    ending: str | None = Field(
        default=None,
        description="How the episode has ended: `terminated` by the task or `truncated` from outside",
    )
    cause: str | None = Field(
        default=None, description="Why the episode has ended, such as `solved` or `budget`"
    )


class EpisodeState(State):
    """Show how far the episode is; nothing that the task keeps secret."""

    task: str | None = Field(default=None, description="The id of the task that is played")
    seed: int | None = Field(default=None, description="The seed of the episode")
    turn: int = Field(default=0, description="How many turns of the budget are used")
    total: float = Field(default=0.0, description="The return of the episode so far")
    ending: str | None = Field(default=None, description="How the episode has ended")
    cause: str | None = Field(default=None, description="Why the episode has ended")


class CompiledEnvironment(OpenEnvEnvironment[Action, Observation, EpisodeState]):
    """Play an environment under OpenEnv: one object per session, with an episode and a generator of its own.

    Attributes:
        environment: The environment.
        tools: Its tools, as `ListToolsAction` lists them.
        live: The objects of this class that hold an episode right now.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True
    environment: ClassVar[Environment[Any]]
    tools: ClassVar[list[Tool]]
    live: ClassVar[set[CompiledEnvironment]]

    def __init__(self) -> None:
        super().__init__()
        self._episode: Episode[Any] | None = None
        self._episode_id: str | None = None
        self._steps = 0
        self._resets = 0

    @property
    def state(self) -> EpisodeState:
        """What a client may know of the episode."""
        episode = self._episode
        if episode is None:
            return EpisodeState()
        cause = episode.cause
        return EpisodeState(
            episode_id=self._episode_id,
            step_count=self._steps,
            task=episode.task.id,
            seed=episode.seed,
            turn=episode.turn,
            total=episode.total,
            ending=None if cause is None else cause.ending.value,
            cause=None if cause is None else cause.value,
        )

    def get_metadata(self) -> EnvironmentMetadata:
        """Return name, description and version of the environment."""
        environment = self.environment
        return EnvironmentMetadata(
            name=environment.name,
            description=inspect.getdoc(type(environment)) or environment.name,
            version=environment.version,
        )

    def list_splits(self) -> list[str]:
        """Return the names of the splits."""
        return list(self.environment.tasks().splits)

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """Return the public half of all tasks of a split."""
        return [_public(index, task) for index, task in enumerate(self._split(split))]

    def num_tasks(self, split: str) -> int:
        """Return the number of tasks in a split."""
        return len(self._split(split))

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """Return the public half of one task.

        Raises:
            IndexError: The split has no task of this index.
        """
        tasks = self._split(split)
        if not 0 <= index < len(tasks):
            raise IndexError(f"split {split} has the indices 0 to {len(tasks) - 1}, not {index}")
        return _public(index, tasks[index])

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[dict[str, Any]]:
        """Return the public half of the tasks from `start` up to, not including, `stop`."""
        return self.list_tasks(split)[start:stop]

    def _split(self, name: str) -> tuple[Task, ...]:
        try:
            return self.environment.tasks().split(name)
        except UnknownTaskError as error:
            raise Refusal(404, str(error)) from error

    def _choose(self, seed: object, task: object, split: object, index: object) -> tuple[Task, int]:
        # Neither a clock nor a random number decides when no seed is given: a session's resets count up from 0.
        seed = self._resets if seed is None else seed
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise Refusal(422, f"seed must be an integer, not {_show(seed)}")
        tasks = self.environment.tasks()
        if task is not None:
            if split is not None or index is not None:
                raise Refusal(422, "give reset either a task, or a split and an index")
            if not isinstance(task, str):
                raise Refusal(422, f"task must be the id of a task, such as {next(iter(tasks)).id!r}")
            try:
                return tasks.get(task), seed
            except UnknownTaskError as error:
                raise Refusal(404, str(error)) from error
        name = tasks.training_split if split is None else split
        if not isinstance(name, str):
            raise Refusal(422, f"split must be a text, not {_show(name)}")
        within = self._split(name)
        if index is None:
            return within[seed % len(within)], seed
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < len(within):
            raise Refusal(
                422,
                f"index must be an integer from 0 to {len(within) - 1} in split {name}, not {_show(index)}",
            )
        return within[index], seed

    async def _reset(
        self, seed: object, episode_id: object, task: object, split: object, index: object
    ) -> ResetObservation:
        if not isinstance(episode_id, str | None):
            raise Refusal(422, f"episode_id must be a text, not {_show(episode_id)}")
        chosen, number = self._choose(seed, task, split, index)
        await self._free()
        try:
            episode = self._episode = await Episode.open_async(self.environment, chosen, seed=number)
            self.live.add(self)
            prompt = [
                {"role": message.role, "content": write_content(message.blocks)} for message in episode.prompt
            ]
        except (Exception, SystemExit) as error:
            await self._free()
            raise self._failure(f"start task {chosen.id}", error) from error
        self._episode_id = episode_id or str(uuid4())
        self._steps = 0
        self._resets += 1
        return ResetObservation(prompt=prompt, task=chosen.id, seed=number)

    async def _step(self, action: Action) -> Observation:
        if isinstance(action, ListToolsAction):
            return ListToolsObservation(tools=self.tools)
        if not isinstance(action, CallToolAction):
            raise Refusal(
                422, f"an action is a CallToolAction or a ListToolsAction, not {type(action).__name__}"
            )
        episode = self._episode
        if episode is None:
            raise Refusal(
                409,
                "there is no episode here: call reset first, in this same session on /ws "
                "(HTTP requests without a session, and connections that were lost and reopened, have no episode)",
            )
        self._steps += 1
        text = action.metadata.get(TEXT_KEY)
        try:
            result = await episode.step_async(
                text if isinstance(text, str) else ToolCall(action.tool_name, action.arguments)
            )
        except ScoringError as error:
            raise Refusal(500, f"no valid reward could be computed: {error}") from error
        except (Exception, SystemExit) as error:
            raise self._failure("carry out the action", error) from error
        observation, cause = result.observation, result.cause
        code = observation.error
        return StepObservation(
            tool_name=_sendable(action.tool_name),
            result=write_content(observation.blocks),
            error=None
            if code is None
            else ToolError(error_type=_ERROR_TYPES[code], message=_sendable(observation.text)),
            error_code=None if code is None else code.value,
            done=cause is not None,
            reward=result.reward,
            total=result.total,
            components=dict(result.components),
            ending=None if cause is None else cause.ending.value,
            cause=None if cause is None else cause.value,
        )

    async def _free(self) -> None:
        episode, self._episode = self._episode, None
        if episode is None:
            return
        try:
            await episode.close_async()
        except Exception as error:  # noqa: BLE001 - the episode is gone either way; the session goes on
            self._failure(f"close task {episode.task.id}", error)
        finally:
            self.live.discard(self)

    def _failure(self, doing: str, error: BaseException) -> Refusal:
        # The text of an unexpected exception may hold the answer, so neither the client nor the log gets it.
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        place = "" if frame is None else f" at {frame.tb_frame.f_code.co_qualname}:{frame.tb_lineno}"
        # What an environment raised while it started stands inside; its kind says more than that starting failed.
        raised = error.failure if isinstance(error, StartError) else error
        what = f"{self.environment.name} could not {doing}: {type(raised).__name__}"
        log.warning("%s%s", what, place)
        return Refusal(500, f"{what} (the log of the server says where)")


class PlainEnvironment(CompiledEnvironment):
    """Play an environment that never waits: OpenEnv runs `reset`, `step` and `close` in a thread of the session's own.

    A tool that blocks, by computing or by reading a file, then holds up its own session and no other.
    """

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: str | None = None,
        split: str | None = None,
        index: int | None = None,
        **_: Any,
    ) -> ResetObservation:
        """Start an episode; the one before is closed.

        Args:
            seed: The seed of the episode; without one, the number of resets that this session has seen before.
            episode_id: A name for the episode, shown by `state`.
            task: The id of the task to play.
            split: The split to take the task from, when no `task` is given; by default the first.
            index: The place of the task in the split; by default the seed decides.

        Raises:
            Refusal: There is no such task, or the environment failed; the episode before a wrong request goes on.
        """
        return finish(self._reset(seed, episode_id, task, split, index))

    def step(self, action: Action, timeout_s: float | None = None, **_: Any) -> Observation:  # noqa: ARG002 - OpenEnv's
        """Carry out a `CallToolAction`, or list the tools for a `ListToolsAction`.

        Raises:
            Refusal: There is no episode, or no valid reward could be computed.
        """
        return finish(self._step(action))

    def close(self) -> None:
        """Free the episode."""
        finish(self._free())


class WaitingEnvironment(CompiledEnvironment):
    """Play an environment whose tools, rubric, start or close are coroutines: OpenEnv awaits it on the server's loop.

    There the coroutines of all sessions wait side by side, and what they hold belongs to that one loop. A tool of such
    an environment that blocks would hold up every session. `reset` and `step` are for threads without a loop of their
    own: they hand the work to the loop of the episode, or to a loop of this object when there is none.
    """

    _closing: ClassVar[set[asyncio.Task[None]]] = set()

    def __init__(self) -> None:
        super().__init__()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._owns_loop = False

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: str | None = None,
        split: str | None = None,
        index: int | None = None,
        **_: Any,
    ) -> ResetObservation:
        """Start an episode, as `PlainEnvironment.reset` does."""
        return self._run(self._reset(seed, episode_id, task, split, index))

    def step(self, action: Action, timeout_s: float | None = None, **_: Any) -> Observation:  # noqa: ARG002
        """Carry out an action, as `PlainEnvironment.step` does."""
        return self._run(self._step(action))

    async def reset_async(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: str | None = None,
        split: str | None = None,
        index: int | None = None,
        **_: Any,
    ) -> ResetObservation:
        """Start an episode, as `PlainEnvironment.reset` does."""
        self._loop = asyncio.get_running_loop()
        return await self._reset(seed, episode_id, task, split, index)

    async def step_async(self, action: Action, timeout_s: float | None = None, **_: Any) -> Observation:  # noqa: ARG002
        """Carry out an action, as `PlainEnvironment.step` does."""
        return await self._step(action)

    def close(self) -> None:
        """Free the episode on the loop that it lives on, and wait for it unless that loop is the caller's."""
        if self._episode is not None:
            here = _running_loop()
            if here is not None and here is self._loop:
                closing = here.create_task(self._free())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
            else:
                self._run(self._free(), CLOSE_PATIENCE)
        if self._owns_loop and self._loop is not None:
            self._loop.close()
            self._loop, self._owns_loop = None, False

    def _run(self, work: Coroutine[Any, Any, ResultT], patience: float | None = None) -> ResultT:
        here = _running_loop()
        if here is not None and self._loop in {None, here}:
            work.close()
            raise Refusal(
                501, f"{self.environment.name} waits for things: await reset_async and step_async instead"
            )
        if self._loop is None or self._loop.is_closed():
            self._loop, self._owns_loop = asyncio.new_event_loop(), True
        if self._loop.is_running():
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(patience)
        return self._loop.run_until_complete(work)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def compile_environment(environment: Environment[Any]) -> type[CompiledEnvironment]:
    """Return an OpenEnv `Environment` class that plays an environment.

    Whether it runs in threads or on the event loop is decided here, by the environment: coroutines need a loop, and
    plain functions may block one.
    """
    waits = environment.waits
    members: dict[str, Any] = {
        "__doc__": inspect.getdoc(type(environment)),
        "__module__": __name__,
        "environment": environment,
        "live": set(),
        "tools": [
            Tool(name=tool.name, description=tool.spec.description, input_schema=dict(tool.spec.parameters))
            for tool in environment.tools
        ],
    }
    return type(type(environment).__name__, (WaitingEnvironment if waits else PlainEnvironment,), members)


class _Goodbye:
    """Take it quietly when a client is gone before the server's goodbye; releases before 0.7 log a traceback for each."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except WebSocketDisconnect:
            if scope["type"] != "websocket":
                raise


def make_app(
    compiled: type[CompiledEnvironment], *, max_concurrent_envs: int = MAX_CONCURRENT_ENVS
) -> FastAPI:
    """Return OpenEnv's own app for a compiled environment."""
    offered: dict[str, Any] = {
        "env": compiled,
        "action_cls": CallToolAction,
        "observation_cls": StepObservation,
        "env_name": compiled.environment.name,
        "max_concurrent_envs": max_concurrent_envs,
        "state_cls": EpisodeState,
        "reset_observation_cls": ResetObservation,
    }
    # Releases differ in what their factory takes; what it does not take it does not publish in /schema either.
    accepted = inspect.signature(create_app).parameters
    app: FastAPI = create_app(**{name: value for name, value in offered.items() if name in accepted})
    app.add_middleware(_Goodbye)
    return app


def app_from_environment() -> FastAPI:
    """Return the app of the environment that `ROSETTA_ENVIRONMENT` names, for servers that take a factory.

    For example `ROSETTA_ENVIRONMENT=wordle uvicorn --factory adapters.openenv.compiler:app_from_environment`.

    Raises:
        SystemExit: The variable is missing or names no environment; the text says so in one line.
    """
    name = os.environ.get("ROSETTA_ENVIRONMENT")
    if not name:
        raise SystemExit(
            "set ROSETTA_ENVIRONMENT to the name of an environment, or to the path of its environment.py"
        )
    try:
        return make_app(compile_environment(load_environment(name)))
    except UnknownEnvironmentError as error:
        raise SystemExit(f"ROSETTA_ENVIRONMENT: {error}") from error


def _public(index: int, task: Task) -> dict[str, Any]:
    return {"id": task.id, "index": index, "inputs": dict(task.inputs)}


def _show(value: object) -> str:
    return quote(str(value))


def _sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
