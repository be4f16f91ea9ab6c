"""Transcripts: what happened in an episode, comparable byte for byte."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast, get_args

from pydantic import TypeAdapter, ValidationError

from canonical.content import JSON, Message, Role, block_from_json, observation_from_json
from canonical.step import NO_COMPONENTS, Cause, StepResult
from canonical.tool import ToolCall, ToolSpec

Action = ToolCall | str
ValueT = TypeVar("ValueT")


class TranscriptError(ValueError):
    """Report text that is not a transcript."""


@dataclass(frozen=True, slots=True)
class TranscriptStep:
    """Hold one action and what it led to."""

    action: Action
    result: StepResult

    def to_json(self) -> dict[str, JSON]:
        """Return the step as JSON."""
        action: JSON = self.action if isinstance(self.action, str) else self.action.to_json()
        return {"action": action, "result": self.result.to_json()}


def step_text(step: TranscriptStep) -> str:
    """Return a step as people read it: the action, what was observed, and what was paid."""
    action = step.action
    if not isinstance(action, str):
        action = f"{action.name} {json.dumps(dict(action.arguments), ensure_ascii=False)}"
    result = step.result
    lines = [f"> {action}", *(f"  {line}".rstrip() for line in _lines(result.observation.text))]
    if result.reward or result.cause is not None:
        lines.append(f"  reward {result.reward:g}" + (f" ({end_text(result)})" if result.cause else ""))
    return "\n".join(lines)


def _lines(text: str) -> list[str]:
    # Only a line feed ends a line: other characters that might are shown where they stand.
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def end_text(result: StepResult) -> str:
    """Say whether and how an episode ended with a step."""
    return "not over" if result.cause is None else f"{result.cause.ending}, {result.cause}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """Hold everything that crossed the border between agent and environment in one episode."""

    environment: str
    version: str
    task: str
    seed: int
    prompt: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    steps: tuple[TranscriptStep, ...] = ()

    @property
    def total(self) -> float:
        """The return of the episode so far."""
        return self.steps[-1].result.total if self.steps else 0.0

    @property
    def cause(self) -> Cause | None:
        """Why the episode ended, or None when it did not."""
        return self.steps[-1].result.cause if self.steps else None

    def to_json(self) -> dict[str, JSON]:
        """Return the transcript as JSON."""
        return {
            "environment": self.environment,
            "version": self.version,
            "task": self.task,
            "seed": self.seed,
            "prompt": [message.to_json() for message in self.prompt],
            "tools": [tool.to_json() for tool in self.tools],
            "steps": [step.to_json() for step in self.steps],
        }

    def to_line(self) -> str:
        """Return the transcript as one line of canonical JSON: sorted keys, no spaces, ASCII only."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"), allow_nan=False)

    def digest(self) -> str:
        """Return the SHA-256 of the canonical line."""
        return hashlib.sha256(self.to_line().encode("ascii")).hexdigest()

    @classmethod
    def from_line(cls, line: str) -> Transcript:
        """Read what `to_line` wrote.

        Raises:
            TranscriptError: The line is not a transcript; the text says what is wrong.
        """
        try:
            return _read(json.loads(line))
        except json.JSONDecodeError as error:
            raise TranscriptError(f"not JSON: {error.msg} at column {error.colno}") from error
        except RecursionError:
            raise TranscriptError("not JSON: nested too deeply to be read") from None
        except ValidationError as error:
            detail = error.errors(include_url=False)[0]
            place = ".".join(map(str, detail["loc"])) or "a tool"
            raise TranscriptError(f"not a transcript: {place}: {detail['msg']}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TranscriptError(f"not a transcript: {error}") from error


_SPEC = TypeAdapter(ToolSpec)


def result_from_json(value: dict[str, Any]) -> StepResult:
    """Read what `StepResult.to_json` wrote.

    Raises:
        ValueError, KeyError, TypeError: The value is not a step result.
    """
    observation = observation_from_json(value["observation"])
    cause = Cause(value["cause"]) if "cause" in value else None
    parts = _typed(value.get("components", {}), dict, "components")
    components = {name: _number(part, name) for name, part in parts.items()} if parts else NO_COMPONENTS
    return StepResult(
        observation, _number(value["reward"], "reward"), _number(value["total"], "total"), cause, components
    )


def message_from_json(value: dict[str, Any]) -> Message:
    """Read what `Message.to_json` wrote.

    Raises:
        ValueError, KeyError, TypeError: The value is not a message.
    """
    if value["role"] not in get_args(Role):
        raise ValueError(f"a role is one of {', '.join(get_args(Role))}")
    return Message(value["role"], tuple(block_from_json(block) for block in value["blocks"]))


def action_from_json(value: Any) -> Action:
    """Read an action: text, or an object with a name and arguments. Any text is allowed, lone surrogates included.

    Raises:
        ValueError: The value is neither.
    """
    match value:
        case str():
            return value
        case {"name": str(name), "arguments": dict(arguments), **rest} if not rest:
            return ToolCall(name, arguments)
        case _:
            raise ValueError("an action is a text, or an object with 'name' and 'arguments'")


def spec_from_json(value: Any) -> ToolSpec:
    """Read what `ToolSpec.to_json` wrote.

    Raises:
        pydantic.ValidationError: The value is not a tool specification.
    """
    return _SPEC.validate_python(value)


def _typed(value: Any, kind: type[ValueT], name: str) -> ValueT:
    if type(value) is not kind:
        raise TypeError(f"{name} must be a {kind.__name__}, not a {type(value).__name__}")
    return value


def _number(value: Any, name: str) -> float:
    if type(value) not in {int, float} or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number")
    return cast("float", value)


def _read(value: dict[str, Any]) -> Transcript:
    return Transcript(
        environment=_typed(value["environment"], str, "environment"),
        version=_typed(value["version"], str, "version"),
        task=_typed(value["task"], str, "task"),
        seed=_typed(value["seed"], int, "seed"),
        prompt=tuple(message_from_json(message) for message in _typed(value["prompt"], list, "prompt")),
        tools=tuple(spec_from_json(tool) for tool in _typed(value["tools"], list, "tools")),
        steps=tuple(
            TranscriptStep(action_from_json(step["action"]), result_from_json(step["result"]))
            for step in _typed(value["steps"], list, "steps")
        ),
    )


def digest_of(transcripts: Iterable[Transcript]) -> str:
    """Return one SHA-256 for several transcripts: that of their own digests, one after the other."""
    digest = hashlib.sha256()
    for transcript in transcripts:
        digest.update(transcript.digest().encode("ascii"))
    return digest.hexdigest()


class Difference(NamedTuple):
    """Hold the first place where two transcripts differ.

    Attributes:
        step: The 0-based step, or None when the difference lies before the first step.
        piece: What differs: prompt, tools, observation, error, reward, total, ending, cause, components, action, length.
        left: The left side, as text.
        right: The right side, as text.
    """

    step: int | None
    piece: str
    left: str
    right: str

    def __str__(self) -> str:
        place = "before the first step" if self.step is None else f"at step {self.step}"
        return f"{self.piece} differs {place}\n  left:  {self.left}\n  right: {self.right}"


def first_difference(left: Transcript, right: Transcript) -> Difference | None:
    """Return the first place where two transcripts differ, or None when they are equal."""
    return next(differences(left, right), None)


def differences(left: Transcript, right: Transcript) -> Iterator[Difference]:
    """Yield every place where two transcripts differ, in order of time; within a step the most telling piece first."""
    for piece in ("environment", "version", "task", "seed"):
        yield from _compare(None, piece, getattr(left, piece), getattr(right, piece))
    yield from _compare(
        None, "prompt", [m.to_json() for m in left.prompt], [m.to_json() for m in right.prompt]
    )
    yield from _compare(None, "tools", [t.to_json() for t in left.tools], [t.to_json() for t in right.tools])
    for index, (a, b) in enumerate(zip(left.steps, right.steps, strict=False)):
        yield from step_differences(index, a, b)
    yield from _compare(
        min(len(left.steps), len(right.steps)),
        "length",
        f"{len(left.steps)} steps",
        f"{len(right.steps)} steps",
    )


def step_differences(index: int, a: TranscriptStep, b: TranscriptStep) -> Iterator[Difference]:
    """Yield what differs between two steps, the most telling piece first."""
    yield from _compare(index, "action", a.to_json()["action"], b.to_json()["action"])
    x, y = a.result, b.result
    yield from _compare(index, "error", x.observation.error, y.observation.error)
    yield from _compare(
        index,
        "observation",
        [block.to_json() for block in x.observation.blocks],
        [block.to_json() for block in y.observation.blocks],
    )
    yield from _compare(index, "reward", x.reward, y.reward)
    yield from _compare(index, "ending", x.ending, y.ending)
    yield from _compare(index, "cause", x.cause, y.cause)
    yield from _compare(index, "total", x.total, y.total)
    yield from _compare(index, "components", dict(x.components), dict(y.components))


def _compare(step: int | None, piece: str, left: Any, right: Any) -> Iterator[Difference]:
    a, b = (json.dumps(side, sort_keys=True, default=str) for side in (left, right))
    if a != b:
        yield Difference(step, piece, a, b)
