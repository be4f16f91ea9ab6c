"""Lift an environment that a server of ORS plays: a running one, or a class that is served here.

A server that answers in the channel of this project's compiled environments is played as they are; nothing is lost. Of any
other, the tools, prompts and rewards are what the official client shows. Its terminal tool takes assistant text.
"""

from __future__ import annotations

import base64
import binascii
import inspect
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import asdict, dataclass
from importlib.metadata import packages_distributions, version
from typing import Any
from urllib.parse import urlsplit

import uvicorn

from adapters.ors.adapter import ADAPTER
from adapters.ors.client import Client
from adapters.ors.compiler import compile_environment, make_server
from adapters.ors.framework import Environment, Server
from adapters.ors.session import OrsSession
from canonical.adapter import Loss, Opened, SessionError
from canonical.bridge.beside import serve_beside
from canonical.bridge.imports import find_named, import_named, read_rows
from canonical.bridge.source import (
    COMPILED,
    LiftError,
    LiftOptions,
    SourceFacts,
    identifier,
    no_limit,
    task_ids,
    text_spec_beside,
)
from canonical.catalogue import load_environment
from canonical.content import JSON, Block, ErrorCode, Image, Message, Observation, Text
from canonical.listening import listen
from canonical.step import Cause, StepResult
from canonical.stone import Concern, PieceName
from canonical.task import Task
from canonical.tool import ToolSpec
from canonical.transcript import Action

_NO_ARGUMENTS: Mapping[str, JSON] = {"type": "object", "properties": {}, "additionalProperties": False}
_ROLES = frozenset({"system", "user", "assistant", "tool"})
_ROW_KEYS = {"id", "index", "inputs"}
_CODES = {
    "not_found": ErrorCode.UNKNOWN_TOOL,
    "name_collision": ErrorCode.UNKNOWN_TOOL,
    "input_validation": ErrorCode.INVALID_ARGUMENTS,
    "bad_input_shape": ErrorCode.INVALID_ARGUMENTS,
    "episode_finished": ErrorCode.EPISODE_OVER,
}
_PHRASES = {
    "Tool input validation error": ErrorCode.INVALID_ARGUMENTS,
    "Tool input must be": ErrorCode.INVALID_ARGUMENTS,
    "is not a valid tool": ErrorCode.UNKNOWN_TOOL,
    "Tool name collision": ErrorCode.UNKNOWN_TOOL,
}

Place = Mapping[str, JSON] | tuple[str, int]
"""How a task is chosen: by its specification, or by split and index where there are too many to list."""


