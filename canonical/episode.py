"""Episode: the only state machine. Every framework shows what this class does, unchanged."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import random
from asyncio import CancelledError, current_task
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from inspect import isawaitable, iscoroutinefunction
from typing import Annotated, Any, Generic, TypeVar, cast

from pydantic import FiniteFloat, NonNegativeInt, Strict, TypeAdapter, ValidationError

from canonical.content import (
    JSON,
    Block,
    ErrorCode,
    Image,
    Message,
    Observation,
    Text,
    observation_from_json,
    quote,
)
from canonical.dialect import Unparsable, read_calls
from canonical.environment import Environment, tools_of
from canonical.reward import Aggregation, Exchange, Ledger, OutcomeError, Score, ScoringError, finish
from canonical.state import StateError, load_state, store_state
from canonical.step import NO_COMPONENTS, Cause, StepResult
from canonical.task import Task
from canonical.tool import InvalidArgumentsError, Tool, ToolCall, ToolError, ToolOutput
from canonical.transcript import action_from_json

StateT = TypeVar("StateT")
log = logging.getLogger(__name__)


class StartError(RuntimeError):
    """Report that an environment could not start an episode. The text holds nothing of what was raised.

    Attributes:
        part: What failed: `start` or `prompt`.
        failure: What was raised. It may hold secrets.
    """

    def __init__(self, environment: str, part: str, failure: BaseException) -> None:
        self.part = part
        self.failure = failure
        super().__init__(f"the {part} of {environment} failed with {type(failure).__name__}")


class SnapshotError(RuntimeError):
    """Report that an episode cannot be stored or restored, and why."""


def episode_rng(environment: Environment[Any], task: Task, seed: int) -> random.Random:
    """Return the generator of an episode: a pure function of environment name, version, task id and seed.

    The seed is any integer, negative ones and those of more than 64 bits as well.
    """
    return _EpisodeRandom("\0".join((environment.name, environment.version, task.id, str(seed))))


class _EpisodeRandom(random.Random):
    # Seeding costs more than all the rest of opening an episode, and many environments draw nothing. So the seed is set
    # when the generator is first used, which makes it a plain `random.Random`, with the numbers that it always had.

    gauss_next: float | None = None

    def __init__(self, key: str) -> None:  # the base class would seed
        self.key = key

    def random(self) -> float:
        return _seeded(self).random()

    def getrandbits(self, k: int, /) -> int:
        return _seeded(self).getrandbits(k)

    def seed(self, a: Any = None, version: int = 2) -> None:
        _seeded(self).seed(a, version)

    def getstate(self) -> tuple[Any, ...]:
        return _seeded(self).getstate()

    def setstate(self, state: tuple[Any, ...]) -> None:
        _seeded(self).setstate(state)

    def __reduce__(self) -> tuple[Any, ...]:
        reduced: Any = _seeded(self).__reduce__()
        return cast("tuple[Any, ...]", reduced)


def _seeded(generator: random.Random) -> random.Random:
    # Once seeded it is no `_EpisodeRandom` any more, but a method that somebody took before still comes here.
    if isinstance(generator, _EpisodeRandom):
        digest = hashlib.sha256(generator.__dict__.pop("key").encode("utf-8", "surrogatepass")).digest()
        plain: Any = generator
        plain.__class__ = random.Random
        plain.__init__(int.from_bytes(digest, "big"))
    return generator


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Hold an episode as JSON. It contains the state, hence secrets: keep it on the server's side."""

    value: Mapping[str, JSON] = field(repr=False)

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
            raise SnapshotError(f"this is not a snapshot: {error.msg} at column {error.colno}") from None
        except (ValueError, RecursionError) as error:
            raise SnapshotError(f"this is not a snapshot: {error}") from None
        if not isinstance(value, dict) or not {"environment", "state"} <= value.keys():
            raise SnapshotError("this is not a snapshot: it names no environment or has no state")
        return cls(value)


@dataclass(frozen=True, slots=True)
class _Books:
    turn: Annotated[NonNegativeInt, Strict()]
    errors: Annotated[NonNegativeInt, Strict()]
    total: Annotated[FiniteFloat, Strict()]
    payments: Annotated[list[Annotated[FiniteFloat, Strict()]], Strict()]
    cause: Cause | None


