"""Lift a resources server of NeMo Gym: its rows are the tasks, its routes the tools, its word is the reward."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from nemo_gym.base_resources_server import SimpleResourcesServer
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from adapters.nemo_gym.compiler import compile_environment, make_app
from adapters.nemo_gym.connection import SERVER, Connection, Requests
from adapters.nemo_gym.lifted_session import GymnasiumSession, VerifiedSession
from adapters.nemo_gym.project import make_row
from adapters.nemo_gym.rows import Row, read_any_row
from canonical.adapter import Loss, SessionError
from canonical.bridge.beside import serve_beside
from canonical.bridge.imports import import_named, read_rows
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
from canonical.environment import Environment
from canonical.listening import listen
from canonical.reward import Aggregation
from canonical.stone import Concern, PieceName
from canonical.task import Task
from canonical.tool import ToolSpec

_HOST = "127.0.0.1"
_BACKLOG = 4096
_RECEIVE_TIMEOUT_S = 600.0
_ROUTES_TIMEOUT_S = 60.0
_PLAYED = frozenset({"simple_agent", "gymnasium_agent"})
_OWN_SERVERS = "resources_servers"


@dataclass(slots=True)
class Setting:
    """Hold what the folder of a resources server says of it, as far as a configuration is there.

    Attributes:
        name: What the server is called.
        server: The keys of its own configuration.
        agents: The kinds of agents that the configuration lets play it.
        max_steps: How often such an agent asks its model, where it says so.
        files: Split -> files of rows that are there.
    """

    name: str
    server: Mapping[str, Any] = field(default_factory=dict)
    agents: frozenset[str] = frozenset()
    max_steps: int | None = None
    files: Mapping[str, list[Path]] = field(default_factory=dict)


def read_setting(folder: Path, arguments: Mapping[str, Any]) -> Setting:
    """Read the configuration in a folder; arguments stand in for its keys.

    Raises:
        LiftError: It cannot be read, or lacks a value.
    """
    example = folder / "data" / "example.jsonl"
    setting = Setting(folder.name, arguments, files={"example": [example]} if example.is_file() else {})
    configs = sorted(folder.glob("configs/*.yaml"), key=lambda path: (path.stem != folder.name, path.name))
    for path in configs:
        try:
            config = OmegaConf.load(path)
            plain: Any = OmegaConf.to_container(config, resolve=False)
            for name, instance in plain.items():
                kinds = instance.get("resources_servers") if isinstance(instance, dict) else None
                if not isinstance(kinds, dict) or len(kinds) != 1:
                    continue
                kind = next(iter(kinds))
                config = OmegaConf.merge(config, {name: {"resources_servers": {kind: dict(arguments)}}})
                own: Any = OmegaConf.to_container(
                    config[name].resources_servers[kind], resolve=True, throw_on_missing=True
                )
                setting.server = own
                _read_agents(setting, _agents_of(plain, name), folder)
                return setting
        except (OSError, OmegaConfBaseException, ValueError, AttributeError) as error:
            reason = str(error).splitlines()[0]
            raise LiftError(
                f"{path} cannot be used: {reason}; give keys that it lacks as arguments of the source"
            ) from error
    return setting


def _agents_of(config: Mapping[str, Any], server: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for instance in config.values():
        agents = instance.get("responses_api_agents") if isinstance(instance, dict) else None
        for kind, agent in (agents or {}).items():
            played = agent.get("resources_server")
            if isinstance(played, dict) and played.get("name") == server:
                yield kind, agent


def _read_agents(setting: Setting, agents: Iterable[tuple[str, Mapping[str, Any]]], folder: Path) -> None:
    found = list(agents)
    setting.agents = frozenset(kind for kind, _ in found)
    files: dict[str, list[Path]] = {}
    for _, agent in sorted(found, key=lambda pair: pair[0] not in _PLAYED):
        steps = agent.get("max_steps")
        if setting.max_steps is None and isinstance(steps, int) and steps > 0:
            setting.max_steps = steps
        for dataset in agent.get("datasets") or ():
            path = folder / "data" / Path(str(dataset.get("jsonl_fpath", ""))).name
            known = files.setdefault(str(dataset.get("type", "train")), [])
            if path.is_file() and path not in known:
                known.append(path)
    setting.files = {split: paths for split, paths in files.items() if paths} or setting.files


@dataclass(frozen=True, slots=True)
class Subject:
    """Hold a class of servers, and where it was found: in a module of a folder, or in a folder that is a server's own."""

    kind: type[SimpleResourcesServer]
    module: str
    folder: Path
    is_folder: bool

    @property
    def name(self) -> str:
        """What the server is called: as its folder or module."""
        module = self.module.rpartition(".")[2]
        return self.folder.name if self.is_folder or module == "app" else module


