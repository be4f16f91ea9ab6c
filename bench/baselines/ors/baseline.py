"""The baseline behind the port of an adapter, so that a worker measures it as it measures the compiled environment."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, TypeVar

# Read while the framework is imported: no question to a package index, and no lines per request.
os.environ.setdefault("OPENREWARD_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("OPENREWARD_LOG_LEVEL", "WARNING")
os.environ.setdefault("ORS_LOG_LEVEL", "WARNING")

import uvicorn

from bench.baselines.ors.wordle import Server, Wordle
from canonical.adapter import Endpoint, Feature, Level, Opened, SessionError, Support
from canonical.content import JSON, ErrorCode, Message, Observation, Text
from canonical.environment import Environment
from canonical.listening import listen
from canonical.step import Cause, StepResult
from canonical.tool import ToolSpec
from canonical.transcript import Action

ResultT = TypeVar("ResultT")


class BaselineSession:
    """Be one session of the official client; see only what the documented style sends."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._keep: Any = None
        self._environment: Any = None
        self._session: Any = None
        self._total = 0.0
        self._last: JSON = None
        self._is_closed = False

    async def connect(self) -> None:
        """Make a client, and see that the server is there.

        Raises:
            SessionError: The server cannot be reached.
        """
        if find_spec("openreward") is not None:
            from openreward import AsyncOpenReward  # noqa: PLC0415 - one of the two is installed

            self._keep = AsyncOpenReward(api_key="none")
            self._environment = self._keep.environments.get("wordle", variant="wordle", base_url=self._url)
        else:
            from ors.client import AsyncORS  # type: ignore[import-not-found] # noqa: PLC0415 - as above

            self._keep = AsyncORS(base_url=self._url, api_key="none")
            self._environment = self._keep.environment("wordle")
        async with await self._ask(self._environment.client.get("/list_environments")) as answer:
            answer.raise_for_status()

    async def open(self, task: str, seed: int) -> Opened:  # noqa: ARG002 - nothing is random in Wordle
        """Start a game.

        Raises:
            SessionError: The server failed.
        """
        await self._leave()
        split, _slash, number = task.partition("/")
        self._session = self._environment.session(split=split, index=int(number))
        await self._ask(self._session.__aenter__())
        blocks = await self._ask(self._session.get_prompt())
        tools = await self._ask(self._session.list_tools())
        self._total = 0.0
        return Opened(
            (Message("user", tuple(Text(block.text) for block in blocks)),),
            tuple(ToolSpec(tool.name, tool.description, tool.input_schema) for tool in tools),
        )

    async def step(self, action: Action) -> StepResult:
        """Call a tool.

        Raises:
            SessionError: The server failed, or the action is a text.
        """
        if isinstance(action, str):
            raise SessionError("the baseline takes tool calls only")
        if self._is_closed:
            raise SessionError("this session is closed")
        try:
            output = await self._session.call_tool(action.name, dict(action.arguments))
        except Exception as error:
            if type(error).__name__ != "ToolCallError":
                raise SessionError(str(error)) from error
            return StepResult(Observation.of(str(error), ErrorCode.INVALID_ARGUMENTS), 0.0, self._total)
        self._last = asdict(output)
        self._total += output.reward or 0.0
        # The documented style knows that an episode is over, and neither how nor why.
        cause = Cause.SUBMITTED if output.finished else None
        return StepResult(Observation.of(output.blocks[0].text), output.reward or 0.0, self._total, cause)

    async def public_state(self) -> JSON:
        """Return the last answer."""
        return self._last

    async def reported_return(self) -> float:
        """Return the sum of the rewards."""
        return self._total

    async def close(self) -> None:
        """End the session and close the connections."""
        self._is_closed = True
        await self._leave()
        if self._environment is not None:
            for client in (self._environment.client, getattr(self._environment, "api_client", None)):
                if client is not None:
                    await client.close()

    async def _leave(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.__aexit__(None, None, None)

    async def _ask(self, answer: Awaitable[ResultT]) -> ResultT:
        if self._is_closed:
            raise SessionError("this session is closed")
        try:
            return await answer
        except Exception as error:
            raise SessionError(str(error) or type(error).__name__) from error


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The process that serves decides what its signals mean; uvicorn would take them away from it.
        yield


class OrsBaseline:
    """Run the hand-written Wordle, with the server settings of the compiled one."""

    name = "ors-baseline"

    def packages(self) -> Mapping[str, str]:
        """Return the installed distribution that the baseline runs on."""
        found = {}
        for package in ("openreward", "ors-sdk"):
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
        }
        absent = Support(Level.ABSENT, "not part of the documented style")
        return {feature: Support(Level.NATIVE) if feature in native else absent for feature in Feature}

    def compile(self, environment: Environment[Any], /) -> type[Wordle]:
        """Return the hand-written environment.

        Raises:
            ValueError: The environment is not plain Wordle, the only one that was written by hand.
        """
        if environment.name != "wordle":
            raise ValueError(f"the baseline for ORS is a hand-written wordle; there is no {environment.name}")
        if "tools" in vars(type(environment)):
            raise ValueError(
                "the baseline for ORS has tools that work for no set time; use a workload without one"
            )
        return Wordle

    @asynccontextmanager
    async def serve(
        self, compiled: type[Wordle], /, *, host: str = "127.0.0.1", port: int = 0
    ) -> AsyncIterator[Endpoint]:
        """Serve on the running loop with uvicorn; port 0 picks a free one.

        Raises:
            OSError: The port is in use or not allowed.
        """
        settings: dict[str, Any] = {
            "http": "h11",
            "backlog": 4096,
            "timeout_keep_alive": 60,
            "timeout_graceful_shutdown": 10,
            "access_log": False,
            "log_level": "warning",
        }
        listener = listen(host, port, settings["backlog"])
        app = Server([compiled]).app
        server = _Server(uvicorn.Config(app, lifespan="on", log_config=None, **settings))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            while not server.started:
                if serving.done():
                    raise RuntimeError("uvicorn stopped before it had started") from serving.exception()
                await asyncio.sleep(0.001)
            address = f"http://{host}:{listener.getsockname()[1]}"
            yield Endpoint(address, lambda: len(compiled.playing), {"server": "uvicorn", **settings})
        finally:
            server.should_exit = True
            await asyncio.gather(serving, return_exceptions=True)
            listener.close()

    @asynccontextmanager
    async def connect(
        self,
        compiled: type[Wordle] | None,  # noqa: ARG002 - the port asks for it
        endpoint: Endpoint,
        /,
    ) -> AsyncIterator[BaselineSession]:
        """Open a session with the official client; leaving the context frees it.

        Raises:
            SessionError: The server cannot be reached or refused the session.
        """
        if endpoint.url is None:
            raise SessionError(
                "ORS runs environments behind a server: serve the environment and give its address"
            )
        session = BaselineSession(endpoint.url)
        try:
            await session.connect()
            yield session
        finally:
            await session.close()


ADAPTER = OrsBaseline()
