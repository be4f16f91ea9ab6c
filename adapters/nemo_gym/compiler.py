"""Compile an environment into a resources server of NeMo Gym: `/seed_session`, a POST route per tool, and `/verify`.

An agent of NeMo Gym posts to `/<name that the model wrote>`, so a model can reach every route. What it can reach with an
episode under way is that episode and nothing else: the cookie of a seeded session turns every route into a tool call,
except `/verify` with the key of the row, which no model sees.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar
from urllib.parse import unquote_to_bytes

from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI, HTTPException, Request
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import SESSION_ID_KEY, ServerClient
from omegaconf import OmegaConf
from pydantic import Field, PrivateAttr, ValidationError
from starlette.convertors import Convertor, register_url_convertor
from starlette.responses import Response

from adapters.nemo_gym.wire import (
    ACTION_TYPE,
    RESULT_TYPE,
    sendable,
    write_json,
    write_message,
    write_tool,
)
from canonical.catalogue import UnknownEnvironmentError, load_environment
from canonical.content import JSON, quote
from canonical.environment import Environment
from canonical.episode import Episode, StartError
from canonical.reward import ScoringError, finish
from canonical.step import Cause, StepResult
from canonical.task import UnknownTaskError
from canonical.tool import ToolCall
from canonical.transcript import Action, action_from_json

ResultT = TypeVar("ResultT")
log = logging.getLogger(__name__)

THREADS = 256
"""How many plain tools may work at the same time; further calls wait for a thread."""
_SWEEP_S = 30.0
"""How often a server looks for episodes whose time is up, at most; with short times more often."""


class ToolName(Convertor[str]):
    """Match whatever a model may write as the name of a tool: slashes, as `path` does, and line breaks too."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        """Return the name."""
        return value

    def to_string(self, value: str) -> str:
        """Return the name."""
        return value


register_url_convertor("tool_name", ToolName())


class RosettaConfig(BaseResourcesServerConfig):
    """Configure a compiled resources server; both keys may stand in the YAML of the instance."""

    session_ttl_seconds: float = Field(
        default=24 * 3600.0,
        gt=0,
        description="After how many seconds without a request an episode that was never verified is freed",
    )
    threads: int = Field(default=THREADS, ge=1, description="How many plain tools may work at the same time")


class RosettaVerifyResponse(BaseVerifyResponse):
    """Say what the episode was worth; numeric fields become metrics of NeMo Gym."""

    task: str = Field(description="The id of the task that was played")
    turns: int = Field(description="How many turns of the budget were used")
    ending: str = Field(description="`terminated` by the task or `truncated` from outside")
    cause: str = Field(description="Why the episode has ended, such as `solved`, `budget` or `cancelled`")


@dataclass(slots=True, eq=False)
class LiveSession:
    """Hold an episode between `/seed_session` and `/verify`.

    Attributes:
        episode: The episode.
        key: The key of the row, which `/verify` must present.
        used: When the session was last used, in seconds of the monotonic clock.
        failure: Why no valid reward can be computed any more, or None.
        lock: Held while the episode works; requests of one session wait for each other.
    """

    episode: Episode[Any]
    key: str | None
    used: float
    failure: str | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def expects(self, asked: Any) -> bool:
        """Whether a body is what the agent sends at the end, and not what a model wrote as arguments."""
        return (
            isinstance(asked, dict)
            and {"responses_create_params", "response"} <= asked.keys()
            and asked.get("verify_key") == self.key
        )


class CompiledServer(SimpleResourcesServer):
    """Be the base of compiled resources servers; `compile_environment` derives one class per environment.

    Attributes:
        environment: The environment.
        on_loop: Whether episodes run on the event loop instead of in threads.
        live: The episodes under way by session id, the one that rested longest first.
    """

    environment: ClassVar[Environment[Any]]
    on_loop: ClassVar[bool]
    config: RosettaConfig
    live: dict[str, Any] = Field(default_factory=dict)
    _threads: CapacityLimiter | None = PrivateAttr(default=None)

    def setup_webserver(self) -> FastAPI:
        """Return NeMo Gym's app with one POST route per tool, and one for every other name."""
        app = super().setup_webserver()
        for tool in self.environment.tools:
            schema = {"schema": dict(tool.spec.parameters)}
            app.post(
                f"/{tool.name}",
                name=tool.name,
                description=tool.spec.description,
                openapi_extra={"requestBody": {"required": True, "content": {"application/json": schema}}},
            )(self.call_tool)
        app.post("/{name:tool_name}", include_in_schema=False)(self.call_tool)
        lifespan = app.router.lifespan_context

        @asynccontextmanager
        async def freeing(app: FastAPI) -> AsyncIterator[Any]:
            sweeping = asyncio.create_task(self._sweep_often())
            try:
                async with lifespan(app) as state:
                    yield state
            finally:
                sweeping.cancel()
                await self.close_all()

        app.router.lifespan_context = freeing
        return app

    async def seed_session(self, request: Request) -> Response:  # type: ignore[override]
        """Start the episode of a row, once per session; the row's keys are `task`, `seed` and `verify_key`.

        Raises:
            HTTPException: 404 when there is no such task, 422 when the row is wrong, 500 when the environment failed.
        """
        session = request.session[SESSION_ID_KEY]
        if session in self.live:
            return await self.call_tool(request)
        await self._sweep()
        task, seed, key = _read_row(await request.body())
        try:
            episode = await self._run(Episode.open_async(self.environment, task, seed=seed))
        except UnknownTaskError as error:
            raise HTTPException(404, str(error)) from None
        except StartError as error:
            raise HTTPException(500, f"cannot start task {task}: {error}") from None
        if session in self.live:
            await self._run(episode.close_async())
            raise HTTPException(409, "this session is being seeded already")
        self.live[session] = LiveSession(episode, key, time.monotonic())
        answer = {
            "task": episode.task.id,
            "seed": seed,
            "prompt": [write_message(message) for message in episode.prompt],
            "tools": [write_tool(tool.spec) for tool in self.environment.tools],
        }
        return Response(write_json(answer), media_type="application/json")

    async def call_tool(self, request: Request) -> Response:
        """Carry out a tool call: the path is the name, the body the arguments, the answer what the model reads.

        Whatever a tool does, the answer has status 200: agents lose the cookie with an exception.

        Raises:
            HTTPException: 409 when the session has no episode, 500 when no valid reward could be computed.
        """
        live = self._find(request)
        if live is None:
            raise HTTPException(
                409, "this session has no episode: post a row to /seed_session first, and keep the cookie"
            )
        action = _read_action(request, await request.body())
        async with live.lock:
            if not self._holds(request, live):
                raise HTTPException(409, "this session has been verified, and its episode is gone")
            if live.failure is not None:
                raise HTTPException(500, live.failure)
            try:
                result = await self._run(live.episode.step_async(action))
            except ScoringError as error:
                live.failure = f"no valid reward could be computed: {error}"
                raise HTTPException(500, live.failure) from None
            except Exception as error:  # noqa: BLE001 - an answer without a cookie would lose the session
                live.failure = f"{self.environment.name} failed: {type(error).__name__}"
                log.warning("%s", live.failure)
                raise HTTPException(500, live.failure) from None
        return _write_result(request, result)

    async def verify(self, request: Request) -> Response:  # type: ignore[override]
        """End the episode, return its reward, and free it; nothing that the model wrote is read.

        An episode that was not over is truncated with the cause `cancelled`, and its state is scored.

        Raises:
            HTTPException: 409 when the session has no episode (never a reward of 0), 422 when the body is no trajectory,
                500 when no valid reward could be computed.
        """
        live = self._find(request)
        body = await request.body()
        asked = _read_json(body)
        if live is None:
            raise HTTPException(409, "this session has no episode that could be verified")
        if not live.expects(asked):
            return await self.call_tool(request)
        try:
            checked = BaseVerifyRequest.model_validate(asked)
        except ValidationError as error:
            detail = error.errors(include_url=False, include_context=False, include_input=False)
            raise HTTPException(422, json.loads(json.dumps(detail, default=str))) from None
        async with live.lock:
            if self.live.pop(request.session[SESSION_ID_KEY], None) is not live:
                raise HTTPException(409, "this session is being verified already")
            episode = live.episode
            try:
                if episode.cause is None:
                    await self._run(episode.truncate(Cause.CANCELLED))
            except ScoringError as error:
                live.failure = f"no valid reward could be computed: {error}"
            finally:
                await self._free(live)
        if live.failure is not None or episode.cause is None:
            raise HTTPException(500, live.failure)
        answer = RosettaVerifyResponse(
            **checked.model_dump(),
            reward=episode.total,
            task=episode.task.id,
            turns=episode.turn,
            ending=episode.cause.ending.value,
            cause=episode.cause.value,
        )
        return Response(answer.model_dump_json(), media_type="application/json")

    async def aggregate_metrics(self, request: Request) -> Response:  # type: ignore[override]
        """Return NeMo Gym's metrics of many rollouts; in a session with an episode, this name is a tool call too.

        Raises:
            HTTPException: 422 when the body holds no rollouts.
        """
        if self._find(request) is not None:
            return await self.call_tool(request)
        # Releases before 0.3 have neither this type nor the route.
        from nemo_gym.config_types import AggregateMetricsRequest  # noqa: PLC0415

        try:
            asked = AggregateMetricsRequest.model_validate_json(await request.body())
        except ValidationError as error:
            raise HTTPException(422, str(error)) from None
        metrics = await super().aggregate_metrics(asked)
        return Response(metrics.model_dump_json(), media_type="application/json")

    async def close_all(self) -> None:
        """Free every episode."""
        while self.live:
            await self._free(self.live.pop(next(iter(self.live))))

    def _find(self, request: Request) -> LiveSession | None:
        session = request.session[SESSION_ID_KEY]
        live: LiveSession | None = self.live.pop(session, None)
        if live is not None:
            live.used = time.monotonic()
            self.live[session] = live
        return live

    def _holds(self, request: Request, live: LiveSession) -> bool:
        return self.live.get(request.session[SESSION_ID_KEY]) is live

    async def _sweep(self) -> None:
        # Nothing tells a server that a client is gone for good; the longest rest comes first.
        oldest = time.monotonic() - self.config.session_ttl_seconds
        while self.live:
            session, live = next(iter(self.live.items()))
            if live.used > oldest or live.lock.locked():
                return
            await self._free(self.live.pop(session))

    async def _sweep_often(self) -> None:
        # Where no other session begins, those that were left behind would otherwise be kept for ever.
        while True:
            await asyncio.sleep(min(_SWEEP_S, self.config.session_ttl_seconds / 4))
            await self._sweep()

    async def _free(self, live: LiveSession) -> None:
        try:
            await self._run(live.episode.close_async())
        except Exception as error:  # noqa: BLE001 - the episode is gone either way
            # The text of an unexpected exception may hold the answer, so the log does not get it.
            log.warning("%s could not close: %s", self.environment.name, type(error).__name__)

    async def _run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        # Plain tools may block, which must hold up nobody else, unless the environment says that they never do; coroutines
        # wait side by side on the server's loop.
        if self.on_loop:
            return await work
        if self._threads is None:
            self._threads = CapacityLimiter(self.config.threads)
        return await to_thread.run_sync(finish, work, limiter=self._threads)


