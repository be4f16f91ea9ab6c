"""Environments that break exactly one promise each; the name of the class says how."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from canonical.checker import Promise
from canonical.environment import Environment
from canonical.reward import Aggregation, Criterion, RewardSpec, Rubric
from canonical.step import Cause
from canonical.task import Task, TaskSet
from canonical.tool import ToolCall, ToolError, tool
from tests.canonical.miniatures import CANARY, Count, Counter, Waiter

LIARS: dict[type[Environment[Any]], Promise] = {}
"""Every liar, and the promise that it breaks."""


def breaks(promise: Promise) -> Any:
    def register(cls: type[Environment[Any]]) -> type[Environment[Any]]:
        LIARS[cls] = promise
        return cls

    return register


class NoOracle(Counter):
    """Count without an oracle, so that what a rubric does is not the oracle's business too."""

    name = "no_oracle"

    def oracle(self, task: Task) -> Iterable[ToolCall]:
        return Environment.oracle(self, task)


@breaks(Promise.DEFINITION)
class BadlyNamed(Counter):
    """Have a name that no identifier can be made of."""

    name = "badly named!"


@breaks(Promise.TASKS)
class ForgetsItsTasks(Counter):
    """Return other secrets at every call."""

    name = "forgets_its_tasks"

    def __init__(self) -> None:
        self.calls = 0

    def tasks(self) -> TaskSet:
        self.calls += 1
        return TaskSet([Task(id="train/1", inputs={"largest": 9}, secret={"goal": 3, "call": self.calls})])


@breaks(Promise.TASKS)
class GrowsItsTasks(Counter):
    """Return one more task at every call."""

    name = "grows_its_tasks"

    def __init__(self) -> None:
        self.calls = 0

    def tasks(self) -> TaskSet:
        self.calls += 1
        return TaskSet(
            [
                Task(id=f"train/{number}", inputs={"largest": 9}, secret={"goal": 3})
                for number in range(self.calls)
            ]
        )


@breaks(Promise.TOOLS)
class DescribesNoArgument(Counter):
    """Leave an argument without a description."""

    name = "describes_no_argument"

    @tool
    def add(self, state: Count, amount: int = 1) -> str:
        """Add to the counter."""
        return super().add(state, amount)


@breaks(Promise.START)
class RemembersItsStarts(NoOracle):
    """Start from a number of its own instead of the task's."""

    name = "remembers_its_starts"

    def __init__(self) -> None:
        self.starts = 0

    def start(self, task: Task, rng: random.Random) -> Count:
        self.starts += 1
        return Count(1_000_000, self.starts)


@breaks(Promise.START)
class FailsToStart(Counter):
    """Fail at the start of one task."""

    name = "fails_to_start"

    def start(self, task: Task, rng: random.Random) -> Count:
        if task.id == "train/5":
            raise KeyError("five")
        return super().start(task, rng)


@breaks(Promise.PROMPT)
class SaysNothing(Counter):
    """Have an empty prompt."""

    name = "says_nothing"

    def prompt(self, task: Task, state: Count) -> str:
        return " \n"


@breaks(Promise.PROMPT)
class FailsToPrompt(Counter):
    """Raise while the prompt is read."""

    name = "fails_to_prompt"

    def prompt(self, task: Task, state: Count) -> str:
        raise LookupError("no template")


@breaks(Promise.PROMPT)
class PromptsWithTheWrongThing(Counter):
    """Return texts where messages are wanted."""

    name = "prompts_with_the_wrong_thing"

    def prompt(self, task: Task, state: Count) -> Any:
        return ["Count."]


@breaks(Promise.PROMPT)
class CountsItsReaders(NoOracle):
    """Change the state whenever the prompt is read."""

    name = "counts_its_readers"

    def prompt(self, task: Task, state: Count) -> str:
        state.goal += 1
        return "Count."


@breaks(Promise.RANDOMNESS)
class StirsTheGlobalGenerator(Counter):
    """Draw from the global generator, without even using the number."""

    name = "stirs_the_global_generator"

    @tool
    def add(self, state: Count, amount: int = 1) -> str:
        """Add to the counter.

        Args:
            amount: How much to add.
        """
        random.random()
        return super().add(state, amount)


@breaks(Promise.RANDOMNESS)
class SeedsTheGlobalGenerator(Counter):
    """Seed the global generator at the start."""

    name = "seeds_the_global_generator"

    def start(self, task: Task, rng: random.Random) -> Count:
        random.seed(1)
        return super().start(task, rng)


