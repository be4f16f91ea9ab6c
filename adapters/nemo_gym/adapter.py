"""The adapter for NeMo Gym: compile, serve with uvicorn and without Ray, connect with NeMo Gym's own client."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn

from adapters.nemo_gym.compiler import CompiledServer, compile_environment, make_app, make_server
from adapters.nemo_gym.connection import Connection
from adapters.nemo_gym.project import write_project
from adapters.nemo_gym.session import NeMoGymSession
from canonical.adapter import Endpoint, Feature, Level, SessionError, Support
from canonical.content import JSON
from canonical.environment import Environment
from canonical.listening import Door, listen, url_of
from canonical.server_settings import ServerSettings


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The process that serves decides what its signals mean; uvicorn would take them away from it.
        yield


class NeMoGymAdapter:
    """Run environments under NeMo Gym.

    Args:
        receive_timeout: Seconds that a client waits for the answer to one request. NeMo Gym itself waits for ever.
        session_ttl: Seconds after which the server frees an episode that nobody uses or verifies.
        settings: What servers have that differs from below.
    """

    name = "nemo_gym"

    def __init__(
        self,
        *,
        receive_timeout: float = 600.0,
        session_ttl: float = 24 * 3600.0,
        settings: ServerSettings | None = None,
    ) -> None:
        self._receive_timeout = receive_timeout
        self._session_ttl = session_ttl
        self._settings = settings or ServerSettings()
        self._connections: dict[str, Connection] = {}

    def with_settings(self, settings: ServerSettings, /) -> NeMoGymAdapter:
        """Return this adapter with servers that have these settings."""
        return NeMoGymAdapter(
            receive_timeout=self._receive_timeout, session_ttl=self._session_ttl, settings=settings
        )

    def alternatives(self) -> Mapping[str, ServerSettings]:
        """Return settings worth comparing: the HTTP implementation, the accept queue, and the threads of plain tools."""
        found = {
            "backlog=2048": ServerSettings(backlog=2048),
            "threads=40": ServerSettings(threads=40),
            "threads=1024": ServerSettings(threads=1024),
        }
        if importlib.util.find_spec("httptools"):
            found["http=h11"] = ServerSettings(http="h11")
        return found

    def with_session_ttl(self, seconds: float, /) -> NeMoGymAdapter:
        """Return this adapter with servers that free an episode after so many seconds in which nobody used it."""
        return NeMoGymAdapter(
            receive_timeout=self._receive_timeout, session_ttl=seconds, settings=self._settings
        )

    def packages(self) -> Mapping[str, str]:
        """Return the installed distribution of NeMo Gym and its exact version."""
        return {"nemo-gym": version("nemo-gym")}

    def features(self) -> Mapping[Feature, Support]:
        """Return what the installed release supports."""
        native = Support(Level.NATIVE)
        result = "the result in JSON, which a client asks for by the header Accept"
        return {
            Feature.SEEDED_RESET: Support(
                Level.EMULATED, "a key of the row; NeMo Gym's word seed_session has nothing to do with chance"
            ),
            Feature.TASK_SELECTION: Support(Level.NATIVE, "the row that is posted to /seed_session"),
            Feature.SPLITS: Support(
                Level.EMULATED,
                "one JSONL file per split; NeMo Gym's word for them is the type of a dataset, which knows train and validation alone",
            ),
            Feature.TOOL_CALLS: native,
            Feature.TEXT_ACTIONS: Support(
                Level.EMULATED,
                "a body of a media type of its own; simple_agent ends a rollout at the first message without a call",
            ),
            Feature.TOOL_SCHEMAS: Support(
                Level.NATIVE, "the row's tools, with strict off so that defaults stay"
            ),
            Feature.ERROR_CODES: Support(Level.EMULATED, result),
            Feature.STEP_REWARD: Support(
                Level.EMULATED, f"{result}; NeMo Gym itself has one reward, the return, at /verify"
            ),
            Feature.REWARD_COMPONENTS: Support(Level.EMULATED, result),
            Feature.TRUNCATION: Support(Level.EMULATED, f"{result}, and a field of the answer to /verify"),
            Feature.CAUSE: Support(Level.EMULATED, f"{result}, and a field of the answer to /verify"),
            Feature.IMAGES: Support(
                Level.EMULATED, f"{result}; simple_agent hands the model the text form of an answer"
            ),
            Feature.CONCURRENT_SESSIONS: native,
            Feature.REMOTE: native,
            Feature.SNAPSHOT: Support(
                Level.ABSENT, "NeMo Gym has no request that stores or restores a session"
            ),
        }

    async def list_tasks(
        self, compiled: type[CompiledServer], _endpoint: Endpoint, split: str, /
    ) -> Sequence[str]:
        """Return the ids of the tasks of a split, from the JSONL file that NeMo Gym's agent reads.

        Raises:
            SessionError: There is no such file.
        """
        return await asyncio.to_thread(_read_rows, compiled.environment, split)

    def compile(self, environment: Environment[Any], /) -> type[CompiledServer]:
        """Return a resources server class of NeMo Gym that plays the environment."""
        return compile_environment(environment)

    @asynccontextmanager
    async def serve(
        self, compiled: type[CompiledServer], /, *, host: str = "127.0.0.1", port: int = 0
    ) -> AsyncIterator[Endpoint]:
        """Serve on the running loop with uvicorn, as NeMo Gym starts it but without Ray; port 0 picks a free one.

        Leaving the context closes all connections and frees every episode.

        Raises:
            OSError: The port is in use or not allowed.
        """
        settings: dict[str, Any] = {
            "http": "httptools" if importlib.util.find_spec("httptools") else "h11",
            "backlog": 4096,
            # NeMo Gym's own value: longer than its client keeps a connection that rests.
            "timeout_keep_alive": 30,
            "timeout_graceful_shutdown": 10,
            "access_log": False,
            "log_level": "warning",
            **self._settings.uvicorn(),
        }
        threads = {} if self._settings.threads is None else {"threads": self._settings.threads}
        listener = listen(host, port, settings["backlog"])
        server = make_server(
            compiled,
            host=host,
            port=listener.getsockname()[1],
            session_ttl_seconds=self._session_ttl,
            **threads,
        )
        door = Door(make_app(server), "/seed_session")
        serving = _Server(uvicorn.Config(door, lifespan="on", log_config=None, **settings))
        running = asyncio.create_task(serving.serve(sockets=[listener]))
        try:
            while not serving.started:
                if running.done():
                    raise RuntimeError("uvicorn stopped before it had started") from running.exception()
                await asyncio.sleep(0.001)
            recorded: dict[str, JSON] = {
                "server": "uvicorn",
                "threads": server.config.threads,
                "session_ttl_seconds": server.config.session_ttl_seconds,
                **settings,
            }
            yield Endpoint(url_of(listener), lambda: len(server.live), recorded, door.shut)
        finally:
            serving.should_exit = True
            await asyncio.gather(running, return_exceptions=True)
            listener.close()
            await server.close_all()

    @asynccontextmanager
    async def connect(
        self,
        compiled: type[CompiledServer] | None,  # noqa: ARG002 - the port asks for it
        endpoint: Endpoint,
        /,
    ) -> AsyncIterator[NeMoGymSession]:
        """Begin a session with NeMo Gym's client; leaving the context verifies the episode, which frees it.

        Connections are shared by all sessions with a server, so nothing is sent here but a first question whether the
        server is there.

        Raises:
            SessionError: The server cannot be reached.
        """
        if endpoint.url is None:
            raise SessionError(
                "NeMo Gym runs environments behind a server: serve the environment and give its address"
            )
        connection = self._connections.get(endpoint.url)
        if connection is None:
            place = urlsplit(endpoint.url)
            host = place.hostname or ""
            connection = Connection(f"[{host}]" if ":" in host else host, place.port or 80)
            self._connections[endpoint.url] = connection
        await connection.ready()
        session = NeMoGymSession(connection, self._receive_timeout)
        try:
            yield session
        finally:
            await session.close()


def _read_rows(environment: Environment[Any], split: str) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="rosetta-rows-") as folder:
        data = write_project(environment, environment.name, Path(folder)) / "data"
        if split not in environment.tasks().splits:
            known = ", ".join(sorted(path.stem for path in data.glob("*.jsonl")))
            raise SessionError(f"there is no file of rows for split {split}; there are {known}")
        lines = (data / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["task"] for line in lines]


ADAPTER = NeMoGymAdapter()
