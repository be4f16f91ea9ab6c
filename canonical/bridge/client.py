"""The player's end of the bridge: a session whose episode lives in the source's process."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

from canonical.adapter import Opened, SessionError
from canonical.bridge.source import SourceFacts, facts_from_json
from canonical.bridge.wire import LINE_LIMIT, split_address, write_frame
from canonical.content import JSON
from canonical.step import StepResult
from canonical.tool import ToolSpec
from canonical.transcript import Action, message_from_json, result_from_json

PATIENCE_S = 600.0
"""How long a source may take for one action, in seconds: as long as the clients of the adapters wait."""

_FACTS_PATIENCE_S = 60.0


class SourceGoneError(SessionError):
    """Report that a source ended, or cannot be reached, so that an episode of it cannot go on.

    Attributes:
        reason: How that was noticed, without the address, which is nobody's business who plays.
    """

    def __init__(self, address: str, what: str, reason: str) -> None:
        super().__init__(f"{what.format(address)}: {reason}")
        self.reason = reason


def read_facts(address: str) -> SourceFacts:
    """Ask a source what it is.

    Raises:
        SourceGoneError: There is no source at the address.
    """
    where = split_address(address)
    try:
        with closing(_dial(where)) as line, line.makefile("rwb") as file:
            file.write(write_frame({"facts": True}))
            file.flush()
            answer = json.loads(file.readline())
        return facts_from_json(answer["facts"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unreachable(address, error) from error


def _dial(where: tuple[str, int] | str) -> socket.socket:
    if isinstance(where, tuple):
        return socket.create_connection(where, timeout=_FACTS_PATIENCE_S)
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(_FACTS_PATIENCE_S)
    try:
        line.connect(where)
    except OSError:
        line.close()
        raise
    return line


def _unreachable(address: str, error: Exception) -> SourceGoneError:
    return SourceGoneError(address, "there is no source at {}", str(error) or type(error).__name__)


class BridgeSession:
    """Be one session of a source. Create it with `connect_source` or `dial_source`."""

    def __init__(self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._address = address
        self._reader, self._writer = reader, writer

    async def open(self, task: str, seed: int) -> Opened:
        """Start an episode of a task.

        Raises:
            SessionError: The source refused, failed or is gone.
        """
        value = await self._ask("opened", {"open": {"task": task, "seed": seed}})
        return Opened(
            tuple(message_from_json(message) for message in value["prompt"]),
            tuple(ToolSpec(**tool) for tool in value["tools"]),
        )

    async def step(self, action: Action) -> StepResult:
        """Carry out an action.

        Raises:
            SessionError: The source refused, failed or is gone.
        """
        sent = action if isinstance(action, str) else action.to_json()
        return result_from_json(await self._ask("stepped", {"step": sent}))

    async def public_state(self) -> JSON:
        """Return whatever else the source lets a client read.

        Raises:
            SessionError: The source failed or is gone.
        """
        value: JSON = await self._ask("state", {"state": True})
        return value

    async def reported_return(self) -> float:
        """Return the return as the source reports it.

        Raises:
            SessionError: The episode is not over, or the source failed or is gone.
        """
        return float(await self._ask("return", {"return": True}))

    async def suggest(self) -> str | None:
        """Return a random action that the source proposes, or None where it proposes none.

        Raises:
            SessionError: The source is gone.
        """
        value: str | None = await self._ask("suggested", {"suggest": True})
        return value

    async def close(self) -> None:
        """End the episode and free it. Closing twice is harmless."""
        self._writer.close()

    async def _ask(self, answer: str, request: Any) -> Any:
        try:
            self._writer.write(write_frame(request))
            async with asyncio.timeout(PATIENCE_S):
                await self._writer.drain()
                line = await self._reader.readline()
        except TimeoutError:
            self._writer.close()
            raise self._gone(f"it did not answer within {PATIENCE_S:g} s") from None
        except (OSError, ValueError, RuntimeError) as error:
            raise self._gone(str(error)) from error
        if not line:
            raise self._gone("it closed the connection")
        value = json.loads(line)
        if "failed" in value:
            raise SessionError(value["failed"])
        if answer not in value:
            raise SessionError(f"the source answered {sorted(value)}, and not {answer!r}")
        return value[answer]

    def _gone(self, reason: str) -> SourceGoneError:
        return SourceGoneError(self._address, "the source at {} is gone", reason)


async def dial_source(address: str) -> BridgeSession:
    """Open a session with a source; whoever asked for it closes it.

    Raises:
        SourceGoneError: There is no source at the address.
    """
    where = split_address(address)
    try:
        if isinstance(where, str):
            reader, writer = await asyncio.open_unix_connection(where, limit=LINE_LIMIT)
        else:
            reader, writer = await asyncio.open_connection(*where, limit=LINE_LIMIT)
    except OSError as error:
        raise _unreachable(address, error) from error
    return BridgeSession(address, reader, writer)


@asynccontextmanager
async def connect_source(address: str) -> AsyncIterator[BridgeSession]:
    """Open a session with a source; leaving the context frees it.

    Raises:
        SourceGoneError: There is no source at the address.
    """
    session = await dial_source(address)
    try:
        yield session
    finally:
        await session.close()
