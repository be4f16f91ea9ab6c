"""The adapter for ORS: compile, serve with uvicorn, connect with the official client of the installed distribution."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import uvicorn

from adapters.ors.client import Client
from adapters.ors.compiler import MAX_THREADS, CompiledEnvironment, compile_environment, make_server
from adapters.ors.framework import LINGER_SECONDS, PACKAGES
from adapters.ors.session import OrsSession
from adapters.ors.wire import Reading
from canonical.adapter import Endpoint, Feature, Level, SessionError, Support
from canonical.content import JSON
from canonical.environment import Environment
from canonical.listening import Door, listen, url_of
from canonical.server_settings import ServerSettings

SESSION_TTL_S = 900.0
"""After how many seconds without a ping a server of ORS frees a session; it is fixed in both distributions."""


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The process that serves decides what its signals mean; uvicorn would take them away from it.
        yield


class OrsAdapter:
    """Run environments under ORS.

    Args:
        reading: How the trainer reads rewards: it adds them, as the standard has it, or takes the last one.
        settings: What servers have that differs from below.
    """

    name = "ors"

    def __init__(self, *, reading: Reading = "sum", settings: ServerSettings | None = None) -> None:
        self._reading: Reading = reading
        self._settings = settings or ServerSettings()

    def with_settings(self, settings: ServerSettings, /) -> OrsAdapter:
        """Return this adapter with servers that have these settings."""
        return OrsAdapter(reading=self._reading, settings=settings)

    def alternatives(self) -> Mapping[str, ServerSettings]:
        """Return settings worth comparing: the HTTP implementations that are installed, and the accept queue."""
        found = {"backlog=2048": ServerSettings(backlog=2048)}
        if find_spec("httptools") is not None:
            found["http=httptools"] = ServerSettings(http="httptools")
        return found

    def packages(self) -> Mapping[str, str]:
        """Return the installed distribution of ORS and its exact version."""
        found = {}
        for package in PACKAGES:
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                continue
        return found

    def features(self) -> Mapping[Feature, Support]:
        """Return what the installed distribution supports."""
        native = Support(Level.NATIVE)
        return {
            Feature.SEEDED_RESET: Support(
                Level.EMULATED, "ORS has no seeds; task_spec may hold one beside the task's id"
            ),
            Feature.TASK_SELECTION: Support(Level.NATIVE, "task_spec, or split and index"),
            Feature.SPLITS: native,
            Feature.TOOL_CALLS: native,
            Feature.TEXT_ACTIONS: Support(
                Level.EMULATED,
                "ORS calls tools only; text is the input of a call whose name the client chose for the session, unseen by models",
            ),
            Feature.TOOL_SCHEMAS: native,
            Feature.ERROR_CODES: Support(Level.EMULATED, "the metadata of the tool's output"),
            Feature.STEP_REWARD: Support(
                Level.NATIVE,
                "rewards sum to the return; for trainers that keep the last one, compile with reading='last'",
            ),
            Feature.REWARD_COMPONENTS: Support(Level.EMULATED, "the metadata of the tool's output"),
            Feature.TRUNCATION: Support(
                Level.EMULATED, "ORS has only finished; the metadata of the tool's output says how"
            ),
            Feature.CAUSE: Support(Level.EMULATED, "the metadata of the tool's output"),
            Feature.IMAGES: native,
            Feature.CONCURRENT_SESSIONS: native,
            Feature.REMOTE: native,
            Feature.SNAPSHOT: Support(Level.ABSENT, "ORS has no request that stores or restores a session"),
        }

    async def list_tasks(self, compiled: Any, endpoint: Endpoint, split: str, /) -> Sequence[str]:
        """Return the ids of the tasks of a split, as the official client lists them.

        Raises:
            SessionError: There is no such split, or the server cannot be reached.
        """
        async with self.connect(compiled, endpoint) as session:
            return await session.list_tasks(split)

    def compile(self, environment: Environment[Any], /) -> type[CompiledEnvironment]:
        """Return an `Environment` class of ORS that plays the environment."""
        return compile_environment(environment, reading=self._reading)

    @asynccontextmanager
    async def serve(
        self, compiled: type[CompiledEnvironment], /, *, host: str = "127.0.0.1", port: int = 0
    ) -> AsyncIterator[Endpoint]:
        """Serve on the running loop with uvicorn; port 0 picks a free one.

        Leaving the context frees every episode.

        Raises:
            OSError: The port is in use or not allowed.
            ValueError: The environment's name is one of the server's own paths.
        """
        settings: dict[str, Any] = {
            "http": "h11",
            "backlog": 4096,
            "timeout_keep_alive": 60,
            "timeout_graceful_shutdown": 10,
            "access_log": False,
            "log_level": "warning",
            **self._settings.uvicorn(),
        }
        door = Door(make_server(compiled).app, "/create_session", "/create")
        listener = listen(host, port, settings["backlog"])
        server = _Server(uvicorn.Config(door, lifespan="on", log_config=None, **settings))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            while not server.started:
                if serving.done():
                    raise RuntimeError("uvicorn stopped before it had started") from serving.exception()
                await asyncio.sleep(0.001)
            recorded: dict[str, JSON] = {
                "server": "uvicorn",
                "max_threads": MAX_THREADS,
                "session_ttl_seconds": SESSION_TTL_S,
                "results_kept_seconds": LINGER_SECONDS,
                **settings,
            }
            yield Endpoint(url_of(listener), lambda: len(compiled.live), recorded, door.shut)
        finally:
            server.should_exit = True
            await asyncio.gather(serving, return_exceptions=True)
            listener.close()
            await compiled.release()

    @asynccontextmanager
    async def connect(
        self,
        compiled: type[CompiledEnvironment] | None,  # noqa: ARG002 - the port asks for it
        endpoint: Endpoint,
        /,
    ) -> AsyncIterator[OrsSession]:
        """Make a client of ORS; leaving the context ends its session.

        Raises:
            SessionError: The server cannot be reached.
        """
        if endpoint.url is None:
            raise SessionError(
                "ORS runs environments behind a server: serve the environment and give its address"
            )
        session = OrsSession(Client(endpoint.url), self._reading)
        try:
            await session.connect()
            yield session
        finally:
            await session.close()


ADAPTER = OrsAdapter()