class LiftedSession(OrsSession):
    """Be one client of ORS, and whatever environment is behind it.

    Args:
        client: The client, not yet connected.
        places: The id of each task -> how it is chosen.
    """

    def __init__(self, client: Client, places: Mapping[str, Place]) -> None:
        super().__init__(client)
        self._places = places
        self._total = 0.0

    async def open(self, task: str, seed: int) -> Opened:  # noqa: ARG002 - ORS has no seeds
        """Start an episode of a task in a new session of ORS; one that is still open is ended.

        Raises:
            SessionError: There is no such task, or the server refused or failed.
        """
        if task not in self._places:
            raise SessionError(f"the source has no task {task!r}")
        place = self._places[task]
        self._total = 0.0
        opened = await self._begin(
            lambda: (
                self._client.session_at(*place) if isinstance(place, tuple) else self._client.session(place)
            )
        )
        self._last = None
        return opened

    async def step(self, action: Action) -> StepResult:
        """Call a tool; text is for the terminal tool.

        Raises:
            SessionError: The action is none that the source takes, or the server failed.
        """
        self._check()
        session = self._session
        if session is None:
            raise SessionError("open an episode before stepping")
        if isinstance(action, str):
            if not hasattr(session, "call_terminal_tool"):
                raise SessionError("this environment takes calls of its tools, and no text")
            call = session.call_terminal_tool(action)
        else:
            call = session.call_tool(action.name, dict(action.arguments))
        try:
            output = asdict(await self._ask(call))
        except SessionError as error:
            refused = _refusal(error.__cause__)
            if refused is None:
                raise
            return StepResult(refused, 0.0, self._total, Cause.SUBMITTED if self._is_over else None)
        self._last = output["metadata"]
        paid = float(output["reward"] or 0.0)
        self._total += paid
        self._return = self._total
        self._is_over = self._is_over or bool(output["finished"])
        return StepResult(
            Observation(tuple(map(_read_block, output["blocks"]))),
            paid,
            self._total,
            Cause.SUBMITTED if self._is_over else None,
        )

    async def public_state(self) -> JSON:
        """Return the metadata of the last answer; a client of ORS can read nothing else of an episode."""
        return self._last

    async def listed(self) -> tuple[str, ...]:
        """Return the names of the tools that the environment lists without a task.

        Raises:
            SessionError: The server failed.
        """
        return tuple(tool.name for tool in await self._ask(self._client.list_tools()))

    async def has_terminal_tool(self) -> bool:
        """Say whether assistant text ends an episode.

        Raises:
            SessionError: No episode is open, or the server failed.
        """
        self._check()
        if not hasattr(self._session, "terminal_tool"):
            return False
        return await self._ask(self._session.terminal_tool()) is not None

    async def _prompt(self) -> list[Any]:
        if hasattr(self._session, "get_messages"):
            return [asdict(message) for message in await self._ask(self._session.get_messages())]
        return [{"role": "user", "blocks": await super()._prompt()}]

    def _read_opened(self, shown: list[Any], listed: Sequence[Any]) -> Opened:
        prompt = [
            Message(one["role"] if one["role"] in _ROLES else "user", tuple(map(_read_block, one["blocks"])))
            for one in shown
        ]
        return Opened(
            tuple(prompt),
            tuple(
                ToolSpec(tool.name, tool.description, tool.input_schema or _NO_ARGUMENTS) for tool in listed
            ),
        )


def _refusal(error: BaseException | None) -> Observation | None:
    """Return what the client says of a call that the server did not carry out, or None where something broke."""
    # Its module differs between the two distributions, and between their releases.
    if type(error).__name__ != "ToolCallError":
        return None
    text = str(getattr(error, "detail", None) or error)
    code = _CODES.get(getattr(error, "reason", ""))
    return Observation.of(
        text,
        code or next((one for phrase, one in _PHRASES.items() if phrase in text), ErrorCode.UNKNOWN_TOOL),
    )


def _read_block(block: Mapping[str, Any]) -> Block:
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
    """Hold a server of ORS that can be connected to as often as it admits.

    Attributes:
        places: The id of each task -> how it is chosen; None where the server plays a compiled environment.
    """

    facts: SourceFacts
    url: str
    name: str | None
    places: Mapping[str, Place] | None

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[OrsSession]:
        """Make a client of ORS; leaving the context ends its session.

        Raises:
            SessionError: The server cannot be reached.
        """
        client = Client(self.url, self.name)
        session = OrsSession(client) if self.places is None else LiftedSession(client, self.places)
        try:
            await session.connect()
            yield session
        finally:
            await session.close()


class OrsLifter:
    """Lift `ors:ADDRESS[/NAME]`, or `ors:MODULE[:NAME]` or `ors:PATH[:NAME]` of a class of environments."""

    @asynccontextmanager
    async def lift(self, reference: str, options: LiftOptions, /) -> AsyncIterator[LiftedSource]:
        """Make a source of a server: `http://...` of a running one, with the name of one of several, or what a module holds.

        A module holds a class of environments, which may go unnamed where it is the only one of the module; or a `Server`.

        Raises:
            LiftError: There is nothing of the kind, it does not start, or its server is none of ORS.
        """
        for name in options.imports:
            import_named(name)
        if options.arguments:
            raise LiftError(
                "ORS makes its environments of a task and secrets alone, so that they take no arguments"
            )
        packages = dict(ADAPTER.packages())
        chosen: str | None = None
        served: AbstractAsyncContextManager[str]
        if reference.startswith(("http://", "https://")):
            parts = urlsplit(reference)
            chosen = parts.path.strip("/") or None
            served = nullcontext(f"{parts.scheme}://{parts.netloc}")
        else:
            server, module = _find_server(reference)
            for name in packages_distributions().get(module.partition(".")[0], ()):
                packages[name] = version(name)
            served = _serve(server)
        async with served as url:
            facts, places = await _examine(url, chosen, f"ors:{reference}", packages, options)
            yield LiftedSource(facts, url, chosen, places)