@breaks(Promise.DETERMINISM)
class CountsItsCalls(Counter):
    """Show how often any session has called a tool."""

    name = "counts_its_calls"

    def __init__(self) -> None:
        self.calls = 0

    @tool
    def add(self, state: Count, amount: int = 1) -> str:
        """Add to the counter.

        Args:
            amount: How much to add.
        """
        self.calls += 1
        return f"{super().add(state, amount)} This was call {self.calls}."


@breaks(Promise.ISOLATION)
class ShowsHowManyPlay(Counter):
    """Show how many sessions are open."""

    name = "shows_how_many_play"

    def __init__(self) -> None:
        self.open = 0

    def start(self, task: Task, rng: random.Random) -> Count:
        self.open += 1
        return super().start(task, rng)

    @tool
    def add(self, state: Count, amount: int = 1) -> str:
        """Add to the counter.

        Args:
            amount: How much to add.
        """
        return f"{super().add(state, amount)} {self.open} of you play."

    def close(self, state: Count) -> None:
        self.open -= 1


class HasOneCurrentState(NoOracle):
    """Act on the state of the session that was started last, which breaks more than one promise."""

    name = "has_one_current_state"

    def start(self, task: Task, rng: random.Random) -> Count:
        self.current = super().start(task, rng)
        return self.current

    @tool
    def add(self, state: Count, amount: int = 1) -> str:
        """Add to the counter.

        Args:
            amount: How much to add.
        """
        return super().add(self.current, amount)


class UsesTheGlobalGenerator(NoOracle):
    """Roll with the global generator, which breaks more than one promise."""

    name = "uses_the_global_generator"

    @tool
    def roll(self, state: Count) -> str:
        """Roll."""
        return str(random.random())


@breaks(Promise.ENDINGS)
class MovesItsGoalposts(NoOracle):
    """Allow one more turn whenever it is asked how many there are."""

    name = "moves_its_goalposts"

    def __init__(self) -> None:
        self.allowed = 5

    @property
    def max_turns(self) -> int:  # type: ignore[override]
        self.allowed += 1
        return self.allowed

    def outcome(self, state: Count) -> Cause | None:
        return None


@breaks(Promise.REWARD)
class PaysNoNumber(NoOracle):
    """Score with a number that is none."""

    name = "pays_no_number"
    rubric: Rubric[Count] = Criterion("reached", lambda state: float("nan") if state.value > 1 else 0.0)


@breaks(Promise.REWARD)
class PaysTooMuch(NoOracle):
    """Pay more than it declares."""

    name = "pays_too_much"
    reward = RewardSpec(Aggregation.SUM, 0.0, 2.0)
    rubric: Rubric[Count] = Criterion("reached", lambda state: 1.0)

    @tool
    def add(self, state: Count, amount: int = 1) -> str:
        """Add nothing, so that the episode goes on.

        Args:
            amount: Ignored.
        """
        return "Nothing."


@breaks(Promise.REWARD)
class CannotScore(NoOracle):
    """Fail to score some states."""

    name = "cannot_score"
    rubric: Rubric[Count] = Criterion("reached", lambda state: 1 / (state.value % 2))
    reward = RewardSpec(Aggregation.TERMINAL, -1e9, 1e9)


@breaks(Promise.ORACLE)
class HasAModestOracle(Counter):
    """Have an oracle that overshoots."""

    name = "has_a_modest_oracle"

    def oracle(self, task: Task) -> Iterable[ToolCall]:
        return [ToolCall("add", {"amount": 50})]


@breaks(Promise.ORACLE)
class HasALazyOracle(Counter):
    """Have an oracle that stops half way."""

    name = "has_a_lazy_oracle"

    def oracle(self, task: Task) -> Iterable[ToolCall]:
        return [ToolCall("add", {"amount": 0})]


@breaks(Promise.ORACLE)
class HasABrokenOracle(Counter):
    """Have an oracle that raises."""

    name = "has_a_broken_oracle"

    def oracle(self, task: Task) -> Iterable[ToolCall]:
        raise ZeroDivisionError


@breaks(Promise.SECRETS)
class TellsInThePrompt(Counter):
    """Put the secret into the prompt."""

    name = "tells_in_the_prompt"

    def prompt(self, task: Task, state: Count) -> str:
        return f"Count. (Debug: {task.secret['code']})"


@breaks(Promise.SECRETS)
class TellsWhenAsked(Counter):
    """Answer one tool with the secret."""

    name = "tells_when_asked"

    @tool
    def hint(self, state: Count) -> str:
        """Give a hint."""
        return f"I must not say {CANARY.upper()}-{state.goal}."


@breaks(Promise.SECRETS)
class TellsInAnError(Counter):
    """Put the secret into the text of an error."""

    name = "tells_in_an_error"

    @tool
    def refuse(self, state: Count) -> str:
        """Refuse rudely."""
        raise ToolError(f"{CANARY}-{state.goal} is not for you.")


