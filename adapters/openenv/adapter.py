"""The adapter for OpenEnv: compile, serve with uvicorn, connect with OpenEnv's own client."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import uvicorn
from openenv.core.env_server import interfaces
from openenv.core.generic_client import GenericEnvClient

from adapters.openenv.compiler import MAX_CONCURRENT_ENVS, CompiledEnvironment, compile_environment, make_app
from adapters.openenv.session import OpenEnvSession, read_tasks
from canonical.adapter import Endpoint, Feature, Level, SessionError, Support
from canonical.content import JSON
from canonical.environment import Environment
from canonical.listening import Door, listen, url_of
from canonical.server_settings import ServerSettings

_MIB = 1024 * 1024


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The process that serves decides what its signals mean; uvicorn would take them away from it.
        yield


class OpenEnvAdapter:
    """Run environments under OpenEnv.

    Args:
        receive_timeout: Seconds that a client waits for the answer to one request. OpenEnv's default of 60 cuts slow
            tools off; a step takes as long as its tool works.
        connect_timeout: Seconds that a client waits for the connection.
        max_concurrent_envs: How many sessions a server admits.
        settings: What servers have that differs from below.
    """

    name = "openenv"

    def __init__(
        self,
        *,
        receive_timeout: float = 600.0,
        connect_timeout: float = 30.0,
        max_concurrent_envs: int = MAX_CONCURRENT_ENVS,
        settings: ServerSettings | None = None,
    ) -> None:
        self._receive_timeout = receive_timeout
        self._connect_timeout = connect_timeout
        self._max_concurrent_envs = max_concurrent_envs
        self._settings = settings or ServerSettings()

    def with_settings(self, settings: ServerSettings, /) -> OpenEnvAdapter:
        """Return this adapter with servers that have these settings."""
        return OpenEnvAdapter(
            receive_timeout=self._receive_timeout,
            connect_timeout=self._connect_timeout,
            max_concurrent_envs=self._max_concurrent_envs,
            settings=settings,
        )

    def alternatives(self) -> Mapping[str, ServerSettings]:
        """Return settings worth comparing: the WebSocket implementations that are installed, pings, queue, compression."""
        found = {
            "ws=websockets": ServerSettings(ws="websockets"),
            "ws_deflate=on": ServerSettings(ws_deflate=True),
            "ping=off": ServerSettings(ping_interval_s=0),
            "backlog=2048": ServerSettings(backlog=2048),
        }
        if find_spec("wsproto") is not None:
            found["ws=wsproto"] = ServerSettings(ws="wsproto")
        return found

    def packages(self) -> Mapping[str, str]:
        """Return the installed distribution of OpenEnv and its exact version."""
        found = {}
        for package in ("openenv", "openenv-core"):
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                continue
        return found

    def features(self) -> Mapping[Feature, Support]:
        """Return what the installed release supports."""
        native = Support(Level.NATIVE)
        has_task_api = hasattr(interfaces, "TaskProvider")
        return {
            Feature.SEEDED_RESET: native,
            Feature.TASK_SELECTION: Support(Level.NATIVE, "the keyword task of reset, or split and index"),
            Feature.SPLITS: native
            if has_task_api
            else Support(
                Level.EMULATED, "a keyword of reset; this release has no listing of splits and tasks"
            ),
            Feature.TOOL_CALLS: native,
            Feature.TEXT_ACTIONS: Support(
                Level.EMULATED,
                "the text travels in the metadata of a CallToolAction, and the server reads it",
            ),
            Feature.TOOL_SCHEMAS: native,
            Feature.ERROR_CODES: Support(
                Level.EMULATED,
                "OpenEnv has five error types; a declared field of the observation holds the exact code",
            ),
            Feature.STEP_REWARD: native,
            Feature.REWARD_COMPONENTS: Support(Level.EMULATED, "a declared field of the observation"),
            Feature.TRUNCATION: Support(
                Level.EMULATED, "OpenEnv has only done; a declared field of the observation holds the ending"
            ),
            Feature.CAUSE: Support(Level.EMULATED, "a declared field of the observation"),
            Feature.IMAGES: Support(Level.EMULATED, "MCP content blocks in the result of the observation"),
            Feature.CONCURRENT_SESSIONS: native,
            Feature.REMOTE: native,
            Feature.SNAPSHOT: Support(
                Level.ABSENT, "OpenEnv has no request that stores or restores a session"
            ),
        }

    async def list_tasks(self, compiled: Any, endpoint: Endpoint, split: str, /) -> Sequence[str]:
        """Return the ids of the tasks of a split from the Task API; where there is none, by the keywords of `reset`.

        Raises:
            SessionError: There is no such split, or the server cannot be reached.
        """
        if endpoint.url is not None:
            listed = await asyncio.to_thread(read_tasks, endpoint.url, split)
            if listed is not None:
                return listed
        async with self.connect(compiled, endpoint) as session:
            return await session.walk(split)

    def compile(self, environment: Environment[Any], /) -> type[CompiledEnvironment]:
        """Return an OpenEnv `Environment` class that plays the environment."""
        return compile_environment(environment)

    @asynccontextmanager
    async def serve(
        self, compiled: type[CompiledEnvironment], /, *, host: str = "127.0.0.1", port: int = 0
    ) -> AsyncIterator[Endpoint]:
        """Serve on the running loop with uvicorn; port 0 picks a free one.

        Leaving the context closes all connections and frees every episode.

        Raises:
            OSError: The port is in use or not allowed.
        """
        # Pings find peers that vanished, so that their episodes are freed. The answer may take long, because a client
        # process with thousands of sessions answers late without being gone.
        settings: dict[str, Any] = {
            "ws": "websockets-sansio",
            "http": "h11",
            "backlog": 4096,
            "ws_max_size": 100 * _MIB,
            "ws_ping_interval": 20.0,
            "ws_ping_timeout": 120.0,
            "ws_per_message_deflate": False,
            "timeout_graceful_shutdown": 10,
            "access_log": False,
            "log_level": "warning",
            **self._settings.uvicorn(),
        }
        listener = listen(host, port, settings["backlog"])
        door = Door(make_app(compiled, max_concurrent_envs=self._max_concurrent_envs))
        server = _Server(uvicorn.Config(door, lifespan="on", log_config=None, **settings))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            while not server.started:
                if serving.done():
                    raise RuntimeError("uvicorn stopped before it had started") from serving.exception()
                await asyncio.sleep(0.001)
            recorded: dict[str, JSON] = {
                "server": "uvicorn",
                "max_concurrent_envs": self._max_concurrent_envs,
                **settings,
            }
            yield Endpoint(url_of(listener), lambda: len(compiled.live), recorded, door.shut)
        finally:
            server.should_exit = True
            await asyncio.gather(serving, return_exceptions=True)
            listener.close()
            for left in list(compiled.live):
                await asyncio.to_thread(left.close)

    @asynccontextmanager
    async def connect(
        self,
        compiled: type[CompiledEnvironment] | None,  # noqa: ARG002 - the port asks for it
        endpoint: Endpoint,
        /,
    ) -> AsyncIterator[OpenEnvSession]:
        """Open a session with `GenericEnvClient`; leaving the context frees it.

        Raises:
            SessionError: The server cannot be reached or refused the session.
        """
        if endpoint.url is None:
            raise SessionError(
                "OpenEnv runs environments behind a server: serve the environment and give its address"
            )
        session = OpenEnvSession(self.client(endpoint.url), self._receive_timeout)
        try:
            await session.connect()
            yield session
        finally:
            await session.close()

    def client(self, url: str) -> GenericEnvClient:
        """Return a client for a server, not yet connected."""
        wanted: dict[str, Any] = {
            "base_url": url,
            "connect_timeout_s": self._connect_timeout,
            "message_timeout_s": self._receive_timeout,
            "max_message_size_mb": 100.0,
            # Silence on a busy server is not a lost connection; the receive timeout is what ends a wait.
            "websocket_ping_timeout_s": self._receive_timeout,
            "mode": "simulation",
        }
        accepted = inspect.signature(GenericEnvClient).parameters
        return GenericEnvClient(**{name: value for name, value in wanted.items() if name in accepted})


ADAPTER = OpenEnvAdapter()
