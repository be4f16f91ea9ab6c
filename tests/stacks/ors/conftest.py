"""A client that is only HTTP, the official one, and in which manner ORS keeps what every adapter promises."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn

from adapters.ors.framework import HAS_OPENREWARD
from canonical.tool import ToolCall
from tests.stacks.suite.framework import Manner
from tests.stacks.suite.standing import Stand, servers_loop


@pytest.fixture(scope="module")
def manner() -> Manner:
    return Manner(
        actions=(
            ToolCall("teardown"),
            ToolCall("get_prompt"),
            ToolCall("_act", {"action": "x"}),
        ),
        unstartable="could not start task odd/broken: ValueError",
        closed="closed",
        lingers=True,
        spare_descriptors=8,
        # ORS keeps connections, and the results of calls, for 60 s; a result takes about 7 kB.
        kept_alive_s=75.0,
        kept_mib=40,
    )


class Raw:
    """Speak plain HTTP as one session, and keep every byte of the answers."""

    def __init__(self, server: Stand) -> None:
        self.name = server.environment.name
        self.sid = str(uuid.uuid4())
        self.seen: list[bytes] = []
        self._http = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=40)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        headers = {"X-Session-ID": self.sid, "Content-Type": "application/json"}
        self._http.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self._http.getresponse()
        data = answer.read()
        self.seen.append(str(answer.headers).encode() + data)
        return answer.status, data.decode()

    def create(self, **spec: Any) -> tuple[int, str]:
        body = {"split": spec["split"], "index": spec["index"]} if "split" in spec else {"task_spec": spec}
        return self.ask("POST", "/create", {"env_name": self.name, **body})

    def call(self, name: str, **arguments: Any) -> Any:
        status, text = self.ask("POST", f"/{self.name}/call", {"name": name, "input": arguments})
        assert status == 200, text
        return self.read(text)

    def read(self, stream: str) -> Any:
        event, parts = "", []
        for line in stream.split("\r\n"):
            if line.startswith("event: "):
                event = line[7:]
            elif line.startswith("data: "):
                assert event != "error", line
                parts += [line[6:]] if event in {"chunk", "end"} else []
        return json.loads("".join(parts))

    def close(self) -> None:
        self._http.close()


class _Uvicorn(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@pytest.fixture(scope="session")
def serve_app() -> Callable[..., Any]:
    """Return what serves an application that this project did not make."""

    @contextmanager
    def serve(app: Any, name: str) -> Iterator[Any]:
        listener = socket.create_server(("127.0.0.1", 0))
        server = _Uvicorn(uvicorn.Config(app, log_config=None, access_log=False))
        serving = asyncio.run_coroutine_threadsafe(server.serve(sockets=[listener]), servers_loop().loop)
        while not server.started:
            time.sleep(0.001)
        try:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            yield SimpleNamespace(environment=SimpleNamespace(name=name), url=url)
        finally:
            server.should_exit = True
            serving.result(30)
            listener.close()

    return serve


@pytest.fixture
def raw() -> Iterator[Callable[[Stand], Raw]]:
    made: list[Raw] = []

    def make(server: Stand) -> Raw:
        made.append(Raw(server))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def official() -> Callable[..., Any]:
    """Return the synchronous client of the installed distribution, made as its documentation makes it."""

    @contextmanager
    def connected(server: Stand) -> Iterator[Any]:
        name = server.environment.name
        if HAS_OPENREWARD:
            from openreward import OpenReward

            client = OpenReward()
            env = client.environments.get(name, variant=name, base_url=server.url)
        else:
            from ors.client import ORS

            client = ORS(base_url=server.url)
            env = client.environment(name)
        try:
            yield env
        finally:
            client.close()

    return connected
