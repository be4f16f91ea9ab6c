"""A miniature framework with a server that speaks OpenEnv's frames, and servers of it that fail under load.

Every server plays real episodes; what its class is called is all that is wrong with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, ClassVar
from urllib.parse import urlsplit

from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from canonical.adapter import Endpoint, Feature, Level, Opened, SessionError, Support
from canonical.content import JSON, Observation
from canonical.environment import Environment
from canonical.reference import ReferenceAdapter, ReferenceSession
from canonical.step import StepResult
from canonical.tool import ToolCall
from canonical.transcript import Action, result_from_json

SOME = 20
"""From how many sessions on a server that bears only some of them fails."""
STALL_S = 2.0
WORKERS, PER_WORKER = 4, 16


class HangUp(Exception):  # noqa: N818 - what it is told to do
    pass


class Honest:
    """Do what is asked."""

    settings: ClassVar[dict[str, JSON]] = {}

    def __init__(self, environment: Environment[Any]) -> None:
        self.environment = environment
        self.live: dict[int, ReferenceSession] = {}
        self.accepted = self.steps = 0

    def open_sessions(self) -> int:
        return len(self.live)

    async def serve(self, connection) -> None:
        number, self.accepted = self.accepted, self.accepted + 1
        with contextlib.suppress(ConnectionClosed):
            refusal = await self.admit(number)
            if refusal is not None:
                await connection.send(failure("CAPACITY_REACHED", refusal))
                return
            self.live[number] = ReferenceSession(self.environment)
            try:
                async for frame in connection:
                    message = json.loads(frame)
                    if message["type"] == "close":
                        break
                    await connection.send(await self.answer(number, message))
            except HangUp:
                connection.transport.abort()
            finally:
                await self.leave(number)

    async def answer(self, number: int, message: dict[str, Any]) -> str:
        session, data = self.live[number], message["data"]
        if message["type"] == "reset":
            opened = await session.open(data["task"], data["seed"])
            return observation(opened.prompt[0].text, None, done=False)
        self.steps += 1
        try:
            return await self.step(number, ToolCall(data["tool_name"], data["arguments"]))
        except SessionError as error:
            return failure("EXECUTION_ERROR", str(error))

    async def step(self, number: int, call: ToolCall) -> str:
        result = await self.live[number].step(call)
        return observation(
            result.observation.text, result.reward, done=result.cause is not None, result=result
        )

    async def admit(self, number: int) -> str | None:
        return None

    async def leave(self, number: int) -> None:
        session = self.live.pop(number, None)
        if session is not None:
            await session.close()


class Stalls(Honest):
    """Stand still once, for two seconds."""

    async def step(self, number: int, call: ToolCall) -> str:
        if self.steps == 500:
            time.sleep(STALL_S)  # noqa: ASYNC251 - this is the fault
        return await super().step(number, call)


class AcceptsAndIgnores(Honest):
    """Accept every connection, and never answer more than some of them."""

    async def admit(self, number: int) -> str | None:
        if len(self.live) >= SOME:
            await asyncio.sleep(1_000)
        return None


class ServesInTurn(Honest):
    """Let every session in, but serve only some of them until others have left."""

    def __init__(self, environment: Environment[Any]) -> None:
        super().__init__(environment)
        self.places = asyncio.Semaphore(SOME)
        self.seated: set[int] = set()

    async def admit(self, number: int) -> str | None:
        await self.places.acquire()
        self.seated.add(number)
        return None

    async def leave(self, number: int) -> None:
        await super().leave(number)
        if number in self.seated:
            self.seated.discard(number)
            self.places.release()


class DropsSome(Honest):
    """Hang up on every twenty-fifth session in its first step: on 4 % of them."""

    async def step(self, number: int, call: ToolCall) -> str:
        if number % 25 == 24:
            raise HangUp
        return await super().step(number, call)


class SlowsDown(Honest):
    """Take longer for every step when there are more than some sessions."""

    async def step(self, number: int, call: ToolCall) -> str:
        if len(self.live) > SOME:
            await asyncio.sleep(1.0)
        return await super().step(number, call)


class Leaks(Honest):
    """Keep every fourth session after it was closed."""

    async def leave(self, number: int) -> None:
        if number % 4:
            await super().leave(number)


class AnswersWrongly(Honest):
    """Answer at once, and never do what was asked."""

    async def step(self, number: int, call: ToolCall) -> str:
        return observation("done", 0.0, done=False, result=StepResult(Observation.of("done")))


class MixesUp(Honest):
    """Play every eighth session's steps in the episode of the oldest one."""

    async def step(self, number: int, call: ToolCall) -> str:
        playing = (other for other, session in self.live.items() if session.episode is not None)
        return await super().step(min(playing) if number % 8 == 7 else number, call)


