"""Lift an environment that an OpenEnv server plays: a running one, or an app that is served here.

A server whose observations are those of this project's compiled environments is played as they are; nothing is lost. Of any
other, tools of MCP stay tools, and an action of the environment's own class becomes one tool with the action's JSON Schema.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import inspect
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from types import ModuleType
from typing import Any, get_type_hints
from urllib.error import HTTPError

import uvicorn
from openenv.core.env_server import Environment, MCPEnvironment, create_app
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action as OpenEnvAction
from openenv.core.env_server.types import Observation as OpenEnvObservation
from openenv.core.generic_client import GenericEnvClient
from websockets.exceptions import ConnectionClosedOK

from adapters.openenv.adapter import ADAPTER
from adapters.openenv.compiler import MAX_CONCURRENT_ENVS, compile_environment, make_app
from adapters.openenv.session import STEP_KEYS, OpenEnvSession, fetch
from canonical.adapter import Endpoint, Loss, Opened, SessionError
from canonical.bridge.beside import serve_beside
from canonical.bridge.imports import find_named, import_named, read_rows
from canonical.bridge.source import (
    COMPILED,
    TEXT_SPEC,
    TEXT_TOOL,
    LiftError,
    LiftOptions,
    SourceFacts,
    identifier,
    no_limit,
    seed_of,
    seed_tasks,
    task_ids,
)
from canonical.catalogue import load_environment
from canonical.content import JSON, Block, ErrorCode, Image, Message, Observation, Text
from canonical.listening import listen
from canonical.step import Cause, StepResult
from canonical.stone import Concern, PieceName
from canonical.task import Task
from canonical.tool import ToolSpec
from canonical.transcript import Action

ACT_TOOL = "act"
"""The tool that an action of the environment's own class becomes."""

_ROOM_PATIENCE_S = 20.0
_ROOM_PAUSE_S = 0.1
_RECEIVE_S = 600.0
_MIB = 1024 * 1024
_FULL, _INVALID = "(code: CAPACITY_REACHED)", "(code: VALIDATION_ERROR)"
_TOOL_KEYS = frozenset({"tool_name", "result", "error", "metadata", "done", "reward"})
_CODES = {
    "tool_not_found": ErrorCode.UNKNOWN_TOOL,
    "invalid_args": ErrorCode.INVALID_ARGUMENTS,
    "execution_error": ErrorCode.TOOL_ERROR,
    "transport_error": ErrorCode.INTERNAL_ERROR,
    "timeout": ErrorCode.INTERNAL_ERROR,
}


@dataclass(frozen=True, slots=True)
class Manner:
    """Hold how a server is played.

    Attributes:
        tools: The tools.
        is_mcp: Whether they are tools of MCP, rather than the environment's own class of actions.
        text_field: The field of the action that assistant text fills, if there is one.
        resets: The id of each task -> the keywords of `reset` that choose it.
    """

    tools: tuple[ToolSpec, ...]
    is_mcp: bool
    text_field: str | None
    resets: Mapping[str, Mapping[str, JSON]]


