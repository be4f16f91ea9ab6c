"""The source's end of the bridge: each connection is a session of its own."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from canonical.adapter import Session, SessionError
from canonical.bridge.source import Source, SuggestingSession
from canonical.bridge.wire import LINE_LIMIT, split_address, write_frame
from canonical.step import StepResult
from canonical.transcript import action_from_json

log = logging.getLogger(__name__)

_BACKLOG = 4096


@asynccontextmanager
async def lend(source: Source, address: str) -> AsyncIterator[str]:
    """Let others play a source at an address, until the context is left.

    Args:
        source: The source.
        address: The path of a Unix socket, or `host:port`; port 0 picks a free one.

    Yields:
        The address, as `SCHEME` takes it.

    Raises:
        OSError: The address is taken or not allowed.
    """
    under_way: set[asyncio.Task[None]] = set()
    facts = write_frame({"facts": source.facts.to_json()})

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio runs it as one
        under_way.add(task)
        try:
            await _converse(source, facts, reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass  # whoever played is gone, or everything ends
        finally:
            under_way.discard(task)
            writer.close()

    where = split_address(address)
    if isinstance(where, str):
        server = await asyncio.start_unix_server(converse, where, limit=LINE_LIMIT, backlog=_BACKLOG)
        bound = where
    else:
        server = await asyncio.start_server(converse, *where, limit=LINE_LIMIT, backlog=_BACKLOG)
        host, port = server.sockets[0].getsockname()[:2]
        bound = f"{host}:{port}"
    try:
        yield bound
    finally:
        server.close()
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


async def _converse(
    source: Source, facts: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    session: Session | None = None
    async with AsyncExitStack() as cleanup:
        while line := await reader.readline():
            try:
                request = json.loads(line)
                if request == {"facts": True}:
                    answer = facts
                else:
                    if session is None:
                        session = await cleanup.enter_async_context(source.connect())
                    answer = write_frame(await _answer(session, request))
            except SessionError as error:
                answer = write_frame({"failed": str(error)})
            except (ValueError, KeyError, TypeError) as error:
                log.warning("a request or an answer could not be carried: %s", type(error).__name__)
                answer = write_frame({"failed": f"the source's answer cannot be carried: {error}"})
            except (SystemExit, Exception) as error:
                # What one session does must not end the others.
                log.exception("a session has failed")
                answer = write_frame({"failed": f"it raised {type(error).__name__}: {error}"})
            writer.write(answer)
            await writer.drain()


async def _answer(session: Session, request: dict[str, Any]) -> dict[str, Any]:
    match request:
        case {"open": {"task": str(task), "seed": int(seed)}}:
            opened = await session.open(task, seed)
            return {
                "opened": {
                    "prompt": [message.to_json() for message in opened.prompt],
                    "tools": [tool.to_json() for tool in opened.tools],
                }
            }
        case {"step": action}:
            result = await session.step(action_from_json(action))
            _refuse_no_number(result)
            return {"stepped": result.to_json()}
        case {"state": True}:
            return {"state": await session.public_state()}
        case {"suggest": True}:
            return {"suggested": await session.suggest() if isinstance(session, SuggestingSession) else None}
        case {"return": True}:
            return {"return": await session.reported_return()}
        case _:
            raise SessionError(f"this is no request to a source: {sorted(request)}")


def _refuse_no_number(result: StepResult) -> None:
    for number in (result.reward, result.total, *result.components.values()):
        if not math.isfinite(number):
            raise SessionError(f"it paid {number!r}, and a reward is a finite number")
