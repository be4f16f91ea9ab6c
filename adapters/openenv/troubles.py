"""Troubles of OpenEnv, each shown on the installed release by the smallest environment that has it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

import uvicorn
from fastapi import FastAPI
from openenv.core.env_server import Environment, MCPEnvironment, create_app
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State
from openenv.core.generic_client import GenericEnvClient
from openenv.core.mcp_client import MCPToolClient
from openenv.core.rubrics import Rubric
from pydantic import field_validator
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from canonical.listening import listen
from canonical.trouble import Shown

_SLOW_S = 0.8
_PATIENCE_S = 0.2


class _Word(Action):
    word: str = ""

    @field_validator("word")
    @classmethod
    def _is_short(cls, word: str) -> str:
        if len(word) > 5:
            raise ValueError("too long")
        return word


class _Asked(Rubric):
    """Count how often it is asked."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.times = 0

    def forward(self, action: Any, observation: Any) -> float:  # noqa: ARG002 - OpenEnv's
        self.times += 1
        return 1.0


class _Plain(Environment[Action, Observation, State]):
    """Remember what `reset` named the episode, and pay 1 for a step that ends it."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Observation:  # noqa: ARG002
        self._state = State(episode_id=episode_id)
        return Observation()

    def step(self, action: Action, timeout_s: float | None = None, **_: Any) -> Observation:  # noqa: ARG002
        self._state.step_count += 1
        return self._answer(action)

    def _answer(self, action: Action) -> Observation:  # noqa: ARG002
        return Observation(done=True, reward=1.0)

    @property
    def state(self) -> State:
        return self._state


class _Slow(_Plain):
    def _answer(self, action: Action) -> Observation:
        time.sleep(_SLOW_S)
        return super()._answer(action)


class _Raising(_Plain):
    def _answer(self, action: Action) -> Observation:  # noqa: ARG002
        raise ValueError("the answer is crane")


class _Calling(MCPEnvironment):
    """Have a tool as the documentation writes it, pay 1 for its call, and end."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        server: Any = import_module("fastmcp").FastMCP("trouble")
        self._state = State()

        @server.tool  # type: ignore[untyped-decorator]
        def answer() -> str:
            return "right"

        super().__init__(server)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Observation:  # noqa: ARG002
        return Observation()

    async def step_async(
        self, action: Action, timeout_s: float | None = None, **keywords: Any
    ) -> Observation:
        seen: Observation = await super().step_async(action, timeout_s, **keywords)
        if isinstance(action, CallToolAction):
            seen.done, seen.reward = True, 1.0
        return seen

    def _step_impl(self, action: Action, timeout_s: float | None = None, **_: Any) -> Observation:  # noqa: ARG002
        return Observation()

    @property
    def state(self) -> State:
        return self._state


def _app(kind: type[Environment[Any, Any, Any]], action: type[Action] = Action, **settings: Any) -> FastAPI:
    observation = CallToolObservation if action is CallToolAction else Observation
    app: FastAPI = create_app(kind, action, observation, env_name="trouble", **settings)
    return app


@asynccontextmanager
async def _served(app: FastAPI) -> AsyncIterator[str]:
    listener = listen("127.0.0.1", 0, 16)
    # In a thread of its own, where uvicorn leaves the signals of the process alone.
    server = uvicorn.Server(
        uvicorn.Config(app, log_config=None, log_level="critical", timeout_graceful_shutdown=1)
    )
    running = asyncio.ensure_future(asyncio.to_thread(server.run, [listener]))
    try:
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await running
        listener.close()


async def a_late_answer_costs_the_episode() -> Shown:
    """Let the client wait less than a step takes, and ask for the state."""
    async with _served(_app(_Slow, max_concurrent_envs=4)) as url:
        client = GenericEnvClient(base_url=url, message_timeout_s=_PATIENCE_S)
        await client.connect()
        await client.reset(episode_id="first")
        try:
            await client.step({})
        except TimeoutError:
            late = "TimeoutError"
        else:
            late = "an answer"
        state: Any = await client.state()
        await client.close()
    found = state.get("episode_id")
    return Shown(
        "`reset` of the episode `first`, a step that takes longer than the client waits, then `state`",
        f"{late}; then, without an error, a state whose episode_id is {found}",
        found != "first",
    )


