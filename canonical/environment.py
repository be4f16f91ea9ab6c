"""Environment: the one class that an author subclasses."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable, Sequence
from functools import cache
from inspect import iscoroutinefunction
from typing import Annotated, ClassVar, Generic, TypeAlias, TypeVar

from pydantic import PlainSerializer, PlainValidator

from canonical.content import Message, Text
from canonical.reward import RewardSpec, Rubric
from canonical.step import Cause
from canonical.task import Task, TaskSet
from canonical.tool import Tool, ToolCall, collect_tools

StateT = TypeVar("StateT")


class NoOracleError(LookupError):
    """Report that an environment has no known solution for a task."""


def _rng_to_json(rng: random.Random) -> list[object]:
    version, words, gauss = rng.getstate()
    return [version, list(words), gauss]


def _rng_from_json(value: object) -> random.Random:
    if isinstance(value, random.Random):
        return value
    rng = random.Random(0)  # noqa: S311 - games need reproducible numbers, not secret ones
    match value:
        case [int(version), [*words], None | float() as gauss]:
            try:
                rng.setstate((version, tuple(words), gauss))
            except (TypeError, ValueError, OverflowError):
                raise ValueError("this is not the state of a generator") from None
            return rng
        case _:
            raise ValueError("a generator is stored as a list of version, words and gauss")


Rng: TypeAlias = Annotated[random.Random, PlainValidator(_rng_from_json), PlainSerializer(_rng_to_json)]
"""The type of a state's field that keeps the episode's generator, so that a snapshot can hold it."""


class Environment(ABC, Generic[StateT]):
    """Define the rules, the tools and the reward of an environment.

    Everything that happens in an episode lives in its state, which only `start` and the tools make or change. A state
    of plain data (a dataclass, a pydantic model, or a mapping of JSON values) can be stored and forked.

    Attributes:
        name: The name in the catalogue: a lower-case identifier.
        version: Raised whenever the same actions could lead to another transcript.
        max_turns: How many actions an episode may take; then it is truncated with cause `budget`.
        free_errors: How many actions that fail (unknown tool, bad arguments, unparsable text, a tool's error) cost no
            turn. Later ones cost a turn, so every episode ends.
        reward: The declared range and aggregation.
        rubric: What scores the state.
        quick: Whether `start`, every tool and the rubric take at most about a millisecond, so that a server may run them
            on its event loop. Otherwise plain functions get a thread, in which they may take as long as they like.
        dear: Whether an episode costs seconds, as one does whose end is graded in sandboxes. Checks then play few of them,
            and what conformance proves with environments that cost nothing is not proven over and over with this one.
        text_tool: The tool that assistant text stands for: text that calls no tool is its one argument, `text`. None where
            text without a call is an error, as in environments that have tools for everything.
    """

    name: ClassVar[str]
    version: ClassVar[str] = "1"
    max_turns: ClassVar[int]
    free_errors: ClassVar[int] = 0
    reward: ClassVar[RewardSpec] = RewardSpec()
    rubric: Rubric[StateT]
    quick: ClassVar[bool] = False
    dear: ClassVar[bool] = False
    text_tool: ClassVar[str | None] = None

    @abstractmethod
    def tasks(self) -> TaskSet:
        """Return all tasks, in order. The same set is returned at every call."""

    @abstractmethod
    def start(self, task: Task, rng: random.Random) -> StateT | Awaitable[StateT]:
        """Return the first state of an episode; a pure function of the task and the generator.

        Args:
            task: The task to play.
            rng: The generator of this episode, seeded from environment, version, task and seed. It is the only source
                of randomness; an environment that needs it later keeps it in the state, in a field of type `Rng`.
        """

    @abstractmethod
    def prompt(self, task: Task, state: StateT) -> str | Sequence[Message]:
        """Return what the model reads first: one user message as text, or several messages."""

    def outcome(self, state: StateT) -> Cause | None:  # noqa: ARG002 - a default for authors to override
        """Return why the episode is over in this state, or None while it goes on."""
        return None

    def status(self, state: StateT) -> str:  # noqa: ARG002 - as outcome
        """Return a line that ends the observation of every action that failed, so that the model keeps its bearings."""
        return ""

    def close(self, state: StateT) -> Awaitable[None] | None:
        """Free what the state holds outside itself. Called exactly once per episode."""

    def oracle(self, task: Task) -> Iterable[ToolCall]:
        """Return calls that solve a task, for tests and reference rollouts.

        Raises:
            NoOracleError: No solution is known.
        """
        raise NoOracleError(f"{self.name} has no oracle for task {task.id}")

    def require(self) -> None:
        """Raise what keeps every episode from starting here, as far as it is known before one is; by default nothing does.

        Commands ask this first, so an environment overrides it with what is quickly seen, such as a setting that is wrong.
        """

    async def flaws(self, task: Task) -> Sequence[str]:  # noqa: ARG002 - as outcome
        """Return what is wrong with a task itself, as sentences for its author; nothing by default.

        The check asks this first. An environment overrides it when it can try what it knows about a task beyond the
        oracle, such as solutions that must not be paid in full.
        """
        return ()

    def random_call(self, task: Task, rng: random.Random) -> ToolCall | None:  # noqa: ARG002 - as outcome
        """Return a plausible random call for this task, or None to let the schema of the tools decide."""
        return None

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that the agent may call, in order of definition."""
        return tools_of(type(self))

    @property
    def described_tools(self) -> tuple[Tool, ...]:
        """The tools that a model must be told how to call by text: not the one that text stands for."""
        return tuple(tool for tool in self.tools if tool.name != self.text_tool)

    @property
    def waits(self) -> bool:
        """Whether a tool, the rubric, `start` or `close` is a coroutine function, so that episodes need an event loop."""
        return (
            any(tool.is_async for tool in self.tools)
            or self.rubric.is_async
            or iscoroutinefunction(self.start)
            or iscoroutinefunction(self.close)
        )

    def opening(self, task: Task, state: StateT) -> tuple[Message, ...]:
        """Return the prompt as messages."""
        prompt = self.prompt(task, state)
        if isinstance(prompt, str):
            return (Message("user", (Text(prompt),)),)
        messages = tuple(prompt)
        if not all(isinstance(message, Message) for message in messages):
            raise TypeError("a prompt is a text or a sequence of messages")
        return messages


tools_of = cache(collect_tools)
"""The tools of an environment class, in order of definition."""