class LiftedSession(OpenEnvSession):
    """Be one WebSocket of OpenEnv's client, and whatever environment is behind it.

    Args:
        make_client: Makes a client, not yet connected.
        manner: How the server is played.
        patience: Seconds that a server without room is asked again for one.

    Attributes:
        paid_at_reset: The reward of the last `reset`, which has no place in an episode.
    """

    def __init__(
        self, make_client: Callable[[], GenericEnvClient], manner: Manner, patience: float = _ROOM_PATIENCE_S
    ) -> None:
        super().__init__(make_client(), _RECEIVE_S)
        self.paid_at_reset = 0.0
        self._make_client = make_client
        self._manner = manner
        self._patience = patience

    async def connect(self) -> None:
        """Connect.

        Raises:
            SessionError: The server cannot be reached.
        """
        await self._ask(self._client.connect)

    async def listed(self) -> tuple[ToolSpec, ...]:
        """Return the tools of MCP that the server lists; they may be asked for before there is an episode.

        Raises:
            SessionError: The server failed, or the session is lost.
        """
        return await self._list_tools()

    async def open(self, task: str, seed: int) -> Opened:
        """Reset with the keywords that choose the task, and with the seed unless they hold one.

        A server without room is asked again for some seconds, because it frees a session only after its client is gone.

        Raises:
            SessionError: The server refused or failed, or the session is lost.
        """
        if task not in self._manner.resets:
            raise SessionError(f"the source has no task {task!r}")
        answer = await self._reset({"seed": seed, **self._manner.resets[task]})
        self._last, self._paid, self._is_over = answer.observation, 0.0, False
        self.paid_at_reset = answer.reward or 0.0
        if answer.done:
            raise SessionError(f"the episode of {task} was over when it began")
        return Opened((Message("user", _show(answer.observation)),), self._manner.tools)

    async def _reset(self, keywords: Mapping[str, JSON]) -> Any:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience
        while True:
            try:
                return await self._ask(partial(self._client.reset, **keywords))
            except SessionError as error:
                # Older clients do not read why the server has closed.
                is_refused = str(error).endswith(_FULL) or isinstance(error.__cause__, ConnectionClosedOK)
                if not is_refused or loop.time() > deadline:
                    raise
            self._lost = None
            await self._client.close()
            await asyncio.sleep(_ROOM_PAUSE_S)
            self._client = self._make_client()
            await self.connect()

    async def step(self, action: Action) -> StepResult:
        """Carry out an action.

        Raises:
            SessionError: The action is none that the source takes, the server failed, or the session is lost.
        """
        try:
            answer = await self._ask(self._client.step, self._write(action))
        except SessionError as error:
            if not str(error).endswith(_INVALID):
                raise
            refused = Observation.of(str(error), ErrorCode.INVALID_ARGUMENTS)
            return StepResult(refused, 0.0, self._paid, Cause.SUBMITTED if self._is_over else None)
        self._last = answer.observation
        paid = answer.reward or 0.0
        if not isinstance(paid, int | float):
            raise SessionError(f"the reward is {paid!r}, and no number")
        self._paid += paid
        self._is_over = bool(answer.done)
        seen = _read_tool_result(answer.observation) if self._manner.is_mcp else None
        return StepResult(
            seen or Observation(_show(answer.observation)),
            float(paid),
            self._paid,
            Cause.SUBMITTED if self._is_over else None,
        )

    async def public_state(self) -> JSON:
        """Return OpenEnv's state of the episode, and what of the last observation the model is not shown.

        Raises:
            SessionError: The server failed, or the session is lost.
        """
        last: Any = self._last or {}
        shown = _TOOL_KEYS if self._manner.is_mcp and "tool_name" in last else last.keys()
        beside = {name: value for name, value in last.items() if name == "metadata" or name not in shown}
        return {"state": await self._ask(self._client.state), "observation": beside}

    def _write(self, action: Action) -> dict[str, Any]:
        manner = self._manner
        if isinstance(action, str):
            if manner.text_field is None:
                raise SessionError("this environment takes calls of its tools, and no text")
            return {manner.text_field: action}
        if manner.is_mcp:
            return {"type": "call_tool", "tool_name": action.name, "arguments": dict(action.arguments)}
        if action.name != ACT_TOOL:
            raise SessionError(f"there is no tool {action.name!r}; an action is a call of {ACT_TOOL!r}")
        return dict(action.arguments)


def _show(seen: Mapping[str, Any]) -> tuple[Block, ...]:
    """Return a record as a model reads it: its one text, or else all fields as JSON."""
    fields = {name: value for name, value in seen.items() if name != "metadata"}
    if not fields:
        fields = dict(seen.get("metadata") or {})
    only = next(iter(fields.values())) if len(fields) == 1 else None
    return (Text(only if isinstance(only, str) else json.dumps(fields, ensure_ascii=False)),)


