"""A session over the official asynchronous client of ORS, seen as canonical sees sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import asdict
from typing import Any, TypeVar

from adapters.ors.client import Client
from adapters.ors.wire import CHANNEL, make_channel, read_blocks, read_prompt, write_action
from canonical.adapter import Opened, SessionError
from canonical.content import JSON, ErrorCode, Observation
from canonical.step import NO_COMPONENTS, Cause, StepResult
from canonical.tool import ToolSpec
from canonical.transcript import Action

ResultT = TypeVar("ResultT")


class OrsSession:
    """Be one client of ORS, and the session that it holds.

    Args:
        client: The client, not yet connected.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._session: Any = None
        self._channel = make_channel()
        self._last: JSON = None
        self._return: float | None = None
        self._is_over = False
        self._under_way: set[asyncio.Future[Any]] = set()
        self._is_closed = False

    async def connect(self) -> None:
        """Reach the server.

        Raises:
            SessionError: The server cannot be reached.
        """
        await self._ask(self._client.connect())

    async def open(self, task: str, seed: int) -> Opened:
        """Start an episode of a task in a new session of ORS; one that is still open is ended.

        Raises:
            SessionError: The server refused or failed.
        """
        self._check()
        await self._leave()
        self._session = self._client.session({"id": task, "seed": seed, CHANNEL: self._channel})
        try:
            await self._ask(self._session.__aenter__())
            shown: list[Any] = [asdict(block) for block in await self._ask(self._session.get_prompt())]
            listed = await self._ask(self._session.list_tools())
        except SessionError:
            if not self._is_closed:
                await self._leave()
            raise
        self._last = {"prompt": shown}
        self._return, self._is_over = None, False
        try:
            tools = tuple(ToolSpec(tool.name, tool.description, tool.input_schema) for tool in listed)
            return Opened(read_prompt(shown), tools)
        except (KeyError, TypeError, ValueError) as error:
            raise _malformed("the prompt", error) from error

    async def step(self, action: Action) -> StepResult:
        """Carry out an action.

        Raises:
            SessionError: The server refused or failed.
        """
        self._check()
        if self._session is None:
            raise SessionError("open an episode before stepping")
        name, arguments = write_action(action, self._channel)
        output = asdict(await self._ask(self._session.call_tool(name, arguments)))
        self._last = output
        try:
            result = _read_output(output)
        except (KeyError, TypeError, ValueError) as error:
            raise _malformed("the answer to a call", error) from error
        if output["reward"] is not None:
            keeps_last = "paid" in output["metadata"]
            self._return = output["reward"] + (0.0 if keeps_last else self._return or 0.0)
        self._is_over = self._is_over or output["finished"]
        return result

    async def list_tasks(self, split: str) -> list[str]:
        """Return the ids of the tasks of a split.

        Raises:
            SessionError: There is no such split, or the server failed.
        """
        listed = await self._ask(self._client.list_tasks(split))
        try:
            return [task.task_spec["id"] for task in listed]
        except (AttributeError, KeyError, TypeError) as error:
            raise _malformed("the list of tasks", error) from error

    async def public_state(self) -> JSON:
        """Return the last answer with everything in it; a client of ORS can read nothing else of an episode."""
        return self._last

    async def reported_return(self) -> float:
        """Return the sum of the rewards that are not null, or the last of them where it was compiled for that reading.

        Raises:
            SessionError: The episode is not over, or no answer had a reward.
        """
        if not self._is_over:
            raise SessionError("the episode is not over, so that it has no return yet")
        if self._return is None:
            raise SessionError("no answer to a call had a reward")
        return self._return

    async def close(self) -> None:
        """End the session of ORS, on which the server frees the episode, and close the client."""
        self._is_closed = True
        # The client leaves requests waiting for ever whose connection it has closed itself.
        while self._under_way:
            request = self._under_way.pop()
            request.cancel()
            await asyncio.wait({request})
        await self._leave()
        await self._client.close()

    def _check(self) -> None:
        if self._is_closed:
            raise SessionError("this session is closed; connect a new one")

    async def _leave(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            # Also for one that was not entered to its end: the server may have made it already.
            await session.__aexit__(None, None, None)

    async def _ask(self, answer: Coroutine[Any, Any, ResultT]) -> ResultT:
        request = asyncio.ensure_future(answer)
        self._under_way.add(request)
        try:
            return await request
        except asyncio.CancelledError:
            if not self._is_closed or _is_cancelled():
                raise
            raise SessionError("this session was closed before the answer came") from None
        except Exception as error:
            # The two clients have no common kind of error, and let those of their HTTP library through.
            raise SessionError(str(error) or type(error).__name__) from error
        finally:
            self._under_way.discard(request)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _read_output(output: dict[str, Any]) -> StepResult:
    metadata, reward = output["metadata"], output["reward"]
    cause = Cause(metadata["cause"]) if "cause" in metadata else None
    error = ErrorCode(metadata["error"]) if "error" in metadata else None
    ending = None if cause is None else cause.ending.value
    if output["finished"] != (cause is not None) or metadata.get("ending") != ending:
        raise ValueError(
            f"finished is {output['finished']} and ending is {metadata.get('ending')}, which does not fit {cause}"
        )
    if reward is None and error is not ErrorCode.EPISODE_OVER:
        raise ValueError("a step of an episode that goes on has no reward")
    return StepResult(
        Observation(read_blocks(output["blocks"]), error),
        float(metadata.get("paid", reward) or 0.0),
        float(metadata["total"]),
        cause,
        metadata.get("components") or NO_COMPONENTS,
    )


def _malformed(what: str, error: Exception) -> SessionError:
    reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
    return SessionError(f"{what} is not what a compiled environment sends: {reason}")