async def calling_a_tool_loses_its_reward() -> Shown:
    """Call a tool as the client for tools offers it."""
    async with _served(_app(_Calling, CallToolAction, max_concurrent_envs=4)) as url:
        client = MCPToolClient(base_url=url)
        await client.connect()
        await client.reset()
        stepped: Any = await client.step(CallToolAction(tool_name="answer"))
        await client.reset()
        called = await client.call_tool("answer")
        await client.close()
    return Shown(
        "the same call by `step` and by `call_tool` of `MCPToolClient`, of a tool that pays 1 and ends the episode",
        f"`step`: reward {stepped.reward}, done {stepped.done}; `call_tool`: {called!r}, a {type(called).__name__}",
        stepped.reward == 1.0 and not (hasattr(called, "reward") or isinstance(called, dict)),
    )


def a_validator_that_raises_ends_the_session() -> Shown:
    """Send an action that a validator of its model refuses, and then a right one."""
    with TestClient(_app(_Plain, _Word)) as client, client.websocket_connect("/ws") as socket:
        socket.send_json({"type": "reset"})
        socket.receive_json()
        socket.send_json({"type": "step", "data": {"word": "too long a word"}})
        first = socket.receive_json()["data"]["code"]
        try:
            socket.send_json({"type": "step", "data": {"word": "crane"}})
            then = socket.receive_json()["type"]
        except (WebSocketDisconnect, RuntimeError):
            then = "the socket is closed"
    return Shown(
        "an action whose validator raises ValueError, then a right one, on `/ws`",
        f"{first}; then {then}",
        then == "the socket is closed",
    )


def a_frame_that_is_no_object_ends_the_session() -> Shown:
    """Send a list where a message is expected, and then a message."""
    with TestClient(_app(_Plain)) as client, client.websocket_connect("/ws") as socket:
        socket.send_text("[1, 2]")
        first = socket.receive_json()["data"]["code"]
        try:
            socket.send_json({"type": "state"})
            then = socket.receive_json()["type"]
        except (WebSocketDisconnect, RuntimeError):
            then = "the socket is closed"
    return Shown("`[1, 2]`, then a question for the state, on `/ws`", f"{first}; then {then}", first != then)


def requests_over_http_share_no_episode() -> Shown:
    """Reset and ask for the state over HTTP."""
    with TestClient(_app(_Plain)) as client:
        client.post("/reset", json={"episode_id": "first"})
        client.post("/step", json={"action": {}})
        state = client.get("/state").json()
    return Shown(
        "`POST /reset` of the episode `first`, `POST /step`, `GET /state`",
        f"the state has episode_id {state['episode_id']}, step_count {state['step_count']}",
        state["episode_id"] != "first",
    )


def a_second_client_is_refused() -> Shown:
    """Open two sessions with a server that was given no number."""
    with (
        TestClient(_app(_Plain)) as client,
        client.websocket_connect("/ws") as first,
        client.websocket_connect("/ws") as second,
    ):
        first.send_json({"type": "state"})
        one = first.receive_json()["type"]
        two = second.receive_json()
    code = two["data"].get("code", "") if two["type"] == "error" else two["type"]
    return Shown("two sessions with `create_app` as it comes", f"{one}; {code}", code == "CAPACITY_REACHED")


def what_an_exception_says_reaches_the_model() -> Shown:
    """Raise in a step."""
    with TestClient(_app(_Raising)) as client, client.websocket_connect("/ws") as socket:
        socket.send_json({"type": "step", "data": {}})
        answer = socket.receive_json()["data"]
    return Shown(
        "a step that raises ValueError('the answer is crane'), on `/ws`",
        f"{answer['code']}: {answer['message']}",
        "crane" in answer["message"],
    )


def nobody_asks_the_rubric() -> Shown:
    """Step an environment that has a rubric."""
    asked = _Asked()

    class Judged(_Plain):
        def __init__(self) -> None:
            super().__init__()
            self.rubric = asked

        def _answer(self, action: Action) -> Observation:  # noqa: ARG002
            return Observation(done=True)

    with TestClient(_app(Judged)) as client, client.websocket_connect("/ws") as socket:
        socket.send_json({"type": "step", "data": {}})
        answer = socket.receive_json()["data"]
    return Shown(
        "a step of an environment that has a `rubric`, on `/ws`",
        f"the rubric is asked {asked.times} times, the reward is {answer['reward']}",
        asked.times == 0,
    )


def a_step_after_the_end_is_carried_out() -> Shown:
    """Step twice, though the first step ends the episode."""
    with TestClient(_app(_Plain)) as client, client.websocket_connect("/ws") as socket:
        paid = []
        for _ in range(2):
            socket.send_json({"type": "step", "data": {}})
            paid.append(socket.receive_json()["data"]["reward"])
    return Shown("two steps, of which the first says `done`", f"rewards {paid}", paid == [1.0, 1.0])