_BOOKS = TypeAdapter(_Books)


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
            StartError: The environment's `start` or `prompt` failed.
            RuntimeError: The environment starts asynchronously; await `open_async`.
        """
        if iscoroutinefunction(environment.start):
            raise RuntimeError(f"{environment.name}.start is a coroutine function; await open_async instead")
        return finish(cls.open_async(environment, task, seed=seed))

    @classmethod
    async def open_async(
        cls, environment: Environment[StateT], task: Task | str, *, seed: int = 0
    ) -> Episode[StateT]:
        """Start an episode of a task, for environments that may start asynchronously.

        Raises:
            UnknownTaskError: The environment has no such task.
            StartError: The environment's `start` or `prompt` failed.
        """
        found = environment.tasks().get(task) if isinstance(task, str) else task
        try:
            started = environment.start(found, episode_rng(environment, found, seed))
            state: StateT = await started if isawaitable(started) else started
        except (Exception, SystemExit, CancelledError) as error:  # noqa: BLE001 - the text of the exception may hold the answer
            _pass_on_cancellation(error)
            _log_failure(environment, "start", error)
            raise StartError(environment.name, "start", error) from None
        try:
            return cls(environment, found, seed, state)
        except (Exception, SystemExit, CancelledError) as error:  # noqa: BLE001 - as above
            _pass_on_cancellation(error)
            _log_failure(environment, "prompt", error)
            closing = environment.close(state)
            if closing is not None:
                await closing
            raise StartError(environment.name, "prompt", error) from None

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
            RuntimeError: A called tool is a coroutine function, or the rubric waits; nothing has happened, await
                `step_async` instead.
        """
        calls = (action,) if type(action) is ToolCall else self._read(cast("str", action))
        if self.cause is None:
            self._refuse_waiting(calls)
        return finish(self._carry_out(action, calls))

    async def step_async(self, action: ToolCall | str) -> StepResult:
        """Carry out an action, awaiting coroutine tools, and return what it led to.

        Raises:
            ScoringError: No valid reward could be computed; the episode has ended with cause `error`.
        """
        calls = (action,) if type(action) is ToolCall else self._read(cast("str", action))
        return await self._carry_out(action, calls)

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
        """Free everything. Closing twice is harmless; an episode that was still going ends with cause `cancelled`.

        Raises:
            RuntimeError: The environment's `close` is a coroutine function; nothing has happened, await `close_async`.
        """
        if not self._closed and iscoroutinefunction(self.environment.close):
            raise RuntimeError(
                f"{self.environment.name}.close is a coroutine function; await close_async instead"
            )
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

    def _read(self, text: str) -> tuple[ToolCall | Unparsable, ...]:
        calls = read_calls(text)
        environment = self.environment
        if environment.text_tool is None:
            return calls
        # Where there are other tools, a call that names none of them is a wrong call; where there are not, it is text.
        has_tools = bool(environment.described_tools)
        if any(
            type(call) is ToolCall and (has_tools or call.name == environment.text_tool) for call in calls
        ):
            return calls
        return (ToolCall(environment.text_tool, {"text": text}),)

    def _refuse_waiting(self, calls: tuple[ToolCall | Unparsable, ...]) -> None:
        environment = self.environment
        if environment.rubric.is_async:
            raise RuntimeError(f"the rubric of {environment.name} waits; await step_async instead")
        waiting = _coroutine_tools(type(environment))
        for call in calls:
            if type(call) is ToolCall and call.name in waiting:
                raise RuntimeError(f"the tool {call.name} is a coroutine function; await step_async instead")

    async def _carry_out(
        self, action: ToolCall | str, calls: tuple[ToolCall | Unparsable, ...]
    ) -> StepResult:
        if len(calls) == 1 and type(calls[0]) is ToolCall:
            return await self._call(calls[0])
        results: list[StepResult] = []
        for call in calls:
            if isinstance(call, Unparsable):
                results.append(await self._fault(action, ErrorCode.UNPARSABLE, call.reason))
            else:
                results.append(await self._call(call))
            if results[-1].observation.error is ErrorCode.EPISODE_OVER:
                # Said once: a message may hold a hundred thousand calls.
                break
        return results[0] if len(results) == 1 else _merge(results)

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
        except Exception as error:  # noqa: BLE001 - an author's own validator may raise anything
            return await self._break(call, tool, error)
        try:
            output = tool.function(environment, self.state, **arguments)
            if tool.is_async:
                output = await cast("Awaitable[ToolOutput]", output)
            observation = _observation(cast("ToolOutput", output))
        except ToolError as error:
            return await self._fault(call, ErrorCode.TOOL_ERROR, str(error))
        except (Exception, SystemExit, CancelledError) as error:  # noqa: BLE001 - the episode survives whatever a tool does
            _pass_on_cancellation(error)
            return await self._break(call, tool, error)
        self.turn += 1
        if self._exchanges is not None:
            self._exchanges.append(Exchange(call, observation))
        self._settle()
        return await self._pay(observation, acted=observation.error is None)

    async def _break(self, call: ToolCall, tool: Tool, error: BaseException) -> StepResult:
        self._remember(f"tool {tool.spec.name}", error)
        message = f"The tool {tool.spec.name} failed with an internal error."
        return await self._fault(call, ErrorCode.INTERNAL_ERROR, message)

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
        try:
            cause = self.environment.outcome(self.state)
            if cause is not None and not isinstance(cause, Cause):
                raise TypeError(f"outcome returns a Cause or None, not {type(cause).__name__}")  # noqa: TRY301
        except (Exception, SystemExit, CancelledError) as error:  # noqa: BLE001 - the text of the exception may hold the answer
            _pass_on_cancellation(error)
            raise self._failed("outcome", error, OutcomeError) from None
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
        except (Exception, SystemExit, CancelledError) as error:  # noqa: BLE001 - as in _settle
            _pass_on_cancellation(error)
            raise self._failed("rubric", error, ScoringError) from None
        if cause is not None:
            self._close_ledger()
        return StepResult(observation, reward, ledger.total, cause, score.parts)

    def _failed(self, part: str, error: BaseException, kind: type[ScoringError]) -> ScoringError:
        self.cause = Cause.ERROR
        self._remember(part, error)
        raised = kind(f"the {part} of {self.environment.name} failed with {type(error).__name__}")
        raised.failure = error
        return raised

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
        status = ""
        if not self._closed:
            try:
                status = self.environment.status(self.state)
            except (Exception, SystemExit, CancelledError) as error:  # noqa: BLE001 - the message alone still says what is wrong
                _pass_on_cancellation(error)
                self._remember("status", error)
        return Observation.of(f"{message}\n{status}" if status else message, code)

    def _remember(self, part: str, error: BaseException) -> None:
        self.failure = error
        _log_failure(self.environment, part, error)

    def snapshot(self) -> Snapshot:
        """Return the episode as data.

        Raises:
            SnapshotError: The state is not plain data, or the episode is closed.
        """
        if self._closed:
            raise SnapshotError("a closed episode has no state to store")
        try:
            state = store_state(type(self.environment).start, self.state)
        except StateError as error:
            raise SnapshotError(f"the state of {self.environment.name} is not plain data: {error}") from None
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
            value["exchanges"] = [
                [action if isinstance(action, str) else action.to_json(), observation.to_json()]
                for action, observation in self._exchanges
            ]
        return Snapshot(value)

    def restore(self, snapshot: Snapshot) -> None:
        """Set this episode to what a snapshot holds.

        Raises:
            SnapshotError: The snapshot belongs to another environment, version, task or seed, or is damaged.
        """
        value: Mapping[str, Any] = snapshot.value
        mine = {
            "environment": self.environment.name,
            "version": self.environment.version,
            "task": self.task.id,
            "seed": self.seed,
        }
        for key, wanted in mine.items():
            if value.get(key) != wanted:
                raise SnapshotError(
                    f"the snapshot is of another {key}: {value.get(key)!r}, this episode is of {wanted!r}"
                )
        if self._closed:
            raise SnapshotError("a closed episode cannot be restored")
        try:
            books = _BOOKS.validate_python(value)
        except ValidationError as error:
            detail = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise SnapshotError(f"the snapshot is damaged: {detail['loc'][0]}: {detail['msg']}") from None
        try:
            state = load_state(type(self.environment).start, type(self.state), value["state"])
        except StateError as error:
            raise SnapshotError(f"the snapshot is damaged: state: {error}") from None
        exchanges = None if self._exchanges is None else _read_exchanges(value.get("exchanges"))
        self.state, self._exchanges = state, exchanges
        self.turn, self._errors, self.cause = books.turn, books.errors, books.cause
        self._ledger = Ledger(self.environment.reward, books.total, books.payments)

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


