"""A session over OpenEnv's own `GenericEnvClient`, seen as canonical sees sessions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, ClassVar, TypeVar
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from openenv.core.generic_client import GenericEnvClient
from websockets.exceptions import WebSocketException

from adapters.openenv.wire import TEXT_KEY, read_content, read_message
from canonical.adapter import Opened, SessionError
from canonical.content import JSON, ErrorCode, Observation
from canonical.step import NO_COMPONENTS, Cause, StepResult
from canonical.tool import ToolSpec
from canonical.transcript import Action

ResultT = TypeVar("ResultT")

STEP_KEYS = frozenset(
    {"tool_name", "result", "error", "error_code", "total", "components", "ending", "cause"}
)


class OpenEnvSession:
    """Be one WebSocket of OpenEnv's client, and the episode behind it.

    Once an answer is overdue or the connection is gone, the session is lost: OpenEnv's client would otherwise pair the
    late answer with the next request, or go on with a new session that has no episode.

    Args:
        client: The client, not yet connected.
        receive_timeout: Seconds after which the client gives up waiting for an answer; for the message only.
    """

    seed_chooses: ClassVar[bool] = True

    def __init__(self, client: GenericEnvClient, receive_timeout: float) -> None:
        self._client = client
        self._receive_timeout = receive_timeout
        self._lost: str | None = None
        self._tools: tuple[ToolSpec, ...] = ()
        self._is_open = False
        self._last: JSON = None
        self._paid = 0.0
        self._is_over = False

    async def connect(self) -> None:
        """Connect, and ask for the tools: a server without room accepts the connection and refuses the first request.

        Raises:
            SessionError: The server cannot be reached, or refused the session.
        """
        await self._ask(self._client.connect)
        self._tools = await self._list_tools()

    async def _list_tools(self) -> tuple[ToolSpec, ...]:
        listed = await self._ask(self._client.step, {"type": "list_tools"})
        try:
            _check_keys(listed.observation, {"tools"})
            for tool in listed.observation["tools"]:
                _check_keys(tool, {"name", "description", "input_schema"})
            return tuple(
                ToolSpec(tool["name"], tool["description"], tool["input_schema"])
                for tool in listed.observation["tools"]
            )
        except (KeyError, TypeError, ValueError) as error:
            raise _malformed("the list of tools", error) from error

    async def open(self, task: str, seed: int) -> Opened:
        """Start an episode of a task; one that is still open is closed by the server.

        Raises:
            SessionError: The server refused or failed, or the session is lost.
        """
        return await self._begin(seed, task=task)

    async def open_at(self, _compiled: Any, split: str, index: int | None, seed: int, /) -> Opened:
        """Start an episode by `reset` with a split and an index, or with a split and a seed alone.

        Raises:
            SessionError: The server refused or failed, or the session is lost.
        """
        place = {} if index is None else {"index": index}
        return await self._begin(seed, split=split, **place)

    async def _begin(self, seed: int, **named: str | int) -> Opened:
        answer = await self._ask(self._client.reset, seed=seed, **named)
        self._last = answer.observation
        self._paid, self._is_over = 0.0, False
        try:
            _check_keys(answer.observation, {"prompt", "task", "seed"})
            prompt = tuple(map(read_message, answer.observation["prompt"]))
            begun = (
                answer.observation["task"],
                answer.observation["seed"],
                answer.done,
                answer.reward or 0.0,
            )
            if begun != (named.get("task", begun[0]), seed, False, 0.0):
                raise ValueError(f"task, seed, done and reward are {begun}")  # noqa: TRY301 - one way out
        except (KeyError, TypeError, ValueError) as error:
            raise _malformed("the answer to reset", error) from error
        self._is_open = True
        return Opened(prompt, self._tools)

    async def step(self, action: Action) -> StepResult:
        """Carry out an action.

        Raises:
            SessionError: The server refused or failed, or the session is lost.
        """
        answer = await self._ask(self._client.step, write_action(action))
        self._last = answer.observation
        try:
            result = _read_result(action, answer.observation, answer.reward, answer.done)
        except (KeyError, TypeError, ValueError) as error:
            raise _malformed("the answer to step", error) from error
        self._paid += answer.reward
        self._is_over = answer.done
        return result

    async def walk(self, split: str) -> list[str]:
        """Return the ids of the tasks of a split, by resets to one place after the other until one is refused.

        Raises:
            SessionError: There is no such split, or the session is lost.
        """
        found: list[str] = []
        while True:
            try:
                answer = await self._ask(self._client.reset, split=split, index=len(found), seed=0)
            except SessionError:
                if self._lost is not None or not found:
                    raise
                return found
            found.append(answer.observation["task"])

    async def public_state(self) -> JSON:
        """Return OpenEnv's state of the episode, and the last observation with all its fields.

        Raises:
            SessionError: The server refused or failed, or the session is lost.
        """
        return {"state": await self._ask(self._client.state), "observation": self._last}

    async def reread(self, _compiled: Any, /) -> None:
        """Ask for the tools again, now that there is an episode: they are those that were listed before it.

        Raises:
            SessionError: They are others, the server failed, or the session is lost.
        """
        if not self._is_open:
            return
        tools = await self._list_tools()
        if tools != self._tools:
            raise SessionError(
                f"the tools that are listed during the episode are {[tool.to_json() for tool in tools]}, and those "
                f"that were listed before it {[tool.to_json() for tool in self._tools]}"
            )

    async def reported_return(self) -> float:
        """Return the sum of the rewards that the client returned, as trainers of OpenEnv add them up.

        Raises:
            SessionError: The episode is not over.
        """
        if not self._is_over:
            raise SessionError("the episode is not over, so that it has no return yet")
        return self._paid

    async def close(self) -> None:
        """Close the connection, on which the server frees the episode."""
        self._lost = "it is closed"
        await self._client.close()

    async def _ask(
        self, request: Callable[..., Awaitable[ResultT]], *arguments: Any, **keywords: Any
    ) -> ResultT:
        if self._lost is not None:
            raise SessionError(f"this session cannot be used any more: {self._lost}; connect a new one")
        try:
            return await request(*arguments, **keywords)
        except TimeoutError as error:
            self._lost = f"the server did not answer within {self._receive_timeout:g} s"
            raise SessionError(self._lost) from error
        except (OSError, WebSocketException) as error:
            self._lost = f"the connection is lost: {str(error) or type(error).__name__}"
            raise SessionError(self._lost) from error
        except asyncio.CancelledError:
            self._lost = "an earlier request was abandoned before its answer came"
            raise
        except (RuntimeError, ValueError) as error:
            # The server's own error, which its session survives, or a request that JSON cannot carry.
            raise SessionError(str(error)) from error


def read_tasks(url: str, split: str) -> list[str] | None:
    """Return the ids of the tasks of a split from OpenEnv's Task API, or None when the server has none.

    Raises:
        SessionError: There is no such split, or the server cannot be reached.
    """
    try:
        (name,) = fetch(f"{url}/list_environments")
        listed = fetch(f"{url}/{name}/tasks", {"split": split})
        return [task["id"] for task in listed["tasks"]]
    except HTTPError as error:
        with error:
            detail = error.read().decode("utf-8", "replace")
        if error.code == 404 and error.url.endswith("/list_environments"):
            return None
        raise SessionError(f"the server refused the tasks of split {split}: {error.code} {detail}") from error
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise SessionError(f"the server's tasks of split {split} cannot be read: {error}") from error


def fetch(url: str, body: dict[str, JSON] | None = None) -> Any:
    """Return what a server answers by HTTP, to a POST where there is a body."""
    # The clients of OpenEnv have no method for its Task API and its schemas; its documentation asks like this.
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, {"Content-Type": "application/json"})  # noqa: S310 - the address of a server of one's own
    with urlopen(request, timeout=60) as answer:  # noqa: S310
        return json.load(answer)


def write_action(action: Action) -> dict[str, Any]:
    """Return an action as OpenEnv's client sends it.

    Text goes into the metadata of a `CallToolAction`, and the episode on the server reads it.
    """
    if isinstance(action, str):
        return {"type": "call_tool", "tool_name": "", "arguments": {}, "metadata": {TEXT_KEY: action}}
    return {"type": "call_tool", "tool_name": action.name, "arguments": dict(action.arguments)}


def _check_keys(seen: Mapping[str, Any], expected: AbstractSet[str]) -> None:
    """Refuse what a model may be shown beside what is read, metadata among it: this project declares none."""
    if more := seen.keys() - expected - {"metadata"}:
        raise ValueError(f"it has {', '.join(sorted(more))} too")
    if metadata := seen.get("metadata"):
        raise ValueError(f"its metadata is {metadata!r}, and there is none to be")


def _read_result(action: Action, seen: Any, reward: Any, done: Any) -> StepResult:
    _check_keys(seen, STEP_KEYS)
    error, cause = seen["error_code"], None if seen["cause"] is None else Cause(seen["cause"])
    ending = None if cause is None else cause.ending
    if done != (cause is not None) or seen["ending"] != ending:
        raise ValueError(
            f"done is {done} and ending is {seen['ending']}, which does not fit the cause {cause}"
        )
    if not isinstance(reward, int | float):
        raise ValueError(f"the reward is {reward!r}")  # noqa: TRY004 - a wrong value in a frame, not a wrong argument
    observation = Observation(read_content(seen["result"]), None if error is None else ErrorCode(error))
    shown = None if seen["error"] is None else seen["error"]["message"]
    if shown != (None if error is None else _sendable(observation.text)):
        raise ValueError(f"the message of its error is {shown!r}, and the result says {observation.text!r}")
    called = "" if isinstance(action, str) else action.name
    if _sendable(called) != seen["tool_name"]:
        raise ValueError(f"the tool that it names is {seen['tool_name']!r}, and {called!r} was called")
    return StepResult(
        observation, float(reward), float(seen["total"]), cause, seen["components"] or NO_COMPONENTS
    )


def _sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _malformed(what: str, error: Exception) -> SessionError:
    reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
    return SessionError(f"{what} is not what a compiled environment sends: {reason}")
