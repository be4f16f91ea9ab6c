"""The baseline behind the port of an adapter, so that a worker measures it as it measures the compiled environment."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

import uvicorn
from openenv.core.generic_client import GenericEnvClient
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect
from websockets.exceptions import WebSocketException

from bench.baselines.openenv.wordle import MAX_CONCURRENT_ENVS, WordleEnvironment, app
from canonical.adapter import Endpoint, Feature, Level, Opened, SessionError, Support
from canonical.content import JSON, ErrorCode, Message, Observation, Text
from canonical.environment import Environment
from canonical.listening import listen
from canonical.step import Cause, StepResult
from canonical.tool import ToolSpec
from canonical.transcript import Action

ResultT = TypeVar("ResultT")

_RECEIVE_TIMEOUT = 600.0
_CODES = {
    "tool_not_found": ErrorCode.UNKNOWN_TOOL,
    "invalid_args": ErrorCode.INVALID_ARGUMENTS,
    "execution_error": ErrorCode.TOOL_ERROR,
    "transport_error": ErrorCode.INTERNAL_ERROR,
    "timeout": ErrorCode.INTERNAL_ERROR,
}


class BaselineSession:
    """Be one WebSocket of OpenEnv's client; see only what the documented style sends."""

    def __init__(self, client: GenericEnvClient) -> None:
        self._client = client
        self._tools: tuple[ToolSpec, ...] = ()
        self._total = 0.0
        self._is_closed = False

    async def connect(self) -> None:
        """Connect and ask for the tools.

        Raises:
            SessionError: The server cannot be reached, or refused the session.
        """
        await self._ask(self._client.connect)
        listed = await self._ask(self._client.step, {"type": "list_tools"})
        self._tools = tuple(
            ToolSpec(tool["name"], tool["description"], tool["input_schema"])
            for tool in listed.observation["tools"]
        )

    async def open(self, task: str, seed: int) -> Opened:
        """Start a game.

        Raises:
            SessionError: The server failed.
        """
        answer = await self._ask(self._client.reset, task=task, seed=seed)
        self._total = 0.0
        return Opened((Message("user", (Text(answer.observation["prompt"]),)),), self._tools)

    async def step(self, action: Action) -> StepResult:
        """Call a tool.

        Raises:
            SessionError: The server failed, or the action is a text.
        """
        if isinstance(action, str):
            raise SessionError("the baseline takes tool calls only")
        call = {"type": "call_tool", "tool_name": action.name, "arguments": dict(action.arguments)}
        answer = await self._ask(self._client.step, call)
        seen, reward = answer.observation, float(answer.reward or 0.0)
        error = seen["error"]
        observation = (
            Observation.of(seen["result"]["data"])
            if error is None
            else Observation.of(error["message"], _CODES[error["error_type"]])
        )
        self._total += reward
        # OpenEnv's documented style knows that an episode is over, and neither how nor why.
        return StepResult(observation, reward, self._total, Cause.SUBMITTED if answer.done else None)

    async def public_state(self) -> JSON:
        """Return OpenEnv's state of the episode.

        Raises:
            SessionError: The server failed.
        """
        state: JSON = await self._ask(self._client.state)
        return state

    async def reported_return(self) -> float:
        """Return the sum of the rewards."""
        return self._total

    async def close(self) -> None:
        """Close the connection."""
        self._is_closed = True
        await self._client.close()

    async def _ask(
        self, request: Callable[..., Awaitable[ResultT]], *arguments: Any, **keywords: Any
    ) -> ResultT:
        if self._is_closed:
            raise SessionError("this session is closed")
        try:
            return await request(*arguments, **keywords)
        except (OSError, RuntimeError, WebSocketException) as error:
            raise SessionError(str(error) or type(error).__name__) from error


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The process that serves decides what its signals mean; uvicorn would take them away from it.
        yield