def _read_tool_result(seen: Mapping[str, Any]) -> Observation | None:
    match seen:
        case {"error": {"message": str(message), "error_type": str(kind)}}:
            return Observation.of(message, _CODES.get(kind, ErrorCode.TOOL_ERROR))
        case {"result": {"content": [*blocks], **rest}}:
            error = ErrorCode.TOOL_ERROR if rest.get("is_error") else None
            if blocks:
                return Observation(tuple(map(_read_block, blocks)), error)
            bare = rest.get("structured_content")
            return Observation.of("" if bare is None else json.dumps(bare, ensure_ascii=False), error)
        case {"result": str(text)}:
            return Observation.of(text)
        case {"result": [*blocks]} if blocks and all(
            isinstance(one, dict) and one.get("type") in {"text", "image"} for one in blocks
        ):
            return Observation(tuple(map(_read_block, blocks)))
        case {"result": value, "error": None}:
            return Observation.of(json.dumps(value, ensure_ascii=False))
        case _:
            return None


def _read_block(block: Any) -> Block:
    match block:
        case {"type": "text", "text": str(text)}:
            return Text(text)
        case {"type": "image", "data": str(data), "mimeType": str(media_type)}:
            try:
                return Image(base64.b64decode(data, validate=True), media_type)
            except binascii.Error:
                pass
    return Text(json.dumps(block, ensure_ascii=False))


@dataclass(frozen=True, slots=True)
class LiftedSource:
    """Hold a server of OpenEnv that can be connected to as often as it admits."""

    facts: SourceFacts
    url: str
    manner: Manner | None

    def connect(self) -> AbstractAsyncContextManager[OpenEnvSession]:
        """Open a session with OpenEnv's client; leaving the context frees it.

        Raises:
            SessionError: The server cannot be reached, or refused the session.
        """
        if self.manner is None:
            return ADAPTER.connect(None, Endpoint(self.url, lambda: 0))
        return _connect(self.url, self.manner)


@asynccontextmanager
async def _connect(
    url: str, manner: Manner, patience: float = _ROOM_PATIENCE_S
) -> AsyncIterator[LiftedSession]:
    session = LiftedSession(partial(ADAPTER.client, url), manner, patience)
    try:
        await session.connect()
        yield session
    finally:
        await session.close()


class OpenEnvLifter:
    """Lift `openenv:ADDRESS`, `openenv:MODULE[:NAME]`, or `openenv:PATH[:NAME]` of a file or of a package's folder."""

    @asynccontextmanager
    async def lift(self, reference: str, options: LiftOptions, /) -> AsyncIterator[LiftedSource]:
        """Make a source of a server: `http://...` or `ws://...` of a running one, or what a module holds.

        A module holds an ASGI app, by default `app` in itself or in its `server.app`; or a function that makes one; or a
        class of environments, which is served with room for as many sessions as it allows.

        Raises:
            LiftError: There is nothing of the kind, it does not start, or its server is none of OpenEnv's.
        """
        for name in options.imports:
            import_named(name)
        packages = dict(ADAPTER.packages())
        if reference.startswith(("http://", "https://", "ws://", "wss://")):
            if options.arguments:
                raise LiftError(
                    f"{reference} is running already, so that no arguments can be given to its constructor"
                )
            served: AbstractAsyncContextManager[str] = nullcontext(
                f"http{reference[2:]}" if reference.startswith("ws") else reference
            )
        elif reference.startswith(COMPILED):
            served = _serve(make_app(compile_environment(load_environment(reference.removeprefix(COMPILED)))))
        else:
            app, module = _find_app(reference, options.arguments)
            for name in packages_distributions().get(module.partition(".")[0], ()):
                packages[name] = version(name)
            served = _serve(app)
        async with served as url:
            facts, manner = await _examine(url.rstrip("/"), f"openenv:{reference}", packages, options)
            yield LiftedSource(facts, url.rstrip("/"), manner)


def _find_app(reference: str, arguments: Mapping[str, JSON]) -> tuple[Any, str]:
    if ":" in reference:
        found, module = find_named(reference), reference.rpartition(":")[0]
    else:
        held: ModuleType = import_named(reference)
        module = held.__name__
        found = getattr(held, "app", None)
        if found is None or isinstance(found, ModuleType):
            if not hasattr(held, "__path__") or find_spec(f"{module}.server") is None:
                raise LiftError(
                    f"{reference} has no app, and no server.app; name what holds the app: MODULE:NAME"
                )
            found = getattr(import_named(f"{module}.server.app"), "app", None)
    try:
        if inspect.isclass(found) and issubclass(found, Environment):
            return _make_app(found, arguments), module
        if inspect.isfunction(found) and not inspect.iscoroutinefunction(found):
            return found(**arguments), module
    except LiftError:
        raise
    except Exception as error:
        raise LiftError(f"{reference} cannot be made: {type(error).__name__}: {error}") from error
    if arguments:
        raise LiftError(f"{reference} is an app that is made already; name its class to give it arguments")
    if not callable(found) or inspect.isclass(found):
        raise LiftError(f"{reference} is no ASGI app, no function that makes one, and no class of OpenEnv's")
    return found, module