def _pass_on_cancellation(error: BaseException) -> None:
    """Raise what cancels the running task; a `CancelledError` that code raises by itself is a failure like others."""
    if isinstance(error, CancelledError):
        try:
            task = current_task()
        except RuntimeError:
            return
        if task is not None and task.cancelling():
            raise error


def _log_failure(environment: Environment[Any], part: str, error: BaseException) -> None:
    # The text of an unexpected exception may hold the answer, so neither the agent nor the log gets it.
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = "" if frame is None else f" at {frame.tb_frame.f_code.co_qualname}:{frame.tb_lineno}"
    log.warning("%s of %s raised %s%s", part, environment.name, type(error).__name__, place)


@cache
def _coroutine_tools(environment: type[Environment[Any]]) -> frozenset[str]:
    return frozenset(tool.spec.name for tool in tools_of(environment) if tool.is_async)


def _read_exchanges(value: Any) -> list[Exchange]:
    try:
        return [Exchange(action_from_json(action), observation_from_json(seen)) for action, seen in value]
    except (ValueError, TypeError, KeyError, AttributeError):
        reason = "must be a list of actions, each with its observation"
        raise SnapshotError(f"the snapshot is damaged: exchanges: {reason}") from None


def _unknown(name: str, tools: tuple[Tool, ...]) -> str:
    known = ", ".join(tool.spec.name for tool in tools)
    return f"There is no tool {quote(name)}. The tools are: {known}."


def _observation(output: ToolOutput) -> Observation:
    if isinstance(output, str):
        return Observation((Text(str(output)),))
    blocks: Any = output.blocks if isinstance(output, Observation) else output
    if not isinstance(blocks, Sequence) or not all(isinstance(block, Text | Image) for block in blocks):
        raise TypeError(f"a tool returns text, an observation or content blocks, not {type(output).__name__}")
    return output if isinstance(output, Observation) else Observation(tuple(blocks))


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


__all__ = ["Episode", "Score", "Snapshot", "SnapshotError", "StartError", "episode_rng"]