def find_subject(reference: str) -> Subject:
    """Return the class of servers that a folder, or `MODULE[:CLASS]`, holds.

    Raises:
        LiftError: There is none, or more than one.
    """
    folder = _folder(reference)
    if folder is not None:
        module, wanted = _import_app(folder), ""
    else:
        name, colon, wanted = reference.rpartition(":")
        module = import_named(name if colon else reference)
        wanted = wanted if colon else ""
    found = {
        name: kind
        for name, kind in vars(module).items()
        if inspect.isclass(kind) and issubclass(kind, SimpleResourcesServer) and not inspect.isabstract(kind)
    }
    place = Path(module.__file__ or "").parent
    if wanted:
        if wanted not in found:
            raise LiftError(f"{module.__name__} has no resources server {wanted}{_list(found)}")
        return Subject(found[wanted], module.__name__, place, is_folder=False)
    # What a module only imports is the base of its own, unless it has none of its own.
    found = {name: kind for name, kind in found.items() if kind.__module__ == module.__name__} or found
    if len(found) != 1:
        problem = "more than one resources server" if found else "no resources server"
        hint = (
            f"; name one as MODULE:CLASS{_list(found)}"
            if found
            else ", no class made of SimpleResourcesServer"
        )
        raise LiftError(f"{reference} has {problem}{hint}")
    return Subject(next(iter(found.values())), module.__name__, place, folder is not None)


def _list(found: Iterable[str]) -> str:
    names = ", ".join(sorted(found))
    return f" ({names})" if names else ""


def _folder(reference: str) -> Path | None:
    folder = Path(reference)
    if folder.is_dir():
        return folder.resolve()
    root, _, name = reference.rstrip("/").partition("/")
    if root == _OWN_SERVERS and name:
        spec = importlib.util.find_spec(_OWN_SERVERS)
        places = [Path(place) for place in (spec.submodule_search_locations if spec else None) or ()]
        for place in places:
            if (place / name).is_dir():
                return place / name
        known = sorted(path.parent.name for place in places for path in place.glob("*/app.py"))
        raise LiftError(f"NeMo Gym ships no {reference}; its servers are {', '.join(known)}")
    if "/" in reference and not reference.partition(":")[0].endswith(".py"):
        raise LiftError(f"there is no folder {reference}")
    return None


def _import_app(folder: Path) -> ModuleType:
    """Import the `app.py` of a folder as NeMo Gym runs it, with the folder on the path, under a name of its own.

    Raises:
        LiftError: There is none, or it fails.
    """
    file = folder / "app.py"
    if not file.is_file():
        raise LiftError(f"{folder} is no folder of a resources server: it has no app.py")
    name = f"{identifier(folder.name)}_app"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018 - it is a file of Python
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(folder))
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        raise LiftError(
            f"{file} needs the module {error.name!r}: install its requirements.txt into this stack"
        ) from error
    except (Exception, SystemExit) as error:
        raise LiftError(f"{file} cannot be imported: {type(error).__name__}: {error}") from error
    return module