def _make_app(kind: Any, arguments: Mapping[str, JSON]) -> Any:
    action: Any
    observation: Any
    if issubclass(kind, MCPEnvironment):
        action, observation = CallToolAction, CallToolObservation
    else:
        hints = get_type_hints(kind.step)
        action, observation = hints.get("action"), hints.get("return")
        if not (_is_kind(action, OpenEnvAction) and _is_kind(observation, OpenEnvObservation)):
            raise LiftError(
                f"{kind.__name__}.step does not say in annotations which actions it takes and what it returns; "
                "name the app that create_app made of it"
            )
    sessions = MAX_CONCURRENT_ENVS if kind.SUPPORTS_CONCURRENT_SESSIONS else 1
    make: Any = partial(kind, **arguments) if arguments else kind
    return create_app(make, action, observation, env_name=kind.__name__, max_concurrent_envs=sessions)


def _is_kind(found: Any, base: type) -> bool:
    return inspect.isclass(found) and issubclass(found, base)


@asynccontextmanager
async def _serve(app: Any) -> AsyncIterator[str]:
    listener = listen("127.0.0.1", 0, 4096)
    settings: dict[str, Any] = {
        "ws": "websockets-sansio",
        "http": "h11",
        "ws_max_size": 100 * _MIB,
        # Both ends are in this process: nobody vanishes without closing.
        "ws_ping_interval": None,
        "ws_per_message_deflate": False,
        "timeout_graceful_shutdown": 5,
        "access_log": False,
        "log_level": "warning",
    }
    async with serve_beside(uvicorn.Server(uvicorn.Config(app, **settings)), listener) as url:
        yield url


async def _examine(
    url: str, source: str, packages: Mapping[str, str], options: LiftOptions
) -> tuple[SourceFacts, Manner | None]:
    try:
        schema = await asyncio.to_thread(fetch, f"{url}/schema")
        about = await asyncio.to_thread(fetch, f"{url}/metadata")
        action, observation = schema["action"], schema["observation"]
        name, listed = await asyncio.to_thread(_read_tasks, url)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LiftError(f"{source}: this is no server of OpenEnv that answers: {error}") from error
    shown = frozenset(observation.get("properties", {}))
    common: dict[str, Any] = {
        "name": identifier(name or str(about["name"])),
        "version": str(about.get("version") or next(iter(packages.values()))),
        "source": source,
        "packages": packages,
        "max_turns": options.max_turns,
    }
    if shown >= STEP_KEYS:
        return await _examine_compiled(url, listed, common), None
    losses: list[Loss] = [*_LOSSES, no_limit(options)]
    if options.data is not None:
        tasks, resets = _from_rows(options.data)
    elif listed:
        tasks, resets = _from_listing(listed)
        losses += [_SPECIFICATIONS, *_short_lists(listed)]
    else:
        tasks = seed_tasks(options.tasks)
        resets = {task.id: {"seed": seed_of(task.id)} for task in tasks}
        losses += _SEED_LOSSES
    try:
        manner = await _find_manner(url, action, resets)
        losses += _mcp_losses(shown) if manner.is_mcp else _own_losses(manner)
        losses += await _try(url, manner, tasks[0].id)
    except SessionError as error:
        raise LiftError(f"{source} cannot be played: {error}") from error
    facts = SourceFacts(
        **common,
        tasks=tasks,
        seeds_are_tasks=not listed and options.data is None,
        tools=manner.tools,
        text_tool=None if manner.text_field is None else TEXT_TOOL,
        losses=tuple(losses),
    )
    return facts, manner


