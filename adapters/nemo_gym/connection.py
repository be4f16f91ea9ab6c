"""The way to a resources server: NeMo Gym's own client, and the requests of one session with their cookies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from http.cookies import SimpleCookie
from typing import NamedTuple

from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import (
    GlobalAIOHTTPAsyncClientConfig,
    ServerClient,
    global_aiohttp_client_exit,
    is_global_aiohttp_client_setup,
    set_global_aiohttp_client,
)
from omegaconf import OmegaConf

from canonical.adapter import SessionError

SERVER = "environment"
"""The name of the resources server in the client's configuration."""

PATIENCE = 5.0
"""After how many seconds without an answer, and how often from then on, the server is asked whether it is there."""

_REFUSED = 400

ABANDONED = "an earlier request was abandoned before its answer came"
"""Why a session is lost whose request was given up."""


class Connection:
    """Hold the way to one server, for all sessions with it: NeMo Gym's client, and whether the server was there.

    Args:
        host: The server's host.
        port: The server's port.
    """

    def __init__(self, host: str, port: int) -> None:
        place = {"host": host, "port": port, "entrypoint": "app.py", "domain": "other"}
        self.client = ServerClient(
            head_server_config=BaseServerConfig(host="127.0.0.1", port=1),
            global_config_dict=OmegaConf.create({SERVER: {"resources_servers": {SERVER: place}}}),
        )
        self.place = f"{host}:{port}"
        self._was_there = False

    async def ready(self) -> None:
        """Make sure that the client of this event loop exists and that the server was there once.

        Raises:
            SessionError: Nobody answers.
        """
        await share_client()
        if not self._was_there:
            status = await self.poll()
            if status != "success":
                raise SessionError(f"no server answers at {self.place}: {status.replace('_', ' ')}")
            self._was_there = True

    async def poll(self) -> str:
        """Return what NeMo Gym's own question for the server's state says, such as `success`."""
        return await asyncio.to_thread(self.client.poll_for_status, SERVER)


_lifetimes: dict[int, AsyncGenerator[None, None]] = {}


async def share_client() -> None:
    """Make sure that NeMo Gym's client of this event loop exists."""
    # NeMo Gym's requests share one client per process, which belongs to the event loop that it was made on. Made here,
    # it needs no configuration; an asynchronous generator is what an event loop closes when it ends.
    if not is_global_aiohttp_client_setup():
        lifetime = _lifetime()
        _lifetimes[id(lifetime)] = lifetime
        await anext(lifetime)


async def _lifetime() -> AsyncGenerator[None, None]:
    client = set_global_aiohttp_client(GlobalAIOHTTPAsyncClientConfig())
    try:
        yield
    finally:
        await client.close()
        # It runs an event loop of its own, hence the thread; for a closed client it only forgets it.
        await asyncio.to_thread(global_aiohttp_client_exit)
        _lifetimes.clear()


class Answer(NamedTuple):
    """Hold what a server answered to one request."""

    status: int
    content: bytes

    @property
    def is_refusal(self) -> bool:
        """Whether the server refused the request, or failed."""
        return self.status >= _REFUSED

    def accepted(self) -> bytes:
        """Return the content.

        Raises:
            SessionError: It is a refusal; the text is the reason.
        """
        if self.is_refusal:
            raise SessionError(f"{self._reason()} (status {self.status})")
        return self.content

    def _reason(self) -> str:
        try:
            value = json.loads(self.content)
        except ValueError:
            return self.content.decode("utf-8", "replace")
        return str(value.get("detail", value)) if isinstance(value, dict) else str(value)


class Requests:
    """Send the requests of one session, each with the cookies of the last answer that set any.

    Args:
        connection: The way to the server.
        receive_timeout: Seconds after which an answer is overdue. NeMo Gym itself waits for ever.

    Attributes:
        cookies: What the next request carries.
        lost: Why no request can follow any more, or None.
        is_gone: Whether that is because the server is gone.
    """

    def __init__(self, connection: Connection, receive_timeout: float) -> None:
        self._connection = connection
        self._receive_timeout = receive_timeout
        self.cookies: SimpleCookie = SimpleCookie()
        self.lost: str | None = None
        self.is_gone = False

    def check(self) -> None:
        """Make sure that a request can follow.

        Raises:
            SessionError: None can.
        """
        if self.lost is not None:
            raise SessionError(f"this session cannot be used any more: {self.lost}; connect a new one")

    async def post(self, path: str, media_type: str, body: bytes, *, accept: str | None = None) -> Answer:
        """Send a request, and return the answer whatever its status is.

        Raises:
            SessionError: None came.
        """
        if not is_global_aiohttp_client_setup():
            # NeMo Gym would make another client from the arguments of this process, which are not its own to read.
            self.is_gone, self.lost = True, "the client of its event loop is closed"
            raise SessionError(self.lost)
        headers = {"Content-Type": media_type, **({} if accept is None else {"Accept": accept})}
        watch = _Watch(self._connection.poll)
        try:
            async with asyncio.timeout(self._receive_timeout) as limit, watch.over(limit):
                answer = await self._connection.client.post(
                    SERVER, path, data=body, headers=headers, cookies=self.cookies
                )
                content = await answer.read()
        except TimeoutError as error:
            self.is_gone = watch.is_gone
            self.lost = (
                f"the connection is lost: no server answers at {self._connection.place}"
                if watch.is_gone
                else f"the server did not answer within {self._receive_timeout:g} s"
            )
            raise SessionError(self.lost) from error
        except OSError as error:
            self.is_gone = True
            self.lost = f"the connection is lost: {str(error) or type(error).__name__}"
            raise SessionError(self.lost) from error
        except asyncio.CancelledError:
            self.lost = ABANDONED
            raise
        if answer.cookies:
            self.cookies = answer.cookies
        return Answer(answer.status, content)


class _Watch:
    """End a wait for a server that is gone; NeMo Gym's requests try again for ever."""

    def __init__(self, poll: Callable[[], Awaitable[str]]) -> None:
        self._poll = poll
        self._limit: asyncio.Timeout | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._polling: asyncio.Task[None] | None = None
        self.is_gone = False

    def over(self, limit: asyncio.Timeout) -> _Watch:
        self._limit = limit
        return self

    async def __aenter__(self) -> None:
        self._arm()

    async def __aexit__(self, *_: object) -> None:
        self._limit = None
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._look)

    def _look(self) -> None:
        self._polling = asyncio.get_running_loop().create_task(self._look_closely())

    async def _look_closely(self) -> None:
        is_gone = await self._poll() == "connection_error"
        if self._limit is None:
            return
        if is_gone:
            self.is_gone = True
            self._limit.reschedule(asyncio.get_running_loop().time())
        else:
            self._arm()
