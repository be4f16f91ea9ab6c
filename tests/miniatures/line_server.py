"""A miniature framework with a server, one line of header and one of JSON each way, wrong in the ways of its names."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar
from urllib.parse import urlsplit

from canonical.adapter import Endpoint, Feature, Level, Opened, SessionError, Support
from canonical.content import JSON
from canonical.environment import Environment
from canonical.reference import ReferenceAdapter, ReferenceSession
from canonical.step import StepResult
from canonical.transcript import (
    Action,
    action_from_json,
    message_from_json,
    result_from_json,
    spec_from_json,
)


class LineServer:
    """Serve episodes, one for each connection, and lie about nothing."""

    def __init__(self, environment: Environment[Any]) -> None:
        self.environment = environment
        self.live: set[ReferenceSession] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = ReferenceSession(self.environment)
        self.live.add(session)
        is_polite = False
        with contextlib.suppress(OSError):
            while line := await reader.readline():
                asked = json.loads(line)
                is_polite = asked["kind"] == "close"
                answer = await self.answer(session, asked)
                writer.write(f"X-Debug: {self.header(session)}\n{json.dumps(answer)}\n".encode())
                await writer.drain()
                if is_polite:
                    break
        writer.close()
        await self.free(session, is_polite=is_polite)

    async def answer(self, session: ReferenceSession, asked: dict[str, Any]) -> JSON:
        try:
            match asked["kind"]:
                case "open":
                    opened = await session.open(asked["task"], asked["seed"])
                    return {
                        "prompt": [message.to_json() for message in opened.prompt],
                        "tools": [tool.to_json() for tool in opened.tools],
                    }
                case "step":
                    return (await self.playing(session).step(action_from_json(asked["action"]))).to_json()
                case _:
                    return None
        except SessionError as error:
            return {"refused": str(error)}

    def header(self, session: ReferenceSession) -> str:
        return "none"

    def playing(self, session: ReferenceSession) -> ReferenceSession:
        return session

    async def free(self, session: ReferenceSession, *, is_polite: bool) -> None:
        await session.close()
        self.live.discard(session)


class SecretInHeader(LineServer):
    def header(self, session: ReferenceSession) -> str:
        if session.episode is None:
            return "none"
        return base64.b64encode(f"state={session.episode.state}".encode()).decode()


class DroppedSessionsStay(LineServer):
    async def free(self, session: ReferenceSession, *, is_polite: bool) -> None:
        if is_polite:
            await super().free(session, is_polite=is_polite)


class DescriptorsStay(LineServer):
    async def free(self, session: ReferenceSession, *, is_polite: bool) -> None:
        os.open(os.devnull, os.O_RDONLY)
        await super().free(session, is_polite=is_polite)


class MemoryStays(LineServer):
    kept: ClassVar[list[bytes]] = []

    async def free(self, session: ReferenceSession, *, is_polite: bool) -> None:
        self.kept.append(os.urandom(100_000))
        await super().free(session, is_polite=is_polite)


class SessionsMixed(LineServer):
    latest: ReferenceSession | None = None

    def playing(self, session: ReferenceSession) -> ReferenceSession:
        mixed = self.latest if self.latest in self.live else session
        self.latest = session
        return mixed


class SecretInLog(LineServer):
    async def free(self, session: ReferenceSession, *, is_polite: bool) -> None:
        if session.episode is not None:
            print(f"freed {session.episode.state!r}")
        await super().free(session, is_polite=is_polite)


class LineSession:
    """Be the client's end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._paid = 0.0

    async def open(self, task: str, seed: int) -> Opened:
        self._paid = 0.0
        answer = await self._ask({"kind": "open", "task": task, "seed": seed})
        return Opened(
            tuple(message_from_json(message) for message in answer["prompt"]),
            tuple(spec_from_json(tool) for tool in answer["tools"]),
        )

    async def step(self, action: Action) -> StepResult:
        wire = action if isinstance(action, str) else action.to_json()
        result = result_from_json(await self._ask({"kind": "step", "action": wire}))
        self._paid = result.total
        return result

    async def public_state(self) -> JSON:
        return {}

    async def reported_return(self) -> float:
        return self._paid

    async def close(self) -> None:
        if not self._writer.is_closing():
            await self._ask({"kind": "close"})
            self._writer.close()

    async def _ask(self, value: JSON) -> Any:
        try:
            self._writer.write(json.dumps(value).encode() + b"\n")
            await self._writer.drain()
            await self._reader.readline()
            answer = json.loads(await self._reader.readline())
        except (OSError, ValueError) as error:
            raise SessionError(f"the connection is lost: {error}") from error
        if isinstance(answer, dict) and "refused" in answer:
            raise SessionError(answer["refused"])
        return answer


class LineAdapter(ReferenceAdapter):
    """Serve with one of the servers above."""

    def __init__(self, kind: type[LineServer]) -> None:
        self.name = kind.__name__
        self._kind = kind

    def features(self) -> Mapping[Feature, Support]:
        return dict.fromkeys(Feature, Support(Level.NATIVE))

    @asynccontextmanager
    async def serve(
        self, compiled: Environment[Any], /, *, host: str = "127.0.0.1", port: int = 0
    ) -> AsyncIterator[Endpoint]:
        server = self._kind(compiled)
        listener = await asyncio.start_server(server.serve, host, port)
        place = listener.sockets[0].getsockname()
        try:
            yield Endpoint(f"http://{place[0]}:{place[1]}", lambda: len(server.live))
        finally:
            listener.close()

    @asynccontextmanager
    async def connect(
        self, compiled: Environment[Any] | None, endpoint: Endpoint, /
    ) -> AsyncIterator[LineSession]:  # type: ignore[override]
        assert endpoint.url is not None
        place = urlsplit(endpoint.url)
        session = LineSession(*await asyncio.open_connection(place.hostname, place.port))
        try:
            yield session
        finally:
            await session.close()


ADAPTERS = {kind.__name__: LineAdapter(kind) for kind in (LineServer, *LineServer.__subclasses__())}