Listing = list[tuple[str, list[Any], int]]
"""For each split its name, the specifications of its tasks, and how many tasks it says that it has."""


def _read_tasks(url: str) -> tuple[str | None, Listing]:
    """Return the public name of the environment, and its tasks where it lists some."""
    try:
        (name,) = fetch(f"{url}/list_environments")
        splits = fetch(f"{url}/{name}/splits")
    except HTTPError as error:
        with error:
            if error.code in {404, 501}:
                return (None if error.url.endswith("/list_environments") else name), []
            raise
    found: Listing = []
    for split in (one["name"] for one in splits):
        specs = fetch(f"{url}/{name}/tasks", {"split": split})["tasks"]
        try:
            count = fetch(f"{url}/{name}/num_tasks", {"split": split})["num_tasks"]
        except HTTPError as error:
            with error:
                count = len(specs)
        if specs:
            found.append((split, specs, count))
    return name, found


def _from_listing(listed: Listing) -> tuple[tuple[Task, ...], dict[str, Mapping[str, JSON]]]:
    tasks: list[Task] = []
    resets: dict[str, Mapping[str, JSON]] = {}
    for split, specs, _count in listed:
        for index, label in enumerate(task_ids(split, specs)):
            tasks.append(Task(id=label))
            resets[label] = {"split": split, "index": index}
    return tuple(tasks), resets


def _from_rows(data: str) -> tuple[tuple[Task, ...], dict[str, Mapping[str, JSON]]]:
    by_split: dict[str, list[Mapping[str, Any]]] = {}
    for split, row in read_rows(data):
        by_split.setdefault(split, []).append(row)
    tasks: list[Task] = []
    resets: dict[str, Mapping[str, JSON]] = {}
    for split, rows in by_split.items():
        for label, row in zip(task_ids(split, rows), rows, strict=True):
            tasks.append(Task(id=label))
            resets[label] = row
    return tuple(tasks), resets


async def _examine_compiled(url: str, listed: Listing, common: Mapping[str, Any]) -> SourceFacts:
    if not listed:
        raise LiftError(
            "this server plays a compiled environment under a release of OpenEnv that lists no tasks; serve it under 0.4 or later"
        )
    tasks = tuple(
        Task(id=spec["id"], inputs=spec["inputs"]) for _split, specs, _count in listed for spec in specs
    )
    try:
        async with ADAPTER.connect(None, Endpoint(url, lambda: 0)) as session:
            tools = (await session.open(tasks[0].id, 0)).tools
    except SessionError as error:
        raise LiftError(f"the source does not begin task {tasks[0].id}: {error}") from error
    return SourceFacts(**common, tasks=tasks, tools=tools, losses=(_STATE,))


async def _find_manner(
    url: str, action: Mapping[str, Any], resets: Mapping[str, Mapping[str, JSON]]
) -> Manner:
    fields: dict[str, Any] = {
        name: schema for name, schema in action.get("properties", {}).items() if name != "metadata"
    }
    # An environment whose actions are CallToolAction, or any at all, lists its tools; another would refuse the request.
    if not fields or fields.keys() >= {"tool_name", "arguments"}:
        async with _connect(url, Manner((), is_mcp=True, text_field=None, resets={})) as session:
            tools = await session.listed()
        if tools:
            return Manner(tools, is_mcp=True, text_field=None, resets=resets)
    if not fields:
        raise LiftError("this server lists no tools, and its actions have no fields")
    schema = {**action, "properties": fields}
    act = ToolSpec(ACT_TOOL, str(action.get("description") or "Carry out one action."), schema)
    texts = [name for name, one in fields.items() if one.get("type") == "string" and "enum" not in one]
    text = texts[0] if len(texts) == 1 and set(action.get("required", [])) <= set(texts) else None
    return Manner((act, TEXT_SPEC) if text else (act,), is_mcp=False, text_field=text, resets=resets)