def _find_server(reference: str) -> tuple[Any, str]:
    if reference.startswith(COMPILED):
        compiled = compile_environment(load_environment(reference.removeprefix(COMPILED)))
        return make_server(compiled), __name__
    if ":" in reference:
        found, module = find_named(reference), reference.rpartition(":")[0]
    else:
        held = import_named(reference)
        module = held.__name__
        kinds = [one for one in vars(held).values() if _is_environment(one) and one.__module__ == module]
        if len(kinds) != 1:
            named = ", ".join(kind.__name__ for kind in kinds) or "none"
            raise LiftError(f"{reference} has not one class of environments ({named}); name it: MODULE:NAME")
        found = kinds[0]
    if isinstance(found, Server):
        return found, module
    if not _is_environment(found):
        raise LiftError(f"{reference} is neither a class of environments of ORS nor a Server")
    try:
        return Server([found]), module
    except Exception as error:
        raise LiftError(f"{reference} cannot be served: {type(error).__name__}: {error}") from error


def _is_environment(found: Any) -> bool:
    return inspect.isclass(found) and issubclass(found, Environment)


@asynccontextmanager
async def _serve(server: Any) -> AsyncIterator[str]:
    listener = listen("127.0.0.1", 0, 4096)
    settings: dict[str, Any] = {
        "http": "h11",
        "timeout_keep_alive": 60,
        "timeout_graceful_shutdown": 5,
        "access_log": False,
        "log_level": "warning",
    }
    async with serve_beside(uvicorn.Server(uvicorn.Config(server.app, **settings)), listener) as url:
        yield url


async def _examine(
    url: str, name: str | None, source: str, packages: Mapping[str, str], options: LiftOptions
) -> tuple[SourceFacts, Mapping[str, Place] | None]:
    client = Client(url, name)
    session = LiftedSession(client, {})
    try:
        await session.connect()
        common: dict[str, Any] = {
            "name": identifier(client.environment),
            "version": next(iter(packages.values())),
            "source": source,
            "packages": packages,
            "max_turns": options.max_turns,
        }
        listed = {} if options.data is not None else await _list_tasks(client)
    except LiftError:
        raise
    except Exception as error:
        # The clients of the two distributions have no common kind of error.
        raise LiftError(
            f"{source}: this is no server of ORS that answers: {str(error) or type(error).__name__}"
        ) from error
    finally:
        await session.close()
    if options.data is None and not any(listed.values()):
        raise LiftError(f"{source}: the server lists no tasks")
    first = next(iter(next((rows for rows in listed.values() if rows), ())), None)
    if isinstance(first, dict) and first.keys() == _ROW_KEYS:
        compiled = await _examine_compiled(url, name, listed, common)
        if compiled is not None:
            return compiled, None
    places: dict[str, Place] = {}
    for split, rows in (_by_split(options.data) if options.data is not None else listed).items():
        places |= zip(task_ids(split, rows), rows, strict=True)
    try:
        return await _examine_other(url, name, places, common, options), places
    except SessionError as error:
        raise LiftError(f"{source} cannot be played: {error}") from error


async def _list_tasks(client: Client) -> dict[str, list[Any]]:
    listed: dict[str, list[Any]] = {}
    for split in await client.list_splits():
        try:
            listed[split] = [task.task_spec for task in await client.list_tasks(split)]
        except Exception:  # noqa: BLE001 - there may be too many to list, which each server says in its own way
            listed[split] = [(split, index) for index in range(await client.num_tasks(split))]
    return listed


def _by_split(data: str) -> dict[str, list[Any]]:
    rows: dict[str, list[Any]] = {}
    for split, row in read_rows(data):
        rows.setdefault(split, []).append(row)
    return rows