class _Goodbye:
    """Take it quietly when a client is gone before the server's goodbye; older releases log a traceback for each."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except WebSocketDisconnect:
            if scope["type"] != "websocket":
                raise


class OpenEnvBaseline:
    """Run the hand-written Wordle, with the server settings of the compiled one."""

    name = "openenv-baseline"

    def packages(self) -> Mapping[str, str]:
        """Return the installed distributions that the baseline runs on."""
        found = {}
        for package in ("openenv", "openenv-core", "fastmcp"):
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                continue
        return found

    def features(self) -> Mapping[Feature, Support]:
        """Return what the documented style carries."""
        native = {
            Feature.TASK_SELECTION,
            Feature.SPLITS,
            Feature.TOOL_CALLS,
            Feature.TOOL_SCHEMAS,
            Feature.STEP_REWARD,
            Feature.CONCURRENT_SESSIONS,
            Feature.REMOTE,
            Feature.SEEDED_RESET,
        }
        absent = Support(Level.ABSENT, "not part of the documented style")
        return {feature: Support(Level.NATIVE) if feature in native else absent for feature in Feature}

    def compile(self, environment: Environment[Any], /) -> type[WordleEnvironment]:
        """Return the hand-written environment.

        Raises:
            ValueError: The environment is not plain Wordle, the only one that was written by hand.
        """
        if environment.name != "wordle":
            raise ValueError(
                f"the baseline for OpenEnv is a hand-written wordle; there is no {environment.name}"
            )
        if "tools" in vars(type(environment)):
            raise ValueError(
                "the baseline for OpenEnv has tools that work for no set time; use a workload without one"
            )
        return WordleEnvironment

    @asynccontextmanager
    async def serve(
        self, compiled: type[WordleEnvironment], /, *, host: str = "127.0.0.1", port: int = 0
    ) -> AsyncIterator[Endpoint]:
        """Serve on the running loop with uvicorn; port 0 picks a free one.

        Raises:
            OSError: The port is in use or not allowed.
        """
        settings: dict[str, Any] = {
            "ws": "websockets-sansio",
            "http": "h11",
            "backlog": 4096,
            "ws_max_size": 100 * 1024 * 1024,
            "ws_ping_interval": 20.0,
            "ws_ping_timeout": 120.0,
            "ws_per_message_deflate": False,
            "timeout_graceful_shutdown": 10,
            "access_log": False,
            "log_level": "warning",
        }
        # A tool that raises costs fastmcp ten times its own time in rendered tracebacks; the measurement is of the step.
        logging.getLogger("fastmcp").setLevel(logging.CRITICAL)
        listener = listen(host, port, settings["backlog"])
        server = _Server(uvicorn.Config(_Goodbye(app), lifespan="on", log_config=None, **settings))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            while not server.started:
                if serving.done():
                    raise RuntimeError("uvicorn stopped before it had started") from serving.exception()
                await asyncio.sleep(0.001)
            recorded: dict[str, JSON] = {
                "server": "uvicorn",
                "max_concurrent_envs": MAX_CONCURRENT_ENVS,
                "fastmcp_log_level": "CRITICAL",
                **settings,
            }
            address = f"http://{host}:{listener.getsockname()[1]}"
            yield Endpoint(address, lambda: len(compiled.playing), recorded)
        finally:
            server.should_exit = True
            await asyncio.gather(serving, return_exceptions=True)
            listener.close()

    @asynccontextmanager
    async def connect(
        self,
        compiled: type[WordleEnvironment] | None,  # noqa: ARG002 - the port asks for it
        endpoint: Endpoint,
        /,
    ) -> AsyncIterator[BaselineSession]:
        """Open a session with `GenericEnvClient`; leaving the context frees it.

        Raises:
            SessionError: The server cannot be reached or refused the session.
        """
        if endpoint.url is None:
            raise SessionError(
                "OpenEnv runs environments behind a server: serve the environment and give its address"
            )
        wanted: dict[str, Any] = {
            "base_url": endpoint.url,
            "connect_timeout_s": 30.0,
            "message_timeout_s": _RECEIVE_TIMEOUT,
            "websocket_ping_timeout_s": _RECEIVE_TIMEOUT,
            "mode": "simulation",
        }
        accepted = inspect.signature(GenericEnvClient).parameters
        session = BaselineSession(GenericEnvClient(**{key: wanted[key] for key in wanted if key in accepted}))
        try:
            await session.connect()
            yield session
        finally:
            await session.close()


ADAPTER = OpenEnvBaseline()