class AcceptsUnevenly(Honest):
    """Be four workers that admit sixteen sessions each, of which the kernel gives one half of all connections."""

    settings: ClassVar[dict[str, JSON]] = {"workers": WORKERS, "max_sessions_per_worker": PER_WORKER}
    shares = (0, 1, 0, 2, 0, 1, 0, 3)

    def __init__(self, environment: Environment[Any]) -> None:
        super().__init__(environment)
        self.held: Counter[int] = Counter()
        self.of: dict[int, int] = {}

    async def admit(self, number: int) -> str | None:
        worker = self.shares[number % len(self.shares)]
        if self.held[worker] >= PER_WORKER:
            return f"worker {worker + 1} of {WORKERS} admits {PER_WORKER} sessions"
        self.held[worker] += 1
        self.of[number] = worker
        return None

    async def leave(self, number: int) -> None:
        await super().leave(number)
        self.held[self.of.pop(number)] -= 1


class Capped(Honest):
    """Admit some sessions, as it says itself."""

    settings: ClassVar[dict[str, JSON]] = {"max_sessions": SOME}

    async def admit(self, number: int) -> str | None:
        return f"no more than {SOME} sessions" if len(self.live) >= SOME else None


class Dies(Honest):
    """End the process when there are more than some sessions."""

    async def admit(self, number: int) -> str | None:
        if len(self.live) > SOME:
            os._exit(3)
        return None


class ThreeThreads(Honest):
    """Carry out steps in three threads."""

    def __init__(self, environment: Environment[Any]) -> None:
        super().__init__(environment)
        self.threads = ThreadPoolExecutor(3)

    async def step(self, number: int, call: ToolCall) -> str:
        stepping = super().step(number, call)
        return await asyncio.get_running_loop().run_in_executor(self.threads, asyncio.run, stepping)


def observation(text: str, reward: float | None, *, done: bool, result: StepResult | None = None) -> str:
    data = {"observation": {"text": text}, "reward": reward, "done": done}
    return json.dumps(
        {"type": "observation", "data": data, **({"result": result.to_json()} if result else {})}
    )


def failure(code: str, message: str) -> str:
    return json.dumps({"type": "error", "data": {"message": message, "code": code}})


class FaultySession:
    """Be the framework's own client."""

    def __init__(self, connection) -> None:
        self._connection = connection
        self._total = 0.0

    async def open(self, task: str, seed: int) -> Opened:
        await self._ask({"type": "reset", "data": {"task": task, "seed": seed}})
        return Opened((), ())

    async def step(self, action: Action) -> StepResult:
        assert isinstance(action, ToolCall)
        call = {"type": "call_tool", "tool_name": action.name, "arguments": dict(action.arguments)}
        result = result_from_json((await self._ask({"type": "step", "data": call}))["result"])
        self._total = result.total
        return result

    async def public_state(self) -> JSON:
        return {}

    async def reported_return(self) -> float:
        return self._total

    async def close(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            await self._connection.send(json.dumps({"type": "close"}))
            await self._connection.wait_closed()

    async def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            await self._connection.send(json.dumps(message))
            answer: dict[str, Any] = json.loads(await self._connection.recv())
        except ConnectionClosed as error:
            raise SessionError("the connection is lost") from error
        if answer["type"] == "error":
            raise SessionError(f"{answer['data']['code']}: {answer['data']['message']}")
        return answer


class FaultyAdapter(ReferenceAdapter):
    """Serve with one of the servers above."""

    def __init__(self, kind: type[Honest]) -> None:
        self.name = kind.__name__
        self._kind = kind

    def features(self) -> Mapping[Feature, Support]:
        return dict.fromkeys(Feature, Support(Level.NATIVE))

    @asynccontextmanager
    async def serve(
        self, compiled: Environment[Any], /, *, host: str = "127.0.0.1", port: int = 0
    ) -> AsyncIterator[Endpoint]:
        server = self._kind(compiled)
        # It lies about nothing: what was accepted is not closed for being slow.
        async with serve(
            server.serve, host, port, compression=None, backlog=4096, ping_interval=None
        ) as listener:
            place = listener.sockets[0].getsockname()
            yield Endpoint(f"http://{place[0]}:{place[1]}", server.open_sessions, self._kind.settings)
            listener.close(close_connections=True)

    @asynccontextmanager
    async def connect(
        self, compiled: Environment[Any] | None, endpoint: Endpoint, /
    ) -> AsyncIterator[FaultySession]:  # type: ignore[override]
        assert endpoint.url is not None
        place = urlsplit(endpoint.url)
        try:
            connection = await connect(
                f"ws://{place.netloc}/ws", compression=None, ping_interval=None, close_timeout=1
            )
        except (OSError, InvalidHandshake) as error:
            raise SessionError(f"no connection: {error}") from error
        session = FaultySession(connection)
        try:
            yield session
        finally:
            # After a failure nobody says goodbye.
            connection.transport.abort()


KINDS = (Honest, *Honest.__subclasses__())
ADAPTERS = {kind.__name__: FaultyAdapter(kind) for kind in KINDS}