async def _try(url: str, manner: Manner, task: str) -> list[Loss]:
    """Begin a task in two sessions at the same time, and return what that shows."""
    losses = []
    async with _connect(url, manner) as session:
        await session.open(task, 0)
        if session.paid_at_reset:
            losses.append(
                Loss(
                    PieceName.REWARD,
                    "lost",
                    f"reset pays, here {session.paid_at_reset:g}, which no step does",
                )
            )
        try:
            async with _connect(url, manner, patience=0.0) as second:
                await second.open(task, 0)
        except SessionError as error:
            losses.append(
                Loss(
                    PieceName.TRANSPORT,
                    "approximated",
                    "the server refuses a second session while one is open, so episodes are played one at a time: "
                    f"{str(error).removesuffix(_FULL).strip()}",
                    Concern.CONCURRENCY,
                )
            )
    return losses


def _short_lists(listed: Listing) -> list[Loss]:
    return [
        Loss(
            PieceName.TASKS, "approximated", f"split {split} has {count} tasks and lists {len(specs)} of them"
        )
        for split, specs, count in listed
        if len(specs) != count
    ]


def _mcp_losses(shown: frozenset[str]) -> list[Loss]:
    more = sorted(shown - _TOOL_KEYS)
    beside = f", and its own fields {', '.join(more)}" if more else ""
    return [
        Loss(
            PieceName.OBSERVATION_FORMAT,
            "approximated",
            "the model reads the text and images of a tool's result, or the result as JSON where it has neither; "
            f"structured_content, data and metadata{beside} stay behind",
            Concern.METADATA,
        ),
    ]


def _own_losses(manner: Manner) -> list[Loss]:
    text = "" if manner.text_field is None else f", and assistant text to fill its field {manner.text_field}"
    return [
        Loss(
            PieceName.TOOLS,
            "approximated",
            f"an action is a record of the environment's own and no call of a tool: it became the tool {ACT_TOOL} with the "
            f"record's schema without metadata{text}",
            Concern.TOOL_SCHEMA,
        ),
        Loss(
            PieceName.OBSERVATION_FORMAT,
            "approximated",
            "an observation is a record: the model reads its text where it has one field, and otherwise all fields as JSON, "
            "images among them; its metadata stays behind",
            Concern.IMAGES,
        ),
        Loss(
            PieceName.OBSERVATION_FORMAT,
            "approximated",
            "an action that does not fit the schema is answered and costs a turn; OpenEnv's client raises instead",
            Concern.ERRORS,
        ),
    ]


_STATE = Loss(
    PieceName.STATE_BETWEEN_TURNS,
    "approximated",
    "the episode lives in the source's server, where it cannot be stored or forked; sessions share the generators of that "
    "process, which only an environment that draws from them notices",
)
_SPECIFICATIONS = Loss(
    PieceName.TASKS,
    "approximated",
    "what a listed task says beside its id stays behind, because OpenEnv does not tell what of it is for the model",
)
_SEED_LOSSES = (
    Loss(
        PieceName.TASKS,
        "approximated",
        "the server lists no tasks: the seeds from 0 became the tasks of one split, train",
    ),
    Loss(
        PieceName.INITIAL_STATE,
        "approximated",
        "the task decides the seed that reset is given, so the seed of an episode changes nothing",
        Concern.SEED,
    ),
)
_LOSSES = (
    Loss(
        PieceName.PROMPT_TEMPLATE,
        "approximated",
        "OpenEnv has no prompt: what reset observes became one message of the user, its text where it has one field and "
        "otherwise JSON",
        Concern.INITIAL_OBSERVATION,
    ),
    Loss(
        PieceName.REWARD,
        "approximated",
        "OpenEnv does not say how rewards make a return: they are added up, and a step without a reward pays 0",
        Concern.REWARD_AGGREGATION,
    ),
    Loss(
        PieceName.EPISODE_END,
        "approximated",
        "OpenEnv says that an episode is done, and not how or why: the cause is always submitted",
        Concern.END_AND_CAUSE,
    ),
    Loss(
        PieceName.EPISODE_END,
        "approximated",
        "an episode that its own limit of steps ended is not told from one that was finished",
        Concern.TRUNCATION,
    ),
    Loss(
        PieceName.EPISODE_CONTROL,
        "approximated",
        "reset is given the keywords of the task and the seed, and step no time limit; rows of --data may hold other keywords",
    ),
    _STATE,
)

LIFTER = OpenEnvLifter()
