"""A session over NeMo Gym's own `ServerClient`, driven as its agents drive it, seen as canonical sees sessions."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from http.cookies import SimpleCookie
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

from adapters.nemo_gym.connection import ABANDONED, Connection, Requests
from adapters.nemo_gym.project import make_row, write_project
from adapters.nemo_gym.wire import (
    RESPONSE,
    RESULT_TYPE,
    as_input,
    read_message,
    read_result,
    read_row,
    read_tool,
    sendable,
    write_action,
    write_input,
    write_item,
    write_json,
    write_output,
)
from canonical.adapter import Opened, SessionError
from canonical.content import JSON
from canonical.environment import Environment
from canonical.episode import StartError
from canonical.step import StepResult
from canonical.transcript import Action


class NeMoGymSession:
    """Be one rollout: a cookie, and the episode that it names.

    Args:
        connection: The way to the server.
        receive_timeout: Seconds after which an answer is overdue. NeMo Gym itself waits for ever.
    """

    seed_chooses: ClassVar[bool] = False

    def __init__(self, connection: Connection, receive_timeout: float) -> None:
        self._connection = connection
        self._receive_timeout = receive_timeout
        self._requests = Requests(connection, receive_timeout)
        self._is_closed = False
        self._seeding: asyncio.Future[Opened] | None = None
        self._seeded: dict[str, Any] | None = None
        self._opened: Opened | None = None
        self._played: list[tuple[Action, StepResult]] = []
        self._output: list[dict[str, JSON]] = []
        self._last: StepResult | None = None
        self._has_reward = True

    async def open(self, task: str, seed: int) -> Opened:
        """Start an episode of a task in a session of its own; one that is still open is verified first.

        Raises:
            SessionError: The server refused or failed, or the session is lost.
        """
        self._requests.check()
        await self._check_verified()
        # Shielded, because the server makes the episode all the same, and only its answer says how to free it.
        seeding = self._seeding = asyncio.ensure_future(self._seed(task, seed))
        try:
            opened = await asyncio.shield(seeding)
        except asyncio.CancelledError:
            self._requests.lost = ABANDONED
            raise
        self._requests.check()
        return opened

    async def open_at(self, compiled: Any, split: str, index: int | None, seed: int, /) -> Opened:
        """Start the episode that the row at a place of a split's file names.

        Raises:
            SessionError: There is no such row, or the server refused or failed.
        """
        if compiled is None:
            raise SessionError("the files of rows are written from the environment, which is not known here")
        try:
            row = (await asyncio.to_thread(_rows, compiled.environment, seed))[split][index or 0]
        except (IndexError, KeyError) as error:
            raise SessionError(f"there is no row {index} of split {split}") from error
        return await self.open(*row)

    async def _seed(self, task: str, seed: int) -> Opened:
        row = {"task": task, "seed": seed, "verify_key": secrets.token_hex(16)}
        body = await self._ask("/seed_session", "application/json", write_json(row))
        try:
            seeded = json.loads(body)
            opened = Opened(
                tuple(map(read_message, seeded["prompt"])),
                tuple(read_tool(tool) for tool in seeded["tools"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise _malformed("the answer to /seed_session", error) from error
        self._seeded = {**row, "answer": seeded}
        self._output, self._last, self._has_reward = [], None, True
        self._opened, self._played = opened, []
        return opened

    async def step(self, action: Action) -> StepResult:
        """Carry out an action.

        Raises:
            SessionError: The server refused or failed, or the session is lost.
        """
        self._requests.check()
        self._has_reward = False
        body = await self._ask(*write_action(action))
        try:
            result = read_result(body)
        except (KeyError, TypeError, ValueError) as error:
            raise _malformed("the answer to a call", error) from error
        self._has_reward = True
        self._last = result
        self._played.append((action, result))
        self._output += _trajectory(action, result, len(self._output))
        return result

    async def reread(self, compiled: Any, /) -> None:
        """Play the episode a second time as an agent of NeMo Gym does: from a row, and with the answers that agents get.

        An agent shows its model what the row says, not the answer to the seed, and the plain text of each answer. Where
        episodes are dear, the row is read all the same, and an agent's call is made in this episode once it is over.

        Raises:
            SessionError: A model would read something else than this session, or the server failed.
        """
        opened, seeded = self._opened, self._seeded
        if opened is None or seeded is None:
            return
        row = {"task": seeded["task"], "seed": seeded["seed"], "verify_key": secrets.token_hex(16)}
        if compiled is not None:
            row |= await _row(compiled, seeded["task"], seeded["seed"], opened)
            if compiled.environment.dear:
                await self._call_as_agent()
                return
        agent = NeMoGymSession(self._connection, self._receive_timeout)
        body = await agent._ask("/seed_session", "application/json", write_json(row), accept=None)
        agent._seeded = {**row, "answer": json.loads(body)}
        try:
            for number, (action, result) in enumerate(self._played):
                body = await agent._ask(*write_action(action), accept=None)
                shown, expected = body.decode("utf-8", "replace"), sendable(result.observation.text)
                if shown != expected:
                    raise SessionError(
                        f"an agent reads {shown!r} as the answer to call {number}, and not {expected!r}"
                    )
                agent._output += _trajectory(action, result, len(agent._output))
            agent._last = self._last
        finally:
            await agent._check_verified()

    async def _call_as_agent(self) -> None:
        """Repeat the last call where it changes nothing any more, with either kind of answer.

        Raises:
            SessionError: An agent reads something else, or the server failed.
        """
        if self._last is None or self._last.cause is None:
            return
        request = write_action(self._played[-1][0])
        expected = sendable(read_result(await self._ask(*request)).observation.text)
        shown = (await self._ask(*request, accept=None)).decode("utf-8", "replace")
        if shown != expected:
            raise SessionError(f"an agent reads {shown!r} after the end, and not {expected!r}")

    async def public_state(self) -> JSON:
        """Return what a client can read of the episode: the answer to the seed, the last result, and the cookie's content."""
        return {
            "seeded": None if self._seeded is None else self._seeded["answer"],
            "result": None if self._last is None else self._last.to_json(),
            "cookies": [_decode(morsel.value) for morsel in self._requests.cookies.values()],
        }

    async def reported_return(self) -> float:
        """Return the reward that `/verify` answers with. It frees the episode, so that no step follows.

        Raises:
            SessionError: The episode is not over, or `/verify` refuses to say any reward.
        """
        if self._last is None or self._last.cause is None:
            raise SessionError("the episode is not over, so that it has no return yet")
        self._requests.check()
        verified = await self._verify()
        if verified is None:
            raise SessionError("the episode is verified already")
        return verified

    async def close(self) -> None:
        """Verify the episode, which frees it, and compare the verified reward with the return of the steps.

        An episode of which a request was given up is verified too: nothing else would tell the server that it is over.

        Raises:
            SessionError: The episode is over and `/verify` says another reward than its steps, or refuses to say any.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._requests.lost = self._requests.lost or "it is closed"
        if self._seeding is not None:
            await asyncio.wait({self._seeding})
        if not self._requests.is_gone:
            await self._check_verified()

    async def _check_verified(self) -> None:
        last, verified = self._last, await self._verify()
        if verified is not None and last is not None and last.cause is not None and verified != last.total:
            raise SessionError(f"/verify says {verified!r}, the steps paid {last.total!r}")

    async def _verify(self) -> float | None:
        seeded, self._seeded = self._seeded, None
        if seeded is None:
            return None
        tools, prompt = seeded["answer"]["tools"], seeded["answer"]["prompt"]
        asked = {
            "responses_create_params": {
                "input": [write_input(message) for message in prompt],
                "tools": tools,
            },
            "response": {**RESPONSE, "output": [*self._output]},
            "task": seeded["task"],
            "seed": seeded["seed"],
            "verify_key": seeded["verify_key"],
        }
        try:
            answer = json.loads(await self._ask("/verify", "application/json", write_json(asked)))
        except SessionError:
            # Nothing is left to verify when the server is gone, or when it has said before that there is no reward.
            if self._has_reward and not self._requests.is_gone:
                raise
            return None
        finally:
            self._requests.cookies = SimpleCookie()
        try:
            _check_answer(answer, asked, self._last)
            return float(answer["reward"])
        except (KeyError, TypeError, ValueError) as error:
            raise _malformed("the answer to /verify", error) from error

    async def _ask(
        self, path: str, media_type: str, body: bytes, *, accept: str | None = RESULT_TYPE
    ) -> bytes:
        answer = await self._requests.post(path, media_type, body, accept=accept)
        return answer.accepted()


_writing = Lock()


def _rows(environment: Environment[Any], seed: int) -> Mapping[str, list[tuple[str, int]]]:
    # Sessions that ask at the same time wait for the first of them, which starts an episode for each row.
    with _writing:
        return _written_rows(environment, seed)


@lru_cache(maxsize=16)
def _written_rows(environment: Environment[Any], seed: int) -> Mapping[str, list[tuple[str, int]]]:
    """Return task and seed of every row of the files that are written for an environment, by split."""
    with tempfile.TemporaryDirectory(prefix="rosetta-rows-") as folder:
        data = write_project(environment, environment.name, Path(folder), seed=seed) / "data"
        return {
            path.stem: [
                (row["task"], row["seed"]) for row in map(json.loads, path.read_text("utf-8").splitlines())
            ]
            for path in data.glob("*.jsonl")
        }


async def _row(compiled: Any, task: str, seed: int, opened: Opened) -> dict[str, JSON]:
    """Return the row of an episode, which shows a model what the episode itself shows.

    Raises:
        SessionError: It shows something else, or cannot be made.
    """
    environment = compiled.environment
    try:
        row = await make_row(environment, environment.tasks().get(task), seed)
        prompt, tools = read_row(row)
    except (KeyError, TypeError, ValueError, StartError) as error:
        raise _malformed(f"the row of task {task}", error) from error
    expected = tuple(map(as_input, opened.prompt))
    if prompt != expected:
        raise SessionError(
            f"the row of task {task} begins with {prompt!r}, and the episode with {expected!r}"
        )
    if tools != opened.tools:
        raise SessionError(
            f"the row of task {task} has the tools {tools!r}, and the episode {opened.tools!r}"
        )
    if (row["task"], row["seed"]) != (task, seed):
        raise SessionError(f"the row of task {task} and seed {seed} plays {row['task']} and {row['seed']}")
    return row


def _check_answer(answer: Any, asked: Any, last: StepResult | None) -> None:
    """Make sure that `/verify` hands the rollout on as it was, and says of an episode that was over how it ended."""
    for key in ("responses_create_params", "response"):
        if not _holds(answer[key], asked[key]):
            raise ValueError(f"its {key} is not what was sent")
    if last is not None and last.cause is not None:
        said = (answer["task"], answer["ending"], answer["cause"])
        expected = (asked["task"], last.cause.ending.value, last.cause.value)
        if said != expected:
            raise ValueError(f"task, ending and cause are {said}, and the steps showed {expected}")


def _holds(whole: Any, part: Any) -> bool:
    # NeMo Gym fills in the defaults of what was not sent.
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(_holds(whole.get(key), value) for key, value in part.items())
    if isinstance(part, list):
        return isinstance(whole, list) and len(whole) == len(part) and all(map(_holds, whole, part))
    return bool(whole == part)


def _trajectory(action: Action, result: StepResult, number: int) -> list[dict[str, JSON]]:
    items = [write_item(action, number)]
    if not isinstance(action, str):
        items.append(write_output(result.observation.text, number))
    return items


def _decode(cookie: str) -> JSON:
    payload = cookie.partition(".")[0]
    value: JSON = json.loads(base64.b64decode(payload + "=" * (-len(payload) % 4)))
    return value


def _malformed(what: str, error: Exception) -> SessionError:
    reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
    return SessionError(f"{what} is not what a compiled environment sends: {reason}")