async def _examine_compiled(
    url: str, name: str | None, listed: Mapping[str, list[Any]], common: Mapping[str, Any]
) -> SourceFacts | None:
    """Return the facts of a compiled environment, or None where it does not answer as those do."""
    rows = [row for one in listed.values() for row in one]
    session = OrsSession(Client(url, name))
    try:
        await session.connect()
        tools = (await session.open(rows[0]["id"], 0)).tools
        # Only a compiled environment hears the channel in which text travels.
        await session.step("")
    except SessionError:
        return None
    finally:
        await session.close()
    return SourceFacts(
        **common,
        tasks=tuple(Task(id=row["id"], inputs=row["inputs"]) for row in rows),
        tools=tools,
        losses=(_STATE,),
    )


async def _examine_other(
    url: str, name: str | None, places: Mapping[str, Place], common: Mapping[str, Any], options: LiftOptions
) -> SourceFacts:
    session = LiftedSession(Client(url, name), places)
    try:
        await session.connect()
        opened = await session.open(next(iter(places)), 0)
        takes_text = await session.has_terminal_tool()
        general = await session.listed()
    finally:
        await session.close()
    own = sorted(tool.name for tool in opened.tools if tool.name not in general)
    losses = [*_LOSSES, no_limit(options)]
    if own:
        losses.append(
            Loss(
                PieceName.TOOLS,
                "approximated",
                f"tools may belong to single tasks: those of the first task are offered in all, {', '.join(own)} among them",
                Concern.TOOL_SCHEMA,
            )
        )
    text = text_spec_beside(opened.tools)
    if takes_text:
        losses.append(_terminal(text.name))
    return SourceFacts(
        **common,
        tasks=tuple(Task(id=task) for task in places),
        tools=(*opened.tools, *((text,) if takes_text else ())),
        text_tool=text.name if takes_text else None,
        losses=tuple(losses),
    )


def _terminal(name: str) -> Loss:
    return Loss(
        PieceName.TOOLS,
        "approximated",
        f"the terminal tool, which no model of ORS sees, is offered as the tool {name}; a message without a call goes there",
        Concern.TOOL_SCHEMA,
    )


_STATE = Loss(
    PieceName.STATE_BETWEEN_TURNS,
    "approximated",
    "the episode lives in the source's server, where it cannot be stored or forked; sessions share the generators of that "
    "process, which only an environment that draws from them notices",
)
_LOSSES = (
    Loss(
        PieceName.TASKS,
        "approximated",
        "what a task's specification says stays behind, because ORS does not tell what of it is for the model",
    ),
    Loss(
        PieceName.INITIAL_STATE,
        "approximated",
        "ORS has no seeds, so the seed of an episode changes nothing",
        Concern.SEED,
    ),
    Loss(
        PieceName.PROMPT_TEMPLATE,
        "approximated",
        "a prompt without roles became one message of the user; reasoning, and calls and results of tools in it, became JSON",
        Concern.INITIAL_OBSERVATION,
    ),
    Loss(
        PieceName.OBSERVATION_FORMAT,
        "approximated",
        "the model reads text and images; the detail of a block and the metadata of an answer stay behind",
        Concern.METADATA,
    ),
    Loss(
        PieceName.OBSERVATION_FORMAT,
        "approximated",
        "a call that the server refuses (arguments that do not fit, or after the end) is answered and costs a turn; the client "
        "of ORS raises instead",
        Concern.ERRORS,
    ),
    Loss(
        PieceName.REWARD,
        "approximated",
        "rewards are added up, as the standard has it, and an answer without one pays 0; a trainer that takes the last one "
        "reads another return",
        Concern.REWARD_AGGREGATION,
    ),
    Loss(
        PieceName.EPISODE_END,
        "approximated",
        "ORS says that an episode is finished, and not how or why: the cause is always submitted",
        Concern.END_AND_CAUSE,
    ),
    Loss(
        PieceName.EPISODE_END,
        "approximated",
        "an episode that its own limit of turns ended is not told from one that was finished",
        Concern.TRUNCATION,
    ),
    Loss(
        PieceName.EPISODE_CONTROL,
        "approximated",
        "sessions are made without secrets, overrides of the environment, or one of the built-in toolsets; groups are not scored",
    ),
    _STATE,
)

LIFTER = OrsLifter()