def _make_server(kind: type[SimpleResourcesServer], setting: Setting, port: int) -> Any:
    """Return a server that stands alone: without a head server or Ray.

    Raises:
        LiftError: Its configuration is wrong, or it cannot be made.
    """
    config_kind: Any = kind.model_fields["config"].annotation
    keys = {
        "entrypoint": "app.py",
        "domain": "other",
        **setting.server,
        "host": _HOST,
        "port": port,
        "name": setting.name,
    }
    try:
        return kind(config=config_kind.model_validate(keys), server_client=Connection(_HOST, port).client)
    except Exception as error:
        raise LiftError(
            f"{kind.__name__} cannot be made: {type(error).__name__}: {error}; the arguments of the source are "
            f"keys of its configuration"
        ) from error


@asynccontextmanager
async def _serve(subject: Subject, setting: Setting) -> AsyncIterator[str]:
    """Serve as NeMo Gym does, but without Ray.

    Raises:
        LiftError: The server cannot be made or does not start.
    """
    listener = listen(_HOST, 0, _BACKLOG)
    with contextlib.closing(listener), _inside(subject.folder if subject.is_folder else None):
        port = listener.getsockname()[1]
        server = _make_server(subject.kind, setting, port)
        try:
            app = make_app(server)
        except Exception as error:
            raise LiftError(
                f"{subject.kind.__name__} cannot be served: {type(error).__name__}: {error}"
            ) from error
        config = uvicorn.Config(
            app,
            lifespan="on",
            log_config=None,
            access_log=False,
            backlog=_BACKLOG,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=1,
        )
        async with serve_beside(uvicorn.Server(config), listener) as url:
            yield url


@contextmanager
def _inside(folder: Path | None) -> Iterator[None]:
    # NeMo Gym starts a server in its own folder, and servers read files relative to it.
    before = Path.cwd()
    if folder is not None:
        os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@dataclass(frozen=True, slots=True)
class LiftedSource:
    """Hold a resources server that is being served, and its rows."""

    facts: SourceFacts
    connection: Connection
    rows: Mapping[str, Row]
    is_gymnasium: bool

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[VerifiedSession | GymnasiumSession]:
        """Begin a session with NeMo Gym's client; leaving the context ends its rollout.

        Raises:
            SessionError: The server cannot be reached.
        """
        await self.connection.ready()
        kind = GymnasiumSession if self.is_gymnasium else VerifiedSession
        session = kind(Requests(self.connection, _RECEIVE_TIMEOUT_S), self.rows)
        try:
            yield session
        finally:
            await session.close()


class NeMoGymLifter:
    """Lift `nemo_gym:REFERENCE`.

    The reference is the folder of a resources server (or `resources_servers/NAME`, one that NeMo Gym ships), a
    `MODULE[:CLASS]` that holds one, or the `http://` address of one that is being served.
    """

    @asynccontextmanager
    async def lift(self, reference: str, options: LiftOptions, /) -> AsyncIterator[LiftedSource]:
        """Make a source of a resources server.

        Raises:
            LiftError: There is none, it does not start, or its rows are missing or wrong.
        """
        for name in options.imports:
            import_named(name)
        async with AsyncExitStack() as stack:
            if reference.startswith(("http://", "https://")):
                url, setting = reference, Setting(urlsplit(reference).netloc)
                rows = _read_rows(reference, setting, options)
            elif reference.startswith(COMPILED):
                environment = load_environment(reference.removeprefix(COMPILED))
                subject = Subject(compile_environment(environment), __name__, Path.cwd(), is_folder=False)
                setting = Setting(environment.name, {"entrypoint": "app.py"}, max_steps=environment.max_turns)
                rows = await _rows_of(environment, options.tasks)
                url = await stack.enter_async_context(_serve(subject, setting))
            else:
                subject = find_subject(reference)
                setting = read_setting(subject.folder, options.arguments)
                setting.name = subject.name
                rows = _read_rows(reference, setting, options)
                url = await stack.enter_async_context(_serve(subject, setting))
            place = urlsplit(url)
            connection = Connection(place.hostname or "", place.port or 80)
            try:
                await connection.ready()
                routes = await _routes(connection)
            except SessionError as error:
                raise LiftError(f"{reference} cannot be lifted: {error}") from error
            is_gymnasium = {"/reset", "/step"} <= routes and "/seed_session" not in routes
            tools, losses = _offered(rows, set() if is_gymnasium else routes)
            text = text_spec_beside(tools)
            losses = [*(_GYMNASIUM if is_gymnasium else _VERIFIED), *_LOSSES, *losses]
            losses += _losses_of(setting, is_example=options.data is None)
            if setting.max_steps is None:
                losses.append(no_limit(options))
            yield LiftedSource(
                SourceFacts(
                    name=identifier(setting.name),
                    version=version("nemo-gym"),
                    source=f"nemo_gym:{reference}",
                    packages={"nemo-gym": version("nemo-gym")},
                    tasks=tuple(Task(id=task) for task in rows),
                    tools=(*tools, text),
                    text_tool=text.name,
                    aggregation=Aggregation.SUM if is_gymnasium else Aggregation.TERMINAL,
                    max_turns=setting.max_steps or options.max_turns,
                    losses=tuple(losses),
                ),
                connection,
                rows,
                is_gymnasium,
            )