@breaks(Promise.SECRETS)
class TellsInTheStatus(Counter):
    """Put the secret into the status line."""

    name = "tells_in_the_status"

    def status(self, state: Count) -> str:
        return f"The counter stays at {state.value}, not at {CANARY}-{state.goal}."


@breaks(Promise.SECRETS)
class TellsInTheLog(Counter):
    """Write the secret to the log."""

    name = "tells_in_the_log"

    @tool
    def add(self, state: Count, amount: int = 1) -> str:
        """Add to the counter.

        Args:
            amount: How much to add.
        """
        logging.getLogger("tests.liars").warning("the code is %s-%s", CANARY, state.goal)
        return super().add(state, amount)


@breaks(Promise.SECRETS)
class TellsTheOnlySecret(Counter):
    """Have one task, so that there is no other to compare with, and show its secret."""

    name = "tells_the_only_secret"

    def tasks(self) -> TaskSet:
        return TaskSet([Task(id="train/only", secret={"goal": 3, "nested": [{"code": "open sesame"}]})])

    def prompt(self, task: Task, state: Count) -> str:
        return "Say Open Sesame."


@breaks(Promise.ERRORS)
class NotesEveryError(Counter):
    """Change the state when an action fails."""

    name = "notes_every_error"

    def status(self, state: Count) -> str:
        state.value += state.value % 7
        state.goal += 10
        return "Noted."


@breaks(Promise.EXCEPTIONS)
class TripsOverANumber(Counter):
    """Raise in a tool when an argument is negative."""

    name = "trips_over_a_number"

    @tool
    def add(self, state: Count, amount: int = 1) -> str:
        """Add to the counter.

        Args:
            amount: How much to add.
        """
        if amount < 0:
            raise IndexError("below zero")
        return super().add(state, amount)


@breaks(Promise.EXCEPTIONS)
class CannotTellTheEnd(NoOracle):
    """Raise in the rules."""

    name = "cannot_tell_the_end"

    def outcome(self, state: Count) -> Cause | None:
        if state.value > 3:
            raise ValueError("too far")
        return super().outcome(state)


@breaks(Promise.EXCEPTIONS)
class EndsWithAWord(NoOracle):
    """Return something else than a cause from the rules."""

    name = "ends_with_a_word"

    def outcome(self, state: Count) -> Cause | None:
        return "won" if state.value > 3 else None  # type: ignore[return-value]


@breaks(Promise.EXCEPTIONS)
class HasABrokenStatus(Counter):
    """Raise in the status line."""

    name = "has_a_broken_status"

    def status(self, state: Count) -> str:
        raise AttributeError("no status")


@breaks(Promise.EXCEPTIONS)
class ReturnsNothing(Counter):
    """Return no content from a tool."""

    name = "returns_nothing"

    @tool
    def refuse(self, state: Count) -> Any:
        """Forget to answer."""


@breaks(Promise.EXCEPTIONS)
class HintsBadly(Counter):
    """Raise while a random call is asked for."""

    name = "hints_badly"

    def random_call(self, task: Task, rng: random.Random) -> ToolCall:
        raise NotImplementedError


@dataclass(eq=False)
class Tally:
    """Hold a number; compared by identity, so that it can be a key."""

    value: int = 0


@breaks(Promise.SNAPSHOT)
class KeepsAMemoryBesideTheState(Environment[Tally]):
    """Keep a part of the state outside the state."""

    name = "keeps_a_memory_beside_the_state"
    max_turns = 6
    rubric: Rubric[Tally] = Criterion("one", lambda _: 1.0)

    def __init__(self) -> None:
        self.memory: WeakKeyDictionary[Tally, int] = WeakKeyDictionary()

    def tasks(self) -> TaskSet:
        return TaskSet([Task(id="train/0")])

    def start(self, task: Task, rng: random.Random) -> Tally:
        return Tally()

    def prompt(self, task: Task, state: Tally) -> str:
        return "Count."

    @tool
    def count(self, state: Tally) -> str:
        """Count."""
        self.memory[state] = self.memory.get(state, 0) + 1
        return f"Call {self.memory[state]}."


@breaks(Promise.CLOSE)
class CannotBeClosedEarly(Counter):
    """Raise when it is closed before the end."""

    name = "cannot_be_closed_early"

    def close(self, state: Count) -> None:
        if self.outcome(state) is None:
            raise RuntimeError("still playing")


@breaks(Promise.CLOSE)
class CannotBeClosedAsync(Waiter):
    """Raise in a close that waits."""

    name = "cannot_be_closed_async"

    async def close(self, state: Count) -> None:
        await super().close(state)
        raise OSError("gone")
