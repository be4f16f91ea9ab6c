"""Troubles of NeMo Gym, each shown on the installed release by the smallest server that has it."""

from __future__ import annotations

import asyncio
import inspect
import json
from base64 import b64encode
from contextlib import suppress
from importlib import import_module
from importlib.metadata import files
from typing import Any

from fastapi import FastAPI, Request
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import SESSION_ID_KEY, ServerClient, request
from omegaconf import OmegaConf
from pydantic import Field
from starlette.testclient import TestClient

from adapters.nemo_gym.connection import Connection
from canonical.adapter import SessionError
from canonical.listening import listen
from canonical.trouble import Shown

_PATIENCE_S = 1.6
_ROW = {
    "responses_create_params": {"input": "x"},
    "response": {
        "id": "r", "object": "response", "created_at": 0, "model": "m", "parallel_tool_calls": True,
        "tool_choice": "auto", "tools": [], "output": [],
    },
}  # fmt: skip


class _Trouble(SimpleResourcesServer):
    """Keep one text per session, which `/seed_session` sets and `/read` shows."""

    config: BaseResourcesServerConfig
    kept: dict[str, str] = Field(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/read")(self.read)
        app.post("/fail")(self.fail)
        return app

    async def seed_session(self, request: Request) -> BaseSeedSessionResponse:  # type: ignore[override]
        row = await request.json()
        self.kept[request.session[SESSION_ID_KEY]] = row.get("answer", "")
        return BaseSeedSessionResponse()

    async def read(self, request: Request) -> dict[str, Any]:
        return {"kept": self.kept.get(request.session[SESSION_ID_KEY])}

    async def fail(self, request: Request) -> None:
        raise ValueError(self.kept.get(request.session[SESSION_ID_KEY], ""))

    async def verify(self, request: Request, body: BaseVerifyRequest) -> BaseVerifyResponse:  # type: ignore[override]
        is_right = self.kept.get(request.session[SESSION_ID_KEY]) == "crane"
        return BaseVerifyResponse(**body.model_dump(), reward=float(is_right))


def _server() -> _Trouble:
    client = ServerClient(
        head_server_config=BaseServerConfig(host="127.0.0.1", port=1), global_config_dict=OmegaConf.create({})
    )
    config = BaseResourcesServerConfig(
        host="127.0.0.1", port=1, entrypoint="app.py", name="trouble", domain="other"
    )
    return _Trouble(config=config, server_client=client)


def _client(server: _Trouble) -> TestClient:
    app = server.setup_webserver()
    server.setup_exception_middleware(app)
    return TestClient(app, raise_server_exceptions=False)


def an_exception_costs_the_session() -> Shown:
    """Keep the cookie of the last answer, as `simple_agent` does, after a tool that raises."""
    client = _client(_server())
    client.post("/seed_session", json={"answer": "crane"})
    seen = []
    for path in ("/read", "/fail"):
        answer = client.post(path, json={})
        seen.append("a cookie" if "set-cookie" in answer.headers else "no cookie")
    agent = inspect.getsource(import_module("responses_api_agents.simple_agent.app"))
    takes_last = "resources_server_cookies = api_response.cookies" in agent
    return Shown(
        "a tool that answers and one that raises, in a session; and what `simple_agent` does with the cookies of an answer",
        f"the first sends {seen[0]}, the second {seen[1]}; the agent {'keeps those of the last answer only' if takes_last else 'keeps older ones'}",
        seen == ["a cookie", "no cookie"] and takes_last,
    )


def what_an_exception_says_reaches_the_model() -> Shown:
    """Raise in a tool."""
    client = _client(_server())
    client.post("/seed_session", json={"answer": "crane"})
    answer = client.post("/fail", json={})
    return Shown(
        "a tool that raises ValueError('crane')",
        f"{answer.status_code}: {answer.text}",
        "crane" in answer.text,
    )


def a_model_can_begin_the_episode_anew() -> Shown:
    """Post to `/seed_session` as an agent does when a model names it as a tool."""
    client = _client(_server())
    client.post("/seed_session", json={"answer": "the hidden word"})
    client.post("/seed_session", json={"answer": "crane"})
    reward = client.post("/verify", json=_ROW).json()["reward"]
    agent = inspect.getsource(import_module("responses_api_agents.simple_agent.app"))
    posts_any = 'url_path=f"/{output_function_call.name}"' in agent
    return Shown(
        "`seed_session` called as a tool in a session that is seeded, then `/verify`; and where `simple_agent` posts a call",
        f"reward {reward}; the agent posts to {'whatever the model names' if posts_any else 'the tools of the row'}",
        reward == 1.0 and posts_any,
    )


def the_end_of_an_episode_is_not_heard() -> Shown:
    """Look for `done` in the loop of `simple_agent`."""
    loop = inspect.getsource(import_module("responses_api_agents.simple_agent.app").SimpleAgent.responses)
    reads = "done" in loop
    return Shown(
        "the source of `SimpleAgent.responses`",
        f"it {'names' if reads else 'does not name'} `done`",
        not reads,
    )


def an_agent_steps_for_ever_unless_told() -> Shown:
    """Read how many steps an agent takes by default."""
    config = import_module("responses_api_agents.simple_agent.app").SimpleAgentConfig
    most = config.model_fields["max_steps"].default
    return Shown("the default of `SimpleAgentConfig.max_steps`", str(most), most is None)


def anybody_can_sign_a_cookie() -> Shown:
    """Sign the cookie of somebody else's session with what everybody knows."""
    signer: Any = import_module("itsdangerous").TimestampSigner
    server = _server()
    owner, stranger = _client(server), _client(server)
    owner.post("/seed_session", json={"answer": "crane"})
    (session,) = server.kept
    key = f"{type(server).__name__}___{server.config.name}"
    stranger.cookies.set(
        key, signer(key).sign(b64encode(json.dumps({SESSION_ID_KEY: session}).encode())).decode()
    )
    seen = stranger.post("/read", json={}).json()["kept"]
    return Shown(
        "a session's id in a cookie that is signed with the names of class and instance",
        f"the session's state is read: {seen}" if seen else "nothing",
        seen == "crane",
    )


def a_lost_cookie_is_a_reward_of_zero() -> Shown:
    """Verify without the cookie of the session."""
    server = _server()
    _client(server).post("/seed_session", json={"answer": "crane"})
    answer = _client(server).post("/verify", json=_ROW)
    return Shown(
        "`/verify` of a session that was played right, without its cookie",
        f"{answer.status_code}, reward {answer.json().get('reward')}",
        answer.status_code == 200,
    )


def sessions_are_never_freed() -> Shown:
    """Look for a way to close a session."""
    server = _server()
    client = _client(server)
    client.post("/seed_session", json={"answer": "crane"})
    client.post("/verify", json=_ROW)
    paths = {getattr(route, "path", "") for route in server.setup_webserver().routes}
    closing = sorted(path for path in paths if "close" in path)
    return Shown(
        "a session that is seeded and verified, and the routes that close one",
        f"{len(server.kept)} session is still held; routes: {', '.join(closing) or 'none'}",
        bool(server.kept) and not closing,
    )


async def a_server_that_is_gone_is_asked_for_ever() -> Shown:
    """Ask a port on which nobody listens."""
    # Bound and closed again, so that nobody is there.
    listener = listen("127.0.0.1", 0, 1)
    port = listener.getsockname()[1]
    listener.close()
    with suppress(SessionError):
        # It makes the client that all requests of this process share, and says that nobody is there.
        await Connection("127.0.0.1", port).ready()
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await request("GET", f"http://127.0.0.1:{port}/", _internal=True)
    except TimeoutError:
        seen, is_there = "neither an answer nor an error", True
    except Exception as error:  # noqa: BLE001 - whatever a later release says
        seen, is_there = type(error).__name__, False
    else:
        seen, is_there = "an answer", False
    return Shown(f"a request to a port that nobody listens on, for {_PATIENCE_S:g} s", seen, is_there)


def the_wheel_fills_shared_folders() -> Shown:
    """Look at what the distribution puts beside itself."""
    tops = sorted(
        {
            path.parts[0]
            for path in files("nemo-gym") or ()
            if len(path.parts) > 1 and "." not in path.parts[0]
        }
    )
    others = [top for top in tops if top != "nemo_gym"]
    return Shown("the folders that the wheel of `nemo-gym` installs", ", ".join(tops), bool(others))
