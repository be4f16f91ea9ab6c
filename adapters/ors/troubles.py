"""Troubles of ORS, each shown on the installed release by the smallest environment that has it."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.client import HTTPConnection
from typing import Any

import uvicorn
from pydantic import BaseModel

from adapters.ors.client import NO_KEY, Client
from adapters.ors.framework import (
    CHUNK_SIZE,
    HAS_OPENREWARD,
    Environment,
    Server,
    Split,
    TextBlock,
    ToolOutput,
    tool,
)
from canonical.listening import listen
from canonical.trouble import Shown

_SESSION = {"X-Session-ID": "trouble"}


class _Text(BaseModel):
    text: str = ""


def _said(text: str, **more: Any) -> ToolOutput:
    return ToolOutput(blocks=[TextBlock(text=text)], **more)


class _Trouble(Environment):
    """Have one task, and tools that go wrong."""

    @classmethod
    def list_splits(cls) -> list[Split]:
        return [Split(name="train", type="train")]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, str]]:  # noqa: ARG003 - one split
        return [{"id": cls.name(), "answer": "crane"}]

    def get_prompt(self) -> list[TextBlock]:
        return [TextBlock(text="Begin.")]

    @tool
    async def spaces(self, arguments: _Text) -> ToolOutput:  # noqa: ARG002
        """Return more white space than a chunk holds."""
        return _said(" " * (3 * CHUNK_SIZE))

    @tool
    async def fail(self, arguments: _Text) -> ToolOutput:  # noqa: ARG002
        """Raise."""
        raise ValueError("the answer is crane")

    @tool
    async def undefined(self, arguments: _Text) -> ToolOutput:  # noqa: ARG002
        """Pay what is no number."""
        return _said("paid", reward=float("nan"))

    @tool
    async def guess(self, word: str) -> ToolOutput:
        """Take a text, and no model."""
        return _said(word)


class _Derived(_Trouble):
    """Be an environment of its own, with a task of its own."""


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The process that serves decides what its signals mean; uvicorn would take them away from it.
        yield


@asynccontextmanager
async def _served(*environments: type[Environment]) -> AsyncIterator[tuple[str, int]]:
    listener = listen("127.0.0.1", 0, 16)
    app = Server(list(environments), return_errors="none").app
    # On this loop, to which the events of the streams of every server of this process are bound.
    server = _Server(uvicorn.Config(app, log_config=None, log_level="critical", timeout_graceful_shutdown=1))
    running = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        yield "127.0.0.1", listener.getsockname()[1]
    finally:
        server.should_exit = True
        await running
        listener.close()


async def _ask(
    place: tuple[str, int], method: str, path: str, body: Any = None, session: dict[str, str] | None = None
) -> tuple[int, str]:
    def ask() -> tuple[int, str]:
        connection = HTTPConnection(*place, timeout=20)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json", **(session or {})})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    return await asyncio.to_thread(ask)


async def _call(name: str) -> str:
    async with _served(_Trouble) as place:
        await _ask(place, "POST", "/create", {"env_name": "_trouble", "task_spec": {}}, _SESSION)
        _, text = await _ask(place, "POST", "/_trouble/call", {"name": name, "input": {}}, _SESSION)
    return text


def _event(stream: str) -> tuple[str, str]:
    """Return the last event of a stream: its name and its data."""
    blocks = [block for block in stream.replace("\r\n", "\n").split("\n\n") if "event:" in block]
    lines = blocks[-1].split("\n")
    name = next(line for line in lines if line.startswith("event:"))[6:].strip()
    return name, "\n".join(line[5:].strip() for line in lines if line.startswith("data:"))


async def white_space_is_lost_on_the_way() -> Shown:
    """Read through the official client a text longer than a chunk."""
    async with _served(_Trouble) as (host, port):
        client = Client(f"http://{host}:{port}")
        await client.connect()
        try:
            async with client.session({}) as session:
                answer = await session.call_tool("spaces", {})
        finally:
            await client.close()
    sent, arrived = 3 * CHUNK_SIZE, len(answer.blocks[0].text)
    return Shown(
        f"a tool whose text is {sent} spaces, through the official client",
        f"{'fewer' if arrived < sent else 'all'} of them arrive",
        arrived < sent,
    )


async def what_an_exception_says_reaches_the_model() -> Shown:
    """Raise in a tool of a server that shall return no errors."""
    name, data = _event(await _call("fail"))
    return Shown(
        'a tool that raises ValueError("the answer is crane"), on a server with `return_errors="none"`',
        f"event {name}: {data}",
        "crane" in data,
    )


async def rewards_that_are_no_numbers_vanish() -> Shown:
    """Pay what is no number."""
    _, data = _event(await _call("undefined"))
    output = json.loads(data)["output"]
    return Shown(
        "a tool whose reward is not a number",
        f"reward {json.dumps(output['reward'])}",
        output["reward"] is None,
    )


def a_plain_parameter_makes_no_tool() -> Shown:
    """List the tools of a class, one of which takes a text instead of a model."""
    listed = [one.name for one in _Trouble.list_tools().tools]
    return Shown(
        "`list_tools` of a class with four methods that are decorated, of which `guess` takes `word: str`",
        ", ".join(listed),
        "guess" not in listed,
    )


async def a_derived_class_has_the_tasks_of_its_base() -> Shown:
    """Ask for the first task of a class, and of one that is derived from it."""
    asked = {"split": "train", "index": 0}
    async with _served(_Trouble, _Derived) as place:
        answers = [
            json.loads((await _ask(place, "POST", f"/{one}/task", asked))[1])
            for one in ("_trouble", "_derived")
        ]
    first, second = (answer["task"]["id"] for answer in answers)
    return Shown(
        "the task at index 0 of a class, then of a class derived from it, each of which names its task after itself",
        f"{first}, then {second}",
        second == first,
    )


async def rows_of_tasks_are_shown_to_everybody() -> Shown:
    """Ask for the tasks without any credential."""
    async with _served(_Trouble) as place:
        status, text = await _ask(place, "POST", "/_trouble/tasks", {"split": "train"})
    tasks = json.loads(text)["tasks"]
    return Shown(
        "`POST /tasks` without session or key, of tasks whose `task_spec` holds an answer",
        f"{status}: {json.dumps(tasks)}",
        "crane" in text,
    )


async def a_path_without_the_name_is_answered_by_a_redirect() -> Shown:
    """Ask under another name than that of the environment, as the client does that was given no variant."""
    async with _served(_Trouble) as place:
        status, _ = await _ask(place, "POST", "/somebody/else/tasks", {"split": "train"})
    return Shown("`POST` to a path whose first part is no environment", str(status), status == 308)


def the_address_of_ones_own_server_is_changed() -> Shown:
    """Give the client the address of a server."""
    if not HAS_OPENREWARD:
        return Shown("the client of ors-sdk with a `base_url`", "the address as it is", False)
    from openreward import OpenReward  # noqa: PLC0415 - one of the two is installed

    client: Any = OpenReward(api_key=NO_KEY, base_url="http://127.0.0.1:8080")
    try:
        asked = client.session_base_url
    finally:
        client.close()
    return Shown(
        '`OpenReward(base_url="http://127.0.0.1:8080")`',
        f"sessions are asked for at {asked}",
        asked != "http://127.0.0.1:8080",
    )


def a_session_at_rest_is_freed_after_a_fixed_time() -> Shown:
    """Read after what time a server frees sessions that nobody uses, and whether it can be told another."""
    source = inspect.getsource(Server)
    found = re.search(r"stale_threshold: float\s*=\s*(\d+)", source)
    settings = [name for name in inspect.signature(Server).parameters if "stale" in name or "timeout" in name]
    seconds = found[1] if found else "no"
    return Shown(
        "the source of `Server`, and its parameters",
        f"a session that rests is freed after {seconds} seconds; parameters that change it: {', '.join(settings) or 'none'}",
        found is not None and not settings,
    )
