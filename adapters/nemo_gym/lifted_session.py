"""Sessions with a resources server that somebody else wrote, driven as NeMo Gym's own agents drive it."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import quote

from adapters.nemo_gym.connection import Requests
from adapters.nemo_gym.rows import Row
from adapters.nemo_gym.wire import RESPONSE, write_item, write_json, write_output
from canonical.adapter import Opened, SessionError
from canonical.content import JSON, Block, ErrorCode, Message, Observation, Text
from canonical.step import NO_COMPONENTS, Cause, StepResult
from canonical.transcript import Action

log = logging.getLogger(__name__)

_INVALID = 422
_HANDED_ON = frozenset({"responses_create_params", "response"})


class _RowSession:
    """Hold what every session has: the row, and what has been asked and answered."""

    def __init__(self, requests: Requests, rows: Mapping[str, Row]) -> None:
        self._requests = requests
        self._rows = rows
        self._sent: dict[str, Any] | None = None
        self._shown: dict[str, JSON] = {}
        self._calls = 0
        self._is_over = False

    async def public_state(self) -> JSON:
        """Return the rest of what the server answered, which no agent shows a model."""
        return {**self._shown}

    async def _begin(self, task: str, path: str) -> tuple[Row, dict[str, Any]]:
        row = self._rows.get(task)
        if row is None:
            raise SessionError(f"there is no row {task}")
        await self._give_up()
        self._requests.cookies = SimpleCookie()
        self._shown, self._calls, self._is_over = {}, 0, False
        sent = row.sent()
        answer = await self._ask(path, sent)
        self._sent = sent
        return row, answer

    async def _give_up(self) -> None:
        """Let the server free a rollout that goes on, where it can be told."""
        self._sent = None

    async def close(self) -> None:
        """Give a rollout that goes on up. Closing twice is harmless."""
        await self._give_up()
        self._requests.lost = self._requests.lost or "it is closed"

    async def _ask(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self._requests.check()
        answer = await self._requests.post(path, "application/json", write_json(body))
        try:
            value = json.loads(answer.accepted())
        except SessionError as error:
            raise SessionError(f"{path}: {error}") from error
        except ValueError as error:
            raise SessionError(f"the answer to {path} is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise SessionError(f"the answer to {path} is no object")
        return value

    def _under_way(self) -> dict[str, Any]:
        if self._sent is None:
            raise SessionError("open an episode before stepping")
        if self._is_over:
            raise SessionError("the episode is over")
        return self._sent


class VerifiedSession(_RowSession):
    """Be one rollout as `simple_agent` takes it: a route per tool, a text ends it, `/verify` rewards the whole."""

    def __init__(self, requests: Requests, rows: Mapping[str, Row]) -> None:
        super().__init__(requests, rows)
        self._output: list[dict[str, JSON]] = []
        self._verified: StepResult | None = None

    async def open(self, task: str, seed: int) -> Opened:  # noqa: ARG002 - NeMo Gym has no seeds
        """Seed a session with a row.

        Raises:
            SessionError: The server refused or failed.
        """
        row, answer = await self._begin(task, "/seed_session")
        self._output, self._verified = [], None
        self._shown["seeded"] = answer
        return Opened(row.prompt, row.tools)

    async def step(self, action: Action) -> StepResult:
        """Post a call to the route of its tool, or end the rollout with a text and verify it.

        Raises:
            SessionError: The server could not be reached, or `/verify` refused or failed.
        """
        self._under_way()
        self._requests.check()
        number, self._calls = self._calls, self._calls + 1
        self._output.append(write_item(action, number))
        if isinstance(action, str):
            return await self._verify()
        # As an agent that reads whatever was answered; the status is NeMo Gym's only mark of an error.
        path = "/" + quote(action.name, safe="", errors="replace")
        answer = await self._requests.post(path, "application/json", write_json(dict(action.arguments)))
        text = answer.content.decode("utf-8", "replace")
        self._output.append(write_output(text, number))
        error = ErrorCode.INVALID_ARGUMENTS if answer.status == _INVALID else ErrorCode.TOOL_ERROR
        return StepResult(Observation.of(text, error if answer.is_refusal else None))

    async def reported_return(self) -> float:
        """Return the reward that `/verify` answers with; a rollout that goes on is verified as it is, as agents do.

        Raises:
            SessionError: The server refused or failed.
        """
        return (self._verified or await self._verify()).total

    async def _verify(self) -> StepResult:
        sent = self._under_way()
        self._is_over = True
        answer = await self._ask("/verify", {**sent, "response": {**RESPONSE, "output": self._output}})
        reward = answer.get("reward")
        if isinstance(reward, bool) or not isinstance(reward, int | float) or not math.isfinite(reward):
            raise SessionError(f"/verify says no reward: {reward!r}")
        self._shown["verified"] = {key: value for key, value in answer.items() if key not in _HANDED_ON}
        paid = float(reward)
        components = _components(answer.get("reward_components"), paid)
        self._verified = StepResult(Observation.of(""), paid, paid, Cause.SUBMITTED, components)
        return self._verified

    async def _give_up(self) -> None:
        # Nothing but /verify tells a server that a rollout is over.
        if self._sent is not None and not self._is_over and self._requests.lost is None:
            try:
                await self._verify()
            except SessionError as error:
                log.warning("a rollout that was given up could not be verified: %s", error)
        self._sent = None


def _components(parts: Any, paid: float) -> Mapping[str, float]:
    """Return parts of a reward that sum to it; a server may answer with anything under that name."""
    if not isinstance(parts, dict):
        return NO_COMPONENTS
    numbers = [
        value for value in parts.values() if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    is_exact = len(numbers) == len(parts) and all(map(math.isfinite, numbers)) and math.fsum(numbers) == paid
    return {str(name): float(value) for name, value in parts.items()} if is_exact else NO_COMPONENTS


class GymnasiumSession(_RowSession):
    """Be one rollout as `gymnasium_agent` takes it: `/reset`, and `/step` with each action, which pays and ends."""

    def __init__(self, requests: Requests, rows: Mapping[str, Row]) -> None:
        super().__init__(requests, rows)
        self._total = 0.0

    async def open(self, task: str, seed: int) -> Opened:  # noqa: ARG002 - NeMo Gym has no seeds
        """Reset a session with a row; what is observed follows the row's prompt.

        Raises:
            SessionError: The server refused or failed.
        """
        row, answer = await self._begin(task, "/reset")
        self._total = 0.0
        self._shown["info"] = answer.get("info")
        observed = answer.get("observation")
        seen = (Message("user", (Text(observed),)),) if observed else ()
        return Opened(row.prompt + seen, row.tools)

    async def step(self, action: Action) -> StepResult:
        """Hand an action on.

        Raises:
            SessionError: The server refused or failed.
        """
        sent = self._under_way()
        number, self._calls = self._calls, self._calls + 1
        response = {**RESPONSE, "output": [write_item(action, number)]}
        answer = await self._ask("/step", {**sent, "response": response})
        try:
            info = answer.get("info") or {}
            texts = [output["output"] for output in info.get("tool_outputs", [])]
            observed, paid = answer.get("observation"), float(answer.get("reward", 0.0))
            blocks: tuple[Block, ...] = tuple(map(Text, [*texts, observed] if observed else texts))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SessionError(f"the answer to /step is not that of a Gymnasium server: {error!r}") from error
        if not math.isfinite(paid):
            raise SessionError(f"/step pays {paid!r}")
        self._shown["info"] = info
        self._total += paid
        cause = (
            Cause.SUBMITTED if answer.get("terminated") else Cause.BUDGET if answer.get("truncated") else None
        )
        self._is_over = cause is not None
        return StepResult(Observation(blocks or (Text(""),)), paid, self._total, cause)

    async def reported_return(self) -> float:
        """Return the sum of the rewards, which is what `gymnasium_agent` reports.

        Raises:
            SessionError: The episode is not over.
        """
        if not self._is_over:
            raise SessionError("the episode is not over, so that it has no return yet")
        return self._total