def compile_environment(environment: Environment[Any]) -> type[CompiledServer]:
    """Return a resources server class that plays an environment."""
    members = {
        "__doc__": inspect.getdoc(type(environment)),
        "__module__": __name__,
        "__qualname__": type(environment).__name__,
        "environment": environment,
        "on_loop": environment.waits or environment.quick,
    }
    derive: Any = type(CompiledServer)
    compiled: type[CompiledServer] = derive(type(environment).__name__, (CompiledServer,), members)
    return compiled


def make_server(compiled: type[CompiledServer], *, host: str, port: int, **settings: Any) -> CompiledServer:
    """Return a compiled server that stands alone: without a head server, a configuration file or Ray.

    Args:
        compiled: The class.
        host: The address that it is going to serve.
        port: The port.
        settings: Further keys of `RosettaConfig`.
    """
    # A resources server calls no other server, so this client is never used.
    client = ServerClient(
        head_server_config=BaseServerConfig(host="127.0.0.1", port=1), global_config_dict=OmegaConf.create({})
    )
    config = RosettaConfig(
        host=host, port=port, entrypoint="app.py", name=compiled.environment.name, domain="other", **settings
    )
    return compiled(config=config, server_client=client)


def make_app(server: CompiledServer) -> FastAPI:
    """Return the app as NeMo Gym's own start puts it together."""
    app = server.setup_webserver()
    # Releases before 0.3 answer nobody who asks whether they are alive.
    if hasattr(server, "setup_liveness"):
        server.setup_liveness(app)
    server.setup_exception_middleware(app)
    return app