async def _rows_of(environment: Environment[Any], count: int) -> dict[str, Row]:
    """Return rows of the first tasks of each split, as they are written for NeMo Gym."""
    tasks = environment.tasks()
    return {
        task.id: read_any_row(await make_row(environment, task, 0), task.id)
        for split in tasks.splits
        for task in tasks.split(split)[:count]
    }


def _read_rows(reference: str, setting: Setting, options: LiftOptions) -> dict[str, Row]:
    found: list[tuple[str, Mapping[str, Any]]] = []
    if options.data is not None:
        found = read_rows(options.data)
    else:
        for split, paths in setting.files.items():
            found += [(split, row) for path in paths for _, row in read_rows(str(path))]
    if not found:
        raise LiftError(
            f"nemo_gym:{reference} comes without rows: name them with --data, a JSON Lines file or module:name, whose rows "
            "have the key responses_create_params and whatever else the server reads"
        )
    by_split: dict[str, list[Mapping[str, Any]]] = {}
    for split, row in found:
        by_split.setdefault(split, []).append(row)
    return {
        task: read_any_row(row, f"row {number} of {split}")
        for split, given in by_split.items()
        for number, (task, row) in enumerate(zip(task_ids(split, given), given, strict=True), start=1)
    }


async def _routes(connection: Connection) -> set[str]:
    """Return the paths that a server says it has; none where it does not say."""
    try:
        async with asyncio.timeout(_ROUTES_TIMEOUT_S):
            answer = await connection.client.get(SERVER, "/openapi.json")
            value = json.loads(await answer.read())
        return set(value["paths"])
    except (OSError, TimeoutError, ValueError, KeyError, TypeError):
        return set()


def _offered(rows: Mapping[str, Row], routes: set[str]) -> tuple[list[ToolSpec], list[Loss]]:
    """Return every tool of the rows, each once, and what is lost by that."""
    losses = {loss for row in rows.values() for loss in row.losses}
    tools: dict[str, ToolSpec] = {}
    kinds: dict[str, set[str]] = {}
    for row in rows.values():
        for tool in row.tools:
            tools.setdefault(tool.name, tool)
            kinds.setdefault(tool.name, set()).add(json.dumps(tool.to_json(), sort_keys=True))
    if any(len(row.tools) != len(tools) for row in rows.values()):
        note = "rows differ in their tools; here every episode offers all of them, and the server answers what it answers"
        losses.add(Loss(PieceName.TOOLS, "approximated", note))
    if various := sorted(name for name, forms in kinds.items() if len(forms) > 1):
        note = f"rows describe {_some(various)} in various ways; the first is offered in all episodes"
        losses.add(Loss(PieceName.TOOLS, "approximated", note, Concern.TOOL_SCHEMA))
    if missing := sorted(name for name in tools if routes and f"/{name}" not in routes):
        note = f"the server lists no route for {_some(missing)}; calls get whatever it answers, such as status 404"
        losses.add(Loss(PieceName.TOOLS, "approximated", note, Concern.ERRORS))
    return list(tools.values()), sorted(losses, key=lambda loss: (loss.piece, loss.note))


