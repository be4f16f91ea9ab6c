"""The baseline behind the port of an adapter, so that a worker measures it as it measures the compiled environment."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http.cookies import SimpleCookie
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import (
    GlobalAIOHTTPAsyncClientConfig,
    ServerClient,
    global_aiohttp_client_exit,
    is_global_aiohttp_client_setup,
    set_global_aiohttp_client,
)
from omegaconf import OmegaConf

from bench.baselines.nemo_gym.wordle import PROMPT, SPLITS, TOOLS, WordleConfig, WordleServer
from canonical.adapter import Endpoint, Feature, Level, Opened, SessionError, Support
from canonical.content import JSON, ErrorCode, Message, Observation, Text
from canonical.environment import Environment
from canonical.step import Cause, StepResult
from canonical.tool import ToolSpec
from canonical.transcript import Action

_SERVER = "wordle"
_RECEIVE_TIMEOUT = 600.0
_lifetimes: list[AsyncGenerator[None, None]] = []


async def _lifetime() -> AsyncGenerator[None, None]:
    client = set_global_aiohttp_client(GlobalAIOHTTPAsyncClientConfig())
    try:
        yield
    finally:
        await client.close()
        # It runs an event loop of its own, hence the thread; for a closed client it only forgets it.
        await asyncio.to_thread(global_aiohttp_client_exit)
        _lifetimes.clear()


def _client(url: str) -> ServerClient:
    place = urlsplit(url)
    where = {"host": place.hostname, "port": place.port, "entrypoint": "app.py", "domain": "games"}
    return ServerClient(
        head_server_config=BaseServerConfig(host="127.0.0.1", port=1),
        global_config_dict=OmegaConf.create({_SERVER: {"resources_servers": {_SERVER: where}}}),
    )


class BaselineSession:
    """Be one rollout: a cookie and what an agent would write down of it; see only what the documented style sends."""

    def __init__(self, client: ServerClient) -> None:
        self._client = client
        self._cookies: SimpleCookie = SimpleCookie()
        self._output: list[dict[str, JSON]] = []
        self._row: dict[str, JSON] | None = None
        self._last: JSON = None
        self._is_closed = False

    async def open(self, task: str, seed: int) -> Opened:
        """Start a game.

        Raises:
            SessionError: The server failed.
        """
        await self.verify()
        row: dict[str, Any] = {
            "responses_create_params": {"input": [{"role": "user", "content": PROMPT}], "tools": TOOLS},
            "task": task,
            "seed": seed,
        }
        await self._ask("/seed_session", row)
        self._row, self._output = row, []
        tools = tuple(ToolSpec(tool["name"], tool["description"], tool["parameters"]) for tool in TOOLS)
        return Opened((Message("user", (Text(PROMPT),)),), tools)

    async def step(self, action: Action) -> StepResult:
        """Call a tool; the documented style has one reward, at the end of the rollout.

        Raises:
            SessionError: The server failed, or the action is a text.
        """
        if isinstance(action, str):
            raise SessionError("the baseline takes tool calls only")
        call = f"call_{len(self._output)}"
        status, body = await self._post(f"/{action.name}", dict(action.arguments))
        self._output += [
            {"type": "function_call", "call_id": call, "name": action.name, "arguments": json.dumps(dict(action.arguments))},
            {"type": "function_call_output", "call_id": call, "output": body.decode()},
        ]  # fmt: skip
        if status != 200:
            return StepResult(Observation.of(body.decode(), ErrorCode.INVALID_ARGUMENTS))
        self._last = seen = json.loads(body)
        # The documented style knows that an episode is over, and neither how nor why.
        return StepResult(
            Observation.of(seen["observation"]), cause=Cause.SUBMITTED if seen["done"] else None
        )

    async def public_state(self) -> JSON:
        """Return the last answer."""
        return self._last

    async def reported_return(self) -> float:
        """Return the reward that `/verify` answers with; it forgets the game."""
        return await self.verify() or 0.0

    async def close(self) -> None:
        """Verify the game, which frees it."""
        if not self._is_closed:
            try:
                await self.verify()
            finally:
                self._is_closed = True

    async def verify(self) -> float | None:
        """Return the reward of the game, which is forgotten, or None when there is none.

        Raises:
            SessionError: The server failed.
        """
        row, self._row = self._row, None
        if row is None:
            return None
        response: dict[str, JSON] = {
            "id": "response",
            "object": "response",
            "created_at": 0,
            "model": "policy",
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "output": [*self._output],
        }
        answer = await self._ask("/verify", {**row, "response": response})
        self._cookies = SimpleCookie()
        return float(answer["reward"])

    async def _ask(self, path: str, value: Mapping[str, JSON]) -> Any:
        status, body = await self._post(path, value)
        if status != 200:
            raise SessionError(f"{path}: {body.decode()}")
        return json.loads(body)

    async def _post(self, path: str, value: Mapping[str, JSON]) -> tuple[int, bytes]:
        if self._is_closed:
            raise SessionError("this session is closed")
        try:
            async with asyncio.timeout(_RECEIVE_TIMEOUT):
                answer = await self._client.post(_SERVER, path, json=dict(value), cookies=self._cookies)
                body = await answer.read()
        except (OSError, TimeoutError) as error:
            raise SessionError(str(error) or type(error).__name__) from error
        self._cookies = answer.cookies or self._cookies
        return answer.status, body


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The process that serves decides what its signals mean; uvicorn would take them away from it.
        yield


class NeMoGymBaseline:
    """Run the hand-written Wordle, with the server settings of the compiled one."""

    name = "nemo_gym-baseline"

    def __init__(self) -> None:
        self._clients: dict[str, ServerClient] = {}

    def packages(self) -> Mapping[str, str]:
        """Return the installed distribution that the baseline runs on."""
        return {"nemo-gym": version("nemo-gym")}

    def features(self) -> Mapping[Feature, Support]:
        """Return what the documented style carries."""
        native = {
            Feature.TASK_SELECTION,
            Feature.SPLITS,
            Feature.TOOL_CALLS,
            Feature.TOOL_SCHEMAS,
            Feature.CONCURRENT_SESSIONS,
            Feature.REMOTE,
        }
        absent = Support(Level.ABSENT, "not part of the documented style")
        return {feature: Support(Level.NATIVE) if feature in native else absent for feature in Feature}

    def compile(self, environment: Environment[Any], /) -> type[WordleServer]:
        """Return the hand-written environment.

        Raises:
            ValueError: The environment is not plain Wordle, the only one that was written by hand.
        """
        if environment.name != "wordle":
            raise ValueError(
                f"the baseline for NeMo Gym is a hand-written wordle; there is no {environment.name}"
            )
        if "tools" in vars(type(environment)):
            raise ValueError(
                "the baseline for NeMo Gym has tools that work for no set time; use a workload without one"
            )
        return WordleServer

    @asynccontextmanager
    async def serve(
        self, compiled: type[WordleServer], /, *, host: str = "127.0.0.1", port: int = 0
    ) -> AsyncIterator[Endpoint]:
        """Serve on the running loop with uvicorn; port 0 picks a free one.

        Raises:
            OSError: The port is in use or not allowed.
        """
        settings: dict[str, Any] = {
            "http": "httptools" if importlib.util.find_spec("httptools") else "h11",
            "backlog": 4096,
            "timeout_keep_alive": 30,
            "timeout_graceful_shutdown": 10,
            "access_log": False,
            "log_level": "warning",
        }
        # Of TCP in so many words, without which asyncio leaves Nagle's algorithm on.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(settings["backlog"])
        bound = listener.getsockname()[1]
        url = f"http://{host}:{bound}"
        config = WordleConfig(host=host, port=bound, entrypoint="app.py", name=_SERVER, domain="games")
        wordle = compiled(config=config, server_client=_client(url))
        app = wordle.setup_webserver()
        wordle.setup_liveness(app)
        wordle.setup_exception_middleware(app)
        server = _Server(uvicorn.Config(app, lifespan="on", log_config=None, **settings))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            while not server.started:
                if serving.done():
                    raise RuntimeError("uvicorn stopped before it had started") from serving.exception()
                await asyncio.sleep(0.001)
            recorded: dict[str, JSON] = {"server": "uvicorn", **settings}
            yield Endpoint(url, lambda: len(wordle.games), recorded)
        finally:
            server.should_exit = True
            await asyncio.gather(serving, return_exceptions=True)
            listener.close()

    @asynccontextmanager
    async def connect(
        self,
        compiled: type[WordleServer] | None,  # noqa: ARG002 - the port asks for it
        endpoint: Endpoint,
        /,
    ) -> AsyncIterator[BaselineSession]:
        """Begin a session with NeMo Gym's client; leaving the context verifies the game, which frees it.

        Raises:
            SessionError: The server cannot be reached.
        """
        if endpoint.url is None:
            raise SessionError(
                "NeMo Gym runs environments behind a server: serve the environment and give its address"
            )
        if not is_global_aiohttp_client_setup():
            lifetime = _lifetime()
            _lifetimes.append(lifetime)
            await anext(lifetime)
        client = self._clients.get(endpoint.url)
        if client is None:
            client = _client(endpoint.url)
            if await asyncio.to_thread(client.poll_for_status, _SERVER) != "success":
                raise SessionError(f"no server answers at {endpoint.url}")
            self._clients[endpoint.url] = client
        session = BaselineSession(client)
        try:
            yield session
        finally:
            await session.close()


ADAPTER = NeMoGymBaseline()


def rows(split: str) -> list[dict[str, Any]]:
    """Return a row for each word of a split, as the JSONL files of its data sets would hold them."""
    params = {"input": [{"role": "user", "content": PROMPT}], "tools": TOOLS}
    tasks = [f"{split}/{number:04d}" for number in range(len(SPLITS[split]))]
    return [{"responses_create_params": params, "id": task, "task": task} for task in tasks]