def app_from_environment() -> FastAPI:
    """Return the app of the environment that `ROSETTA_ENVIRONMENT` names, for servers that take a factory.

    For example `ROSETTA_ENVIRONMENT=wordle uvicorn --factory adapters.nemo_gym.compiler:app_from_environment`.

    Raises:
        SystemExit: The variable is missing or names no environment; the text says so in one line.
    """
    name = os.environ.get("ROSETTA_ENVIRONMENT")
    if not name:
        raise SystemExit(
            "set ROSETTA_ENVIRONMENT to the name of an environment, or to the path of its environment.py"
        )
    try:
        compiled = compile_environment(load_environment(name))
    except UnknownEnvironmentError as error:
        raise SystemExit(f"ROSETTA_ENVIRONMENT: {error}") from error
    return make_app(make_server(compiled, host="127.0.0.1", port=8000))


def _read_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _read_row(body: bytes) -> tuple[str, int, str | None]:
    row = _read_json(body)
    if not isinstance(row, dict):
        raise HTTPException(422, "the body must be a row: an object with the key task")
    task, seed, key = row.get("task"), row.get("seed", 0), row.get("verify_key")
    if not isinstance(task, str):
        raise HTTPException(422, "the row needs the key task: the id of a task, such as train/0000")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise HTTPException(422, f"seed must be an integer, not {quote(str(seed))}")
    if not isinstance(key, str | None):
        raise HTTPException(422, "verify_key must be a text")
    return task, seed, key


def _read_action(request: Request, body: bytes) -> Action:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == ACTION_TYPE:
        try:
            return action_from_json(json.loads(body))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise HTTPException(422, f"the body is no action: {error}") from None
    # The path as it was sent: what servers decode from it has lost the text that is no Unicode.
    raw = unquote_to_bytes(request.scope["raw_path"])[1:]
    try:
        name = raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        name = raw.decode("utf-8", "replace")
    try:
        arguments: Any = json.loads(body) if body else {}
    except (ValueError, RecursionError):
        # Written as text, so that the dialect says what is wrong with it.
        text = body.decode("utf-8", "replace")
        return f'<tool_call>{{"name": {json.dumps(name)}, "arguments": {text}}}</tool_call>'
    return ToolCall(name, arguments)


def _write_result(request: Request, result: StepResult) -> Response:
    if request.headers.get("accept") == RESULT_TYPE:
        value: Mapping[str, JSON] = result.to_json()
        return Response(write_json(value), media_type=RESULT_TYPE)
    return Response(sendable(result.observation.text), media_type="text/plain")