def _some(names: list[str]) -> str:
    most = 5
    return ", ".join(names[:most]) + (f" and {len(names) - most} more tools" if len(names) > most else "")


def _losses_of(setting: Setting, *, is_example: bool) -> Iterator[Loss]:
    if is_example and set(setting.files) == {"example"}:
        note = "only the example rows that come with the server are here; --data names others"
        yield Loss(PieceName.TASKS, "approximated", note)
    if others := sorted(_servers_in(setting.server)):
        note = f"the server asks {', '.join(others)}, which NeMo Gym would start beside it and which is not here: where it asks, it fails"
        yield Loss(PieceName.WHERE_ACTIONS_EXECUTE, "lost", note)
    if setting.agents and not setting.agents & _PLAYED:
        kinds = ", ".join(sorted(setting.agents))
        note = (
            f"the server is made for {kinds}, and is played as simple_agent or gymnasium_agent would play it"
        )
        yield Loss(PieceName.EPISODE_CONTROL, "approximated", note)


def _servers_in(value: Any) -> set[str]:
    """Return the names of the other servers that a configuration refers to."""
    match value:
        case {
            "type": "resources_servers" | "responses_api_models" | "responses_api_agents",
            "name": str(name),
        }:
            return {name}
        case dict():
            return {name for inner in value.values() for name in _servers_in(inner)}
        case list():
            return {name for inner in value for name in _servers_in(inner)}
        case _:
            return set()


_VERIFIED = (
    Loss(
        PieceName.EPISODE_END,
        "approximated",
        "a resources server never says that an episode is over: a text without a call ends it, as it ends the rollouts of "
        "simple_agent, and the cause is always submitted",
        Concern.END_AND_CAUSE,
    ),
    Loss(
        PieceName.REWARD,
        "preserved",
        "what /verify says of the whole rollout is paid at its end, cut off or not",
        Concern.REWARD_AGGREGATION,
    ),
    Loss(
        PieceName.REWARD,
        "approximated",
        "named parts and metrics in the answer to /verify are no reward; they are in the public state after the end",
        Concern.METADATA,
    ),
    Loss(
        PieceName.OBSERVATION_FORMAT,
        "preserved",
        "answers with a status of 400 and above keep their text and are marked: 422 as invalid arguments, others as a "
        "tool's error",
        Concern.ERRORS,
    ),
    Loss(
        PieceName.STATE_BETWEEN_TURNS,
        "approximated",
        "after a tool raised, the session goes on; simple_agent loses its cookie in releases before 0.7, and with it the "
        "session",
    ),
)
_GYMNASIUM = (
    Loss(
        PieceName.EPISODE_END,
        "approximated",
        "the server says whether it terminated or truncated an episode, and not why: causes are submitted or budget",
        Concern.END_AND_CAUSE,
    ),
    Loss(
        PieceName.OBSERVATION_FORMAT,
        "approximated",
        "the outputs of tools and the observation, several messages for an agent, are the blocks of one observation",
    ),
    Loss(
        PieceName.EPISODE_CONTROL,
        "approximated",
        "nothing tells the server of an episode that is given up; it holds its state until it is stopped",
    ),
)
_LOSSES = (
    Loss(
        PieceName.INITIAL_STATE,
        "approximated",
        "NeMo Gym has no seeds: the row decides the episode, the seed of an episode changes nothing, and what a server "
        "draws by chance cannot be repeated",
        Concern.SEED,
    ),
    Loss(
        PieceName.EPISODE_CONTROL,
        "approximated",
        "an action is one call or one text: several calls of one message become several turns",
    ),
    Loss(
        PieceName.EPISODE_CONTROL,
        "preserved",
        "all sessions share the one event loop of the server, as they do in NeMo Gym",
        Concern.CONCURRENCY,
    ),
    Loss(
        PieceName.STATE_BETWEEN_TURNS,
        "approximated",
        "the episode lives in the server under a cookie, where it cannot be stored or forked",
    ),
)


LIFTER = NeMoGymLifter()
