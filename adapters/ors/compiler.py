"""Compile an environment into the `Environment` class of ORS, and into the server that ORS runs.

Every call goes through `_call_tool`, the one place where ORS runs tools in each of its releases: there an unknown name and
bad arguments reach the episode, which answers them, and there the answer becomes the text that is cut into chunks.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Literal, TypeVar

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from adapters.ors.framework import (
    CHUNK_SIZE,
    ImageBlock,
    ListToolsOutput,
    Message,
    RunToolError,
    RunToolOutput,
    RunToolSuccess,
    Server,
    Split,
    TextBlock,
    ToolOutput,
    ToolSpec,
)
from adapters.ors.framework import (
    Environment as OrsEnvironment,
)
from adapters.ors.framework import (
    tool as ors_tool,
)
from adapters.ors.wire import (
    CHANNEL,
    SHORTEST_CHANNEL,
    Reading,
    keep_space,
    read_action,
    write_blocks,
    write_prompt,
)
from canonical.catalogue import UnknownEnvironmentError, load_environment
from canonical.content import JSON, quote
from canonical.environment import Environment
from canonical.episode import Episode, StartError
from canonical.reward import ScoringError
from canonical.step import StepResult
from canonical.task import Task, UnknownTaskError
from canonical.tool import Tool, ToolCall
from canonical.transcript import Action

MAX_THREADS = 256
"""How many plain tools run at the same time on one server; more wait."""

_GONE = "this session has no episode any more"

ResultT = TypeVar("ResultT")
log = logging.getLogger(__name__)


class Refusal(HTTPException):
    """Say why a request cannot be carried out; FastAPI sends the status with the detail."""

    def __str__(self) -> str:
        return str(self.detail)


class Answer(RunToolOutput):
    """Hold what ORS sends for a call, as text that survives being cut into chunks."""

    def model_dump_json(self, *arguments: Any, **keywords: Any) -> str:
        """Return compact JSON in which no chunk begins with white space, which the clients of ORS would strip."""
        return keep_space(super().model_dump_json(*arguments, **keywords), CHUNK_SIZE)


class CompiledEnvironment(OrsEnvironment):
    """Play an environment under ORS: one object per session, and one episode per object.

    Attributes:
        environment: The environment.
        reading: How trainers read the rewards.
        live: The objects of this class that hold an episode right now.
    """

    environment: ClassVar[Environment[Any]]
    reading: ClassVar[Reading]
    live: ClassVar[set[CompiledEnvironment]]
    _on_loop: ClassVar[bool]
    _threads: ClassVar[list[ThreadPoolExecutor]]

    def __init__(
        self, task_spec: Mapping[str, Any] | None = None, secrets: dict[str, str] | None = None
    ) -> None:
        """Choose the task.

        Args:
            task_spec: A row of `list_tasks`, of which `id` counts; `seed` may be added, and is 0 by default. A client
                that sends assistant text names its channel under `action_channel`.
            secrets: Not used: the environment has everything that it needs.

        Raises:
            Refusal: There is no such task, or the seed or the channel is wrong.
        """
        super().__init__(task_spec=task_spec or {}, secrets=secrets or {})
        self._task, self._seed = self._choose(task_spec or {})
        self._channel = _channel(task_spec or {})
        self._episode: Episode[Any] | None = None
        self._turn = asyncio.Lock()
        self._is_leaving = False

    @classmethod
    def name(cls) -> str:
        """Return the name of the environment, which is the first part of its paths."""
        return cls.environment.name

    @classmethod
    def list_splits(cls) -> Sequence[Split]:
        """Return the splits, in order."""
        return [_split(name) for name in cls.environment.tasks().splits]

    @classmethod
    def list_tasks(cls, split: str) -> Sequence[Mapping[str, Any]]:
        """Return the public half of all tasks of a split."""
        return [_public(index, task) for index, task in enumerate(cls._tasks(split))]

    @classmethod
    async def num_tasks(cls, split: str) -> int:
        """Return the number of tasks in a split."""
        return len(cls._tasks(split))

    @classmethod
    async def get_task(cls, split: str, index: int) -> Mapping[str, Any]:
        """Return the public half of one task.

        Raises:
            IndexError: The split has no task of this index.
        """
        tasks = cls._tasks(split)
        if not 0 <= index < len(tasks):
            raise IndexError(f"split {split} has the indices 0 to {len(tasks) - 1}, not {index}")
        return _public(index, tasks[index])

    @classmethod
    async def get_task_range(
        cls, split: str, start: int | None = None, stop: int | None = None
    ) -> list[Mapping[str, Any]]:
        """Return the public half of the tasks from `start` up to, not including, `stop`."""
        return list(cls.list_tasks(split))[start:stop]

    @classmethod
    @functools.cache
    def list_tools(cls) -> ListToolsOutput:
        """Return the tools in their order, with the schemas that their arguments are checked by."""
        tools = [
            ToolSpec(
                name=tool.name, description=tool.spec.description, input_schema=dict(tool.spec.parameters)
            )
            for tool in cls.environment.tools
        ]
        return super().list_tools().model_copy(update={"tools": tools})

    async def setup(self) -> None:
        """Start the episode.

        Raises:
            Refusal: The environment failed.
        """
        opening = asyncio.ensure_future(self._open())
        try:
            episode = await asyncio.shield(opening)
        except asyncio.CancelledError:
            # The session is being deleted; what is still being made has no owner any more.
            opening.add_done_callback(self._drop)
            raise
        except StartError as error:
            failure = self._failure(f"start task {self._task.id}", error.failure)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - its text may hold the answer
            failure = self._failure(f"start task {self._task.id}", error)
        else:
            self._episode = episode
            self.live.add(self)
            return
        # Outside the handlers, so that nothing that is logged of it leads to what was raised.
        raise failure

    async def teardown(self) -> None:
        """Free the episode; while an action is carried out, as soon as that is done."""
        self._is_leaving = True
        if not self._turn.locked():
            async with self._turn:
                await self._free()

    @classmethod
    async def release(cls) -> None:
        """Free what a server that stops has left behind: episodes, and the threads of plain tools."""
        for left in list(cls.live):
            await left.teardown()
        while cls._threads:
            cls._threads.pop().shutdown(wait=False)

    def get_prompt(self) -> list[TextBlock | ImageBlock]:
        """Return what the model reads first."""
        return _blocks(write_prompt(self._playing().prompt))

    def _roles(self) -> list[Any]:
        roles = {"tool": "user"}
        return [
            Message(role=roles.get(message.role, message.role), blocks=_blocks(write_blocks(message.blocks)))
            for message in self._playing().prompt
        ]

    def _playing(self) -> Episode[Any]:
        if self._episode is None:
            raise Refusal(410, _GONE)
        return self._episode

    async def _call_tool(self, name: str, input: Mapping[str, Any]) -> Answer:  # noqa: A002 - the name that ORS gives it
        action = read_action(name, input, self._channel)
        try:
            output = await self._act(ToolCall(name, dict(input)) if action is None else action)
        except Refusal as refusal:
            # An error here, not an exception: openreward ends a session whose tool has raised one.
            return Answer(RunToolError(error=str(refusal)))
        return Answer(RunToolSuccess(output=output))

    async def _act(self, action: Action) -> ToolOutput:
        async with self._turn:
            episode = self._playing()
            was_over = episode.cause is not None
            try:
                result = await self._run(episode.step, episode.step_async, action)
            except ScoringError as error:
                failure = Refusal(500, f"no valid reward could be computed: {error}")
            except BaseException as error:
                if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                    raise
                failure = self._failure("carry out the action", error)
            else:
                return self._output(result, was_over=was_over)
            finally:
                if self._is_leaving:
                    await self._free()
        raise failure

    def _output(self, result: StepResult, *, was_over: bool) -> ToolOutput:
        cause = result.cause
        metadata: dict[str, JSON] = {"total": result.total}
        reward: float | None = result.reward
        if was_over:
            # A trainer that takes the last reward would take this one; there is none to take.
            reward = None
        elif self.reading == "last":
            metadata["paid"], reward = result.reward, result.total
        if result.components:
            metadata["components"] = dict(result.components)
        if result.observation.error is not None:
            metadata["error"] = result.observation.error.value
        if cause is not None:
            metadata["ending"], metadata["cause"] = cause.ending.value, cause.value
        blocks = _blocks(write_blocks(result.observation.blocks))
        return ToolOutput(blocks=blocks, metadata=metadata, reward=reward, finished=cause is not None)

    async def _open(self) -> Episode[Any]:
        return await self._run(
            functools.partial(Episode.open, seed=self._seed),
            functools.partial(Episode.open_async, seed=self._seed),
            self.environment,
            self._task,
        )

    def _drop(self, opening: asyncio.Future[Episode[Any]]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._episode = opening.result()
            self.live.add(self)
            _spawn(self.teardown())

    async def _free(self) -> None:
        episode, self._episode = self._episode, None
        if episode is None:
            return
        try:
            await self._run(episode.close, episode.close_async)
        except Exception as error:  # noqa: BLE001 - the episode is gone either way
            self._failure(f"close task {episode.task.id}", error)
        finally:
            self.live.discard(self)

    async def _run(
        self, plain: Callable[..., ResultT], waiting: Callable[..., Any], *arguments: Any
    ) -> ResultT:
        if self._on_loop:
            result: ResultT = await waiting(*arguments)
            return result
        if not self._threads:
            self._threads.append(ThreadPoolExecutor(MAX_THREADS, f"ors-{self.environment.name}"))
        return await asyncio.get_running_loop().run_in_executor(self._threads[0], plain, *arguments)

    @classmethod
    def _tasks(cls, split: str) -> tuple[Task, ...]:
        try:
            return cls.environment.tasks().split(split)
        except UnknownTaskError as error:
            raise Refusal(404, str(error)) from None

    def _choose(self, spec: Mapping[str, Any]) -> tuple[Task, int]:
        wanted, seed = spec.get("id"), spec.get("seed", 0)
        tasks = self.environment.tasks()
        if not isinstance(wanted, str):
            raise Refusal(422, f"task_spec needs the id of a task, such as {next(iter(tasks)).id!r}")
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise Refusal(422, f"the seed of task_spec must be an integer, not {quote(str(seed))}")
        try:
            return tasks.get(wanted), seed
        except UnknownTaskError as error:
            reason = str(error)
        raise Refusal(422, reason)

    def _failure(self, doing: str, error: BaseException) -> Refusal:
        # The text of an unexpected exception may hold the answer, so neither the client nor the log gets it.
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        place = "" if frame is None else f" at {frame.tb_frame.f_code.co_qualname}:{frame.tb_lineno}"
        what = f"{self.environment.name} could not {doing}: {type(error).__name__}"
        log.warning("%s%s", what, place)
        return Refusal(500, f"{what} (the log of the server says where)")


def compile_environment(
    environment: Environment[Any], *, reading: Reading = "sum"
) -> type[CompiledEnvironment]:
    """Return an `Environment` class of ORS that plays an environment.

    Whether it runs in threads or on the event loop is decided by the environment: coroutines need a loop, and plain
    functions may block one.

    Args:
        environment: The environment.
        reading: How the trainer reads rewards. With `sum`, the reward of a call is what that step pays, as the standard
            has it. With `last`, it is the return so far. Environments that pay at the end only are the same in both.
    """
    members: dict[str, Any] = {
        "__doc__": inspect.getdoc(type(environment)),
        "__module__": __name__,
        "environment": environment,
        "reading": reading,
        "live": set(),
        "_threads": [],
        "_on_loop": environment.waits or environment.quick,
    }
    if Message is not None:
        members["get_messages"] = CompiledEnvironment._roles  # noqa: SLF001
    for tool in environment.tools:
        # A tool that is called as a part of ORS is called, such as `setup`, has no method; it is listed and played.
        if not hasattr(CompiledEnvironment, tool.name):
            members[tool.name] = _method(tool)
    return type(type(environment).__name__, (CompiledEnvironment,), members)


def make_server(compiled: type[CompiledEnvironment]) -> Server:
    """Return ORS's own server for a compiled environment; `run` serves it, and `app` is its FastAPI application.

    Raises:
        ValueError: The environment's name is one of the server's own paths.
    """
    server = Server([compiled], return_errors="none")
    taken = {getattr(route, "path", "").strip("/").partition("/")[0] for route in server.app.routes}
    if compiled.name() in taken:
        raise ValueError(
            f"an environment of ORS cannot be called {compiled.name()}: its server answers /{compiled.name()}"
        )
    return server


def app_from_environment() -> FastAPI:
    """Return the app of the environment that `ROSETTA_ENVIRONMENT` names, for servers that take a factory.

    For example `ROSETTA_ENVIRONMENT=wordle uvicorn --factory adapters.ors.compiler:app_from_environment`.

    Raises:
        SystemExit: The variable is missing or names no environment; the text says so in one line.
    """
    name = os.environ.get("ROSETTA_ENVIRONMENT")
    if not name:
        raise SystemExit(
            "set ROSETTA_ENVIRONMENT to the name of an environment, or to the path of its environment.py"
        )
    try:
        app: FastAPI = make_server(compile_environment(load_environment(name))).app
    except (UnknownEnvironmentError, ValueError) as error:
        raise SystemExit(f"ROSETTA_ENVIRONMENT: {error}") from error
    return app


def _method(tool: Tool) -> Callable[..., Any]:
    parameters = dict(tool.spec.parameters)

    def model_json_schema(_cls: type[BaseModel], *_: Any, **__: Any) -> dict[str, JSON]:
        return parameters

    members = {"model_json_schema": classmethod(model_json_schema), "__module__": __name__}
    metaclass: Any = type(tool.model)
    model = metaclass(f"{tool.name}_arguments", (tool.model,), members)

    async def call(self: CompiledEnvironment, arguments: BaseModel) -> ToolOutput:
        return await self._act(ToolCall(tool.name, arguments.model_dump(mode="json", exclude_unset=True)))

    call.__name__, call.__qualname__, call.__doc__ = tool.name, tool.name, tool.spec.description
    call.__annotations__ = {"arguments": model, "return": ToolOutput}
    made: Callable[..., Any] = ors_tool(call)
    return made


def _channel(spec: Mapping[str, Any]) -> str | None:
    channel = spec.get(CHANNEL)
    if channel is None or (isinstance(channel, str) and len(channel) >= SHORTEST_CHANNEL):
        return channel
    raise Refusal(
        422,
        f"{CHANNEL} of task_spec must be a text of at least {SHORTEST_CHANNEL} characters that no model sees",
    )


def _split(name: str) -> Split:
    kinds: tuple[Literal["train", "validation", "test"], ...] = ("train", "validation", "test")
    # What ORS itself does with a split of another name.
    return Split(name=name, type=next((kind for kind in kinds if kind == name), "validation"))


def _public(index: int, task: Task) -> dict[str, Any]:
    return {"id": task.id, "index": index, "inputs": dict(task.inputs)}


def _blocks(written: list[dict[str, Any]]) -> list[TextBlock | ImageBlock]:
    return [TextBlock(**block) if block["type"] == "text" else ImageBlock(**block) for block in written]


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


_spawned: set[asyncio.Task[None]] = set()


def _spawn(work: Any) -> None:
    task = asyncio.get_running_loop().create_task(work)
    _spawned.add(task)
    task.add_done_callback(_spawned.discard)
