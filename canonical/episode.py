"""Episode: the only state machine. Every framework shows what this class does, unchanged."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import random
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Generic, TypeVar, cast, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from canonical.content import JSON, Block, ErrorCode, Message, Observation, Text, quote
from canonical.dialect import Unparsable, read_calls
from canonical.environment import Environment
from canonical.reward import Aggregation, Exchange, Ledger, Score, ScoringError, finish
from canonical.step import NO_COMPONENTS, Cause, StepResult
from canonical.task import Task
from canonical.tool import InvalidArgumentsError, Tool, ToolCall, ToolError, ToolOutput

StateT = TypeVar("StateT")
log = logging.getLogger(__name__)


class SnapshotError(RuntimeError):
    """Report that an episode cannot be stored or restored, and why."""


def episode_rng(environment: Environment[Any], task: Task, seed: int) -> random.Random:
    """Return the generator of an episode: a pure function of environment name, version, task id and seed."""
    key = "\0".join((environment.name, environment.version, task.id, str(seed)))
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
    return random.Random(int.from_bytes(digest, "big"))  # noqa: S311 - reproducible, not secret


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Hold an episode as JSON. It contains the state, hence secrets: keep it on the server's side."""

    value: Mapping[str, JSON]

    def to_json(self) -> str:
        """Return the snapshot as one line of JSON."""
        return json.dumps(self.value, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Snapshot:
        """Read what `to_json` wrote.

        Raises:
            SnapshotError: The text is not a snapshot.
        """
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            raise SnapshotError(f"this is not a snapshot: {error.msg} at column {error.colno}") from error
        if not isinstance(value, dict) or "state" not in value:
            raise SnapshotError("this is not a snapshot: it has no state")
        return cls(value)


class Episode(Generic[StateT]):
    """Play one task under the contract that holds in every framework.

    Create episodes with `open` or `open_async`. An action is a `ToolCall` or assistant text; text goes through the
    dialect, and several calls in one text run in order. `step` never touches an event loop when the tools are plain
    functions; with coroutine tools, await `step_async`.

    Attributes:
        environment: The environment.
        task: The task being played.
        seed: The seed of this episode.
        prompt: What the model reads first.
        state: The environment's state.
        turn: How many turns have been used.
        cause: Why the episode has ended, or None while it goes on.
        failure: The last exception that a tool did not mean to raise. It may hold secrets, so it stays here.
    """

    __slots__ = (
        "_closed", "_errors", "_exchanges", "_ledger", "cause", "environment", "failure", "prompt", "seed", "state", "task", "turn",
    )  # fmt: skip

    def __init__(
        self,
        environment: Environment[StateT],
        task: Task,
        seed: int,
        state: StateT,
        prompt: tuple[Message, ...] | None = None,
    ) -> None:
        self.environment = environment
        # Taken now, because the state that it describes is about to change.
        self.prompt = environment.opening(task, state) if prompt is None else prompt
        self.task = task
        self.seed = seed
        self.state = state
        self.turn = 0
        self.cause: Cause | None = None
        self.failure: BaseException | None = None
        self._errors = 0
        self._closed = False
        self._ledger = Ledger(environment.reward)
        self._exchanges: list[Exchange] | None = [] if environment.rubric.uses_exchanges else None

    @classmethod
    def open(cls, environment: Environment[StateT], task: Task | str, *, seed: int = 0) -> Episode[StateT]:
        """Start an episode of a task.

        Raises:
            UnknownTaskError: The environment has no such task.
            RuntimeError: The environment starts asynchronously; await `open_async`.
        """
        return finish(cls.open_async(environment, task, seed=seed))

    @classmethod
    async def open_async(
        cls, environment: Environment[StateT], task: Task | str, *, seed: int = 0
    ) -> Episode[StateT]:
        """Start an episode of a task, for environments that may start asynchronously.

        Raises:
            UnknownTaskError: The environment has no such task.
        """
        found = environment.tasks().get(task) if isinstance(task, str) else task
        started = environment.start(found, episode_rng(environment, found, seed))
        state: StateT = await started if isawaitable(started) else cast("StateT", started)
        return cls(environment, found, seed, state)

    @property
    def total(self) -> float:
        """The return so far."""
        return self._ledger.total

    @property
    def payments(self) -> tuple[float, ...]:
        """What each payment of the ledger added to the return."""
        return tuple(self._ledger.payments)

    def step(self, action: ToolCall | str) -> StepResult:
        """Carry out an action and return what it led to.

        Raises:
            ScoringError: No valid reward could be computed; the episode has ended with cause `error`.
            RuntimeError: A tool or the rubric waits for something; await `step_async`.
        """
        return finish(self.step_async(action))

    async def step_async(self, action: ToolCall | str) -> StepResult:
        """Carry out an action, awaiting coroutine tools, and return what it led to.

        Raises:
            ScoringError: No valid reward could be computed; the episode has ended with cause `error`.
        """
        if type(action) is ToolCall:
            return await self._call(action)
        results = [
            await self._fault(action, ErrorCode.UNPARSABLE, call.reason)
            if isinstance(call, Unparsable)
            else await self._call(call)
            for call in read_calls(cast("str", action))
        ]
        return results[0] if len(results) == 1 else _merge(results)

    async def truncate(self, cause: Cause) -> StepResult:
        """End the episode from outside, for example because its time is up. The state is still scored.

        Raises:
            ValueError: The cause is not one that truncates.
            ScoringError: No valid reward could be computed.
        """
        if cause in {Cause.SOLVED, Cause.FAILED, Cause.SUBMITTED}:
            raise ValueError(f"cause {cause} terminates; only the environment's own outcome can do that")
        if self.cause is not None:
            return self._over()
        self.cause = cause
        return await self._pay(Observation.of(f"The episode has ended: {cause}."), acted=False)

    def close(self) -> None:
        """Free everything. Closing twice is harmless; an episode that was still going ends with cause `cancelled`."""
        finish(self.close_async())

    async def close_async(self) -> None:
        """Free everything, for environments whose `close` waits."""
        if self.cause is None:
            self.cause = Cause.CANCELLED
        if not self._closed:
            self._closed = True
            closing = self.environment.close(self.state)
            if closing is not None:
                await closing

    async def _call(self, call: ToolCall) -> StepResult:
        if self.cause is not None:
            return self._over()
        environment = self.environment
        tools = environment.tools
        for tool in tools:
            if tool.spec.name == call.name:
                break
        else:
            return await self._fault(call, ErrorCode.UNKNOWN_TOOL, _unknown(call.name, tools))
        try:
            arguments = tool.validate(call.arguments)
        except InvalidArgumentsError as error:
            return await self._fault(call, ErrorCode.INVALID_ARGUMENTS, str(error))
        try:
            output = tool.function(environment, self.state, **arguments)
            if tool.is_async:
                output = await cast("Awaitable[ToolOutput]", output)
            observation = _observation(cast("ToolOutput", output))
        except ToolError as error:
            return await self._fault(call, ErrorCode.TOOL_ERROR, str(error))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the episode survives whatever a tool does
            self._remember(tool, error)
            return await self._fault(
                call, ErrorCode.INTERNAL_ERROR, f"The tool {tool.spec.name} failed with an internal error."
            )
        self.turn += 1
        if self._exchanges is not None:
            self._exchanges.append(Exchange(call, observation))
        self._settle()
        return await self._pay(observation, acted=observation.error is None)

    async def _fault(self, action: ToolCall | str, code: ErrorCode, message: str) -> StepResult:
        if self.cause is not None:
            return self._over()
        self._errors += 1
        if self._errors > self.environment.free_errors:
            self.turn += 1
        observation = self._report(message, code)
        if self._exchanges is not None:
            self._exchanges.append(Exchange(action, observation))
        self._settle()
        return await self._pay(observation, acted=False)

    def _settle(self) -> None:
        cause = self.environment.outcome(self.state)
        self.cause = Cause.BUDGET if cause is None and self.turn >= self.environment.max_turns else cause

    async def _pay(self, observation: Observation, *, acted: bool) -> StepResult:
        ledger, cause = self._ledger, self.cause
        aggregation = ledger.spec.aggregation
        is_due = (
            cause is not None
            if aggregation is Aggregation.TERMINAL
            else acted or (cause is not None and aggregation is Aggregation.LAST)
        )
        if not is_due:
            if cause is not None:
                self._close_ledger()
            return StepResult(observation, 0.0, ledger.total, cause)
        try:
            score = await self.environment.rubric.evaluate(self.state, self._exchanges or ())
            reward = ledger.enter(score)
        except ScoringError:
            self.cause = Cause.ERROR
            raise
        except Exception as error:
            self.cause = Cause.ERROR
            self.failure = error
            raise ScoringError(
                f"the rubric of {self.environment.name} failed with {type(error).__name__}"
            ) from error
        if cause is not None:
            self._close_ledger()
        return StepResult(observation, reward, ledger.total, cause, score.parts)

    def _close_ledger(self) -> None:
        try:
            self._ledger.close()
        except ScoringError:
            self.cause = Cause.ERROR
            raise

    def _over(self) -> StepResult:
        message = f"The episode is over ({self.cause}); this call changed nothing."
        return StepResult(self._report(message, ErrorCode.EPISODE_OVER), 0.0, self._ledger.total, self.cause)

    def _report(self, message: str, code: ErrorCode) -> Observation:
        status = self.environment.status(self.state)
        return Observation.of(f"{message}\n{status}" if status else message, code)

    def _remember(self, tool: Tool, error: BaseException) -> None:
        # The text of an unexpected exception may hold the answer, so neither the agent nor the log gets it.
        self.failure = error
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        place = "" if frame is None else f" at {frame.tb_frame.f_code.co_qualname}:{frame.tb_lineno}"
        log.warning(
            "tool %s of %s raised %s%s", tool.spec.name, self.environment.name, type(error).__name__, place
        )

    def snapshot(self) -> Snapshot:
        """Return the episode as data.

        Raises:
            SnapshotError: The state is not plain data, or the episode is closed.
        """
        if self._closed:
            raise SnapshotError("a closed episode has no state to store")
        try:
            state = _state_adapter(self.environment, self.state).dump_python(self.state, mode="json")
        except (PydanticUserError, ValueError, TypeError) as error:
            raise SnapshotError(
                f"the state of {self.environment.name} is not plain data: {str(error).splitlines()[0]}"
            ) from error
        value: dict[str, Any] = {
            "environment": self.environment.name,
            "version": self.environment.version,
            "task": self.task.id,
            "seed": self.seed,
            "turn": self.turn,
            "errors": self._errors,
            "total": self._ledger.total,
            "payments": list(self._ledger.payments),
            "cause": None if self.cause is None else self.cause.value,
            "state": state,
        }
        if self._exchanges is not None:
            value["exchanges"] = _EXCHANGES.dump_python(self._exchanges, mode="json")
        return Snapshot(value)

    def restore(self, snapshot: Snapshot) -> None:
        """Set this episode to what a snapshot holds.

        Raises:
            SnapshotError: The snapshot belongs to another environment, version, task or seed, or is damaged.
        """
        value: Mapping[str, Any] = snapshot.value
        mine = (self.environment.name, self.environment.version, self.task.id, self.seed)
        theirs = tuple(value.get(key) for key in ("environment", "version", "task", "seed"))
        if mine != theirs:
            raise SnapshotError(f"the snapshot is of {theirs}, this episode is of {mine}")
        if self._closed:
            raise SnapshotError("a closed episode cannot be restored")
        try:
            state = _state_adapter(self.environment, self.state).validate_python(value["state"])
            exchanges = _EXCHANGES.validate_python(value.get("exchanges", []))
            payments = [float(payment) for payment in value["payments"]]
            ledger = Ledger(self.environment.reward, float(value["total"]), payments)
            turn, errors = int(value["turn"]), int(value["errors"])
            cause = None if value["cause"] is None else Cause(value["cause"])
        except (PydanticUserError, ValidationError, ValueError, TypeError, KeyError) as error:
            raise SnapshotError(f"the snapshot is damaged: {str(error).splitlines()[0]}") from error
        self.state, self.turn, self._errors, self.cause, self._ledger = state, turn, errors, cause, ledger
        if self._exchanges is not None:
            self._exchanges = exchanges

    def fork(self, count: int) -> list[Episode[StateT]]:
        """Return `count` independent copies of this episode.

        Raises:
            SnapshotError: The state is not plain data, or the episode is closed.
        """
        snapshot = self.snapshot()
        copies = []
        for _ in range(count):
            copy = Episode(self.environment, self.task, self.seed, self.state, self.prompt)
            copy.restore(snapshot)
            copies.append(copy)
        return copies


_EXCHANGES: TypeAdapter[list[Exchange]] = TypeAdapter(list[Exchange])


def _state_adapter(environment: Environment[StateT], state: StateT) -> TypeAdapter[StateT]:
    # The annotation says more than the value (a mapping's value types); the class serves where it is missing.
    hint = get_type_hints(type(environment).start, include_extras=True).get("return")
    annotated = hint is not None and not isinstance(hint, TypeVar) and "Awaitable" not in str(hint)
    return TypeAdapter(hint if annotated else type(state))


def _unknown(name: str, tools: tuple[Tool, ...]) -> str:
    known = ", ".join(tool.spec.name for tool in tools)
    return f"There is no tool {quote(name)}. The tools are: {known}."


def _observation(output: ToolOutput) -> Observation:
    if type(output) is str:
        return Observation((Text(output),))
    if isinstance(output, Observation):
        return output
    return Observation(tuple(cast("tuple[Block, ...]", output)))


def _merge(results: list[StepResult]) -> StepResult:
    blocks: list[Block] = []
    components: dict[str, float] = {}
    for result in results:
        blocks.extend(result.observation.blocks)
        for name, value in result.components.items():
            components[name] = components.get(name, 0.0) + value
    error = next((r.observation.error for r in results if r.observation.error is not None), None)
    last = results[-1]
    reward = math.fsum(result.reward for result in results)
    return StepResult(
        Observation(tuple(blocks), error), reward, last.total, last.cause, components or NO_COMPONENTS
    )


__all__ = ["Episode", "Score", "Snapshot", "SnapshotError", "episode_rng"]
