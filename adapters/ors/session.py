"""A session over the official asynchronous client of ORS, seen as canonical sees sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, TypeVar

from adapters.ors.client import Client
from adapters.ors.wire import CHANNEL, Reading, make_channel, read_blocks, read_prompt, write_action
from canonical.adapter import Opened, SessionError
from canonical.content import JSON, ErrorCode, Message, Observation
from canonical.step import NO_COMPONENTS, Cause, StepResult
from canonical.tool import ToolSpec
from canonical.transcript import Action

ResultT = TypeVar("ResultT")


class OrsSession:
    """Be one client of ORS, and the session that it holds.

    Args:
        client: The client, not yet connected.
        reading: How the trainer reads rewards; the server must have been compiled for it.
    """

    seed_chooses: ClassVar[bool] = False

    def __init__(self, client: Client, reading: Reading = "sum") -> None:
        self._client = client
        self._reading = reading
        self._opened: Opened | None = None
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
        return await self._begin(
            lambda: self._client.session({"id": task, "seed": seed, CHANNEL: self._channel})
        )

    async def open_at(self, _compiled: Any, split: str, index: int | None, seed: int, /) -> Opened:
        """Start an episode by split and index, which leave no room for a seed; with another than 0, by the listing's row.

        Raises:
            SessionError: The server refused or failed.
        """
        place = index or 0
        if seed == 0:
            return await self._begin(lambda: self._client.session_at(split, place))
        listed = await self._ask(self._client.list_tasks(split))
        try:
            row = listed[place].task_spec
            if row["index"] != place:
                raise ValueError(f"the row at {place} says {row['index']}")  # noqa: TRY301 - one way out
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise _malformed("the list of tasks", error) from error
        return await self._begin(lambda: self._client.session({**row, "seed": seed, CHANNEL: self._channel}))

    async def _begin(self, make: Callable[[], Any]) -> Opened:
        self._check()
        await self._leave()
        self._opened = None
        self._session = make()
        try:
            await self._ask(self._session.__aenter__())
            shown = await self._prompt()
            listed = await self._ask(self._session.list_tools())
        except SessionError:
            if not self._is_closed:
                await self._leave()
            raise
        self._last = {"prompt": shown}
        self._return, self._is_over = None, False
        try:
            opened = self._read_opened(shown, listed)
        except (KeyError, TypeError, ValueError) as error:
            raise _malformed("the prompt", error) from error
        self._opened = opened
        return opened

    async def _prompt(self) -> list[Any]:
        return [asdict(block) for block in await self._ask(self._session.get_prompt())]

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
            result = _read_output(output, self._reading)
        except (KeyError, TypeError, ValueError) as error:
            raise _malformed("the answer to a call", error) from error
        if output["reward"] is not None:
            self._return = output["reward"] + (0.0 if self._reading == "last" else self._return or 0.0)
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

    async def reread(self, _compiled: Any, /) -> None:
        """Ask for the prompt and the tools again, in each of the client's ways: they are what they were.

        Raises:
            SessionError: They are not, or the server failed.
        """
        opened, session = self._opened, self._session
        if opened is None or session is None:
            return
        places: dict[str, tuple[Any, Any]] = {
            "the session's tools": (_read_tools(await self._ask(session.list_tools())), opened.tools),
            "the environment's tools": (
                _read_tools(await self._ask(self._client.list_tools())),
                opened.tools,
            ),
        }
        if hasattr(session, "terminal_tool"):
            places["the terminal tool"] = (await self._ask(session.terminal_tool()), None)
        try:
            places["the prompt"] = (read_prompt(await self._prompt()), opened.prompt)
            if hasattr(session, "get_messages"):
                said = [asdict(message) for message in await self._ask(session.get_messages())]
                places["the messages"] = (tuple(map(_read_said, said)), tuple(map(_as_said, opened.prompt)))
        except (KeyError, TypeError, ValueError) as error:
            raise _malformed("the prompt, asked for again,", error) from error
        for place, (shown, expected) in places.items():
            if shown != expected:
                raise SessionError(f"{place}: at the end they are {shown!r}, at the beginning {expected!r}")

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

    def _read_opened(self, shown: list[Any], listed: Sequence[Any]) -> Opened:
        return Opened(read_prompt(shown), _read_tools(listed))

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


def _read_tools(listed: Sequence[Any]) -> tuple[ToolSpec, ...]:
    return tuple(ToolSpec(tool.name, tool.description, tool.input_schema) for tool in listed)


def _read_said(said: Mapping[str, Any]) -> Message:
    if said.get("detail") is not None:
        raise ValueError("a message has role and content, and this one a detail too")
    return Message(said["role"], read_blocks(said["blocks"]))


def _as_said(message: Message) -> Message:
    # ORS has no role for what a tool has said before.
    return message if message.role != "tool" else Message("user", message.blocks)


def _read_output(output: dict[str, Any], reading: Reading) -> StepResult:
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
    paid = reward
    if reading == "last" and reward is not None:
        paid = metadata["paid"]
        if reward != metadata["total"]:
            raise ValueError(
                f"the reward is {reward!r}, which is not the return so far, {metadata['total']!r}"
            )
    elif "paid" in metadata:
        raise ValueError("a payment is named beside the reward, as for trainers that take the last one")
    return StepResult(
        Observation(read_blocks(output["blocks"]), error),
        float(paid or 0.0),
        float(metadata["total"]),
        cause,
        metadata.get("components") or NO_COMPONENTS,
    )


def _malformed(what: str, error: Exception) -> SessionError:
    reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
    return SessionError(f"{what} is not what a compiled environment sends: {reason}")
