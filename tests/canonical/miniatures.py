"""Small environments for tests: each shows one thing, and its name says which."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from pydantic import BaseModel

from canonical.catalogue import load_environment
from canonical.content import Block, Image, Message, Observation, Text
from canonical.environment import Environment, Rng
from canonical.reward import (
    Aggregation,
    Criterion,
    Exchanges,
    RewardSpec,
    Rubric,
    TrajectoryCriterion,
    WeightedSum,
)
from canonical.step import Cause
from canonical.task import Task, TaskSet
from canonical.tool import ToolCall, ToolError, tool

CANARY = "canary-7f3a9e"
"""A secret that no test text holds by chance."""


@dataclass(slots=True)
class Count:
    """Hold a counter and the value that it should reach."""

    goal: int
    value: int = 0


def _reached(state: Count) -> float:
    return float(state.value == state.goal)


class Counter(Environment[Count]):
    """Count to a secret goal in five turns; every failed action costs one."""

    name = "counter"
    max_turns = 5
    rubric: Rubric[Count] = Criterion("reached", _reached)

    def tasks(self) -> TaskSet:
        return TaskSet(
            Task(id=f"train/{goal}", inputs={"largest": 9}, secret={"goal": goal, "code": f"{CANARY}-{goal}"})
            for goal in range(1, 8)
        )

    def start(self, task: Task, rng: random.Random) -> Count:
        return Count(int(str(task.secret["goal"])))

    def prompt(self, task: Task, state: Count) -> str:
        return f"Count to the hidden goal, at most {task.inputs['largest']}."

    @tool
    def add(self, state: Count, amount: int = 1) -> str:
        """Add to the counter.

        Args:
            amount: How much to add.
        """
        state.value += amount
        return f"The counter is at {state.value}."

    @tool
    def refuse(self, state: Count) -> str:
        """Refuse politely."""
        raise ToolError("No.")

    def outcome(self, state: Count) -> Cause | None:
        if state.value == state.goal:
            return Cause.SOLVED
        return Cause.FAILED if state.value > state.goal else None

    def status(self, state: Count) -> str:
        return f"The counter stays at {state.value}."

    def oracle(self, task: Task) -> Iterable[ToolCall]:
        return (ToolCall("add", {"amount": task.secret["goal"]}),)


class ForgivingCounter(Counter):
    """Count, with two failed actions for free."""

    name = "forgiving_counter"
    free_errors = 2


class SilentCounter(Counter):
    """Count without a status line."""

    name = "silent_counter"

    def status(self, state: Count) -> str:
        return ""


@dataclass(slots=True)
class Cup:
    """Hold dice and the generator that rolls them."""

    rng: Rng
    rolls: list[int] = field(default_factory=list)


def _last_roll(state: Cup) -> float:
    return state.rolls[-1] / 100 if state.rolls else 0.0


class Dice(Environment[Cup]):
    """Roll dice with the episode's own generator; every roll pays."""

    name = "dice"
    max_turns = 6
    reward = RewardSpec(Aggregation.SUM, 0.0, 6.0)
    rubric: Rubric[Cup] = Criterion("roll", _last_roll)

    def tasks(self) -> TaskSet:
        return TaskSet(Task(id=f"train/{index}") for index in range(3))

    def start(self, task: Task, rng: random.Random) -> Cup:
        return Cup(rng, [rng.randint(1, 6)])

    def prompt(self, task: Task, state: Cup) -> str:
        return f"The first roll gave {state.rolls[0]}."

    @tool
    def roll(self, state: Cup, sides: int = 6) -> str:
        """Roll a die.

        Args:
            sides: The number of sides, from 1 to 100.
        """
        if not 1 <= sides <= 100:
            raise ToolError("A die has 1 to 100 sides.")
        state.rolls.append(state.rng.randint(1, sides))
        return f"You rolled {state.rolls[-1]}; noise {state.rng.gauss(0, 1):.6f}."


@dataclass(slots=True)
class Place:
    """Hold a height that tools set, and whether the agent has stopped."""

    height: float = 0.0
    stopped: bool = False


def _height(state: Place) -> float:
    return state.height


class Climb(Environment[Place]):
    """Stand at a height of one's choice; what it pays depends on the aggregation."""

    name = "climb"
    max_turns = 8
    reward = RewardSpec(Aggregation.TERMINAL, -10.0, 10.0)
    rubric: Rubric[Place] = Criterion("height", _height)
    highest: ClassVar[float] = 10.0

    def tasks(self) -> TaskSet:
        return TaskSet([Task(id="train/hill")])

    def start(self, task: Task, rng: random.Random) -> Place:
        return Place()

    def prompt(self, task: Task, state: Place) -> str:
        return "Choose a height."

    @tool
    def move(self, state: Place, height: float) -> str:
        """Move to a height.

        Args:
            height: The new height.
        """
        if not abs(height) <= self.highest:
            raise ToolError("Nobody can stand there.")
        state.height = height
        return f"You are at {height!r}."

    @tool
    def stop(self, state: Place) -> str:
        """Stop here."""
        state.stopped = True
        return "You stay."

    def outcome(self, state: Place) -> Cause | None:
        return Cause.SUBMITTED if state.stopped else None

    def random_call(self, task: Task, rng: random.Random) -> ToolCall:
        return rng.choice([ToolCall("move", {"height": rng.randint(-9, 9)}), ToolCall("stop")])


class DenseClimb(Climb):
    """Pay the height of every move."""

    name = "dense_climb"
    highest = 100.0
    reward = RewardSpec(Aggregation.SUM, -1000.0, 1000.0)


class LatestClimb(Climb):
    """Pay the latest height."""

    name = "latest_climb"
    reward = RewardSpec(Aggregation.LAST, -10.0, 10.0)


class TwoPartClimb(Climb):
    """Pay the height in two parts."""

    name = "two_part_climb"
    reward = RewardSpec(Aggregation.LAST, -10.0, 10.0)
    rubric: Rubric[Place] = WeightedSum((0.75, Criterion("near", _height)), (0.25, Criterion("far", _height)))


def _pictures(_: Place, exchanges: Exchanges) -> float:
    blocks = [block for exchange in exchanges for block in exchange.observation.blocks]
    return sum(isinstance(block, Image) for block in blocks) / 10


class Gallery(Environment[Place]):
    """Score the whole trajectory, whose observations hold images."""

    name = "gallery"
    max_turns = 6
    rubric: Rubric[Place] = TrajectoryCriterion("pictures", _pictures)

    def tasks(self) -> TaskSet:
        return TaskSet([Task(id="train/hall")])

    def start(self, task: Task, rng: random.Random) -> Place:
        return Place()

    def prompt(self, task: Task, state: Place) -> Sequence[Message]:
        return (
            Message("system", (Text("You visit a gallery."),)),
            Message("user", (Text("Look around."), Image(b"\x89PNG\xff\x00", "image/png"))),
        )

    @tool
    def look(self, state: Place, angle: int = 0) -> Sequence[Block]:
        """Look at a picture.

        Args:
            angle: Where to look, in degrees.
        """
        return [Text(f"At {angle} degrees:"), Image(bytes([255, 216, angle % 256]), "image/jpeg")]

    @tool
    def leave(self, state: Place) -> Observation:
        """Leave the gallery."""
        state.stopped = True
        return Observation.of("You leave.")

    def outcome(self, state: Place) -> Cause | None:
        return Cause.SUBMITTED if state.stopped else None


class Waiter(Environment[Count]):
    """Wait for an event loop in start, tools and close."""

    name = "waiter"
    max_turns = 4
    rubric: Rubric[Count] = Criterion("reached", _reached)
    closed: ClassVar[list[int]] = []

    def tasks(self) -> TaskSet:
        return TaskSet([Task(id="train/table")])

    async def start(self, task: Task, rng: random.Random) -> Count:
        await asyncio.sleep(0)
        return Count(3)

    def prompt(self, task: Task, state: Count) -> str:
        return "Order three dishes."

    @tool
    async def order(self, state: Count, dishes: int = 1) -> str:
        """Order dishes.

        Args:
            dishes: How many.
        """
        await asyncio.sleep(0.0001)
        state.value += dishes
        return f"{state.value} dishes are on the table."

    @tool
    def ask(self, state: Count) -> str:
        """Ask what is on the table, without waiting."""
        return f"There are {state.value}."

    def outcome(self, state: Count) -> Cause | None:
        return Cause.SOLVED if state.value >= state.goal else None

    async def close(self, state: Count) -> None:
        await asyncio.sleep(0.0001)
        self.closed.append(id(state))

    def oracle(self, task: Task) -> Iterable[ToolCall]:
        return [ToolCall("order", {"dishes": 3})]


class Fragile(Counter):
    """Raise whatever a test puts into `error`, in whichever method it names."""

    name = "fragile"

    def __init__(self, error: BaseException, place: str = "tool") -> None:
        self.error = error
        self.place = place
        self.rubric = Criterion("reached", self._measure)
        self.closed = 0

    def start(self, task: Task, rng: random.Random) -> Count:
        self._raise_in("start")
        return super().start(task, rng)

    def prompt(self, task: Task, state: Count) -> str:
        self._raise_in("prompt")
        return super().prompt(task, state)

    def _raise_in(self, place: str) -> None:
        if self.place == place:
            raise self.error

    def _measure(self, state: Count) -> float:
        self._raise_in("rubric")
        return _reached(state)

    @tool
    def add(self, state: Count, amount: int = 1) -> str:
        """Add to the counter.

        Args:
            amount: How much to add.
        """
        self._raise_in("tool")
        state.value += amount
        return f"The counter is at {state.value}."

    def outcome(self, state: Count) -> Cause | None:
        self._raise_in("outcome")
        return super().outcome(state)

    def status(self, state: Count) -> str:
        self._raise_in("status")
        return super().status(state)

    def close(self, state: Count) -> None:
        self.closed += 1
        self._raise_in("close")


class Answering(Counter):
    """Return whatever a test puts into `output` from its only tool."""

    name = "answering"

    def __init__(self, output: Any) -> None:
        self.output = output

    @tool
    def add(self, state: Count, amount: int = 1) -> Any:
        """Answer.

        Args:
            amount: Ignored.
        """
        return self.output


class Scoring(Climb):
    """Score with whatever function a test passes."""

    name = "scoring"
    highest = float("inf")

    def __init__(self, spec: RewardSpec, measure: Callable[[Place], Any]) -> None:
        self.spec = spec
        self.rubric = Criterion("height", measure)

    @property
    def reward(self) -> RewardSpec:  # type: ignore[override]
        return self.spec


class Closing(Counter):
    """Count how often close was called."""

    name = "closing"

    def __init__(self) -> None:
        self.closed: list[Count] = []

    def close(self, state: Count) -> None:
        self.closed.append(state)


class Handle(Closing):
    """Keep something outside the state that its status needs until it is closed."""

    name = "handle"

    def status(self, state: Count) -> str:
        if any(closed is state for closed in self.closed):
            raise RuntimeError(f"the handle is gone, {CANARY}")
        return super().status(state)


class Suit(StrEnum):
    """Name a suit."""

    HEARTS = "hearts"
    SPADES = "spades"


@dataclass(frozen=True)
class Card:
    """Hold a card; hashable, so that it can lie in a set."""

    suit: Suit
    rank: int


@dataclass
class Hand:
    """Hold nested, typed data."""

    cards: list[Card]
    seen: set[int]
    history: tuple[tuple[str, int], ...]
    scores: dict[int, float]
    note: str | None = None
    data: bytes = b""


class Table(BaseModel):
    """Hold nested data as a pydantic model, with a generator in it."""

    hands: dict[str, Hand]
    rng: Rng
    frozen: frozenset[str] = frozenset()

    model_config = {"arbitrary_types_allowed": True}


class _Store(Environment[Any]):
    """Draw numbers into the state; subclasses choose how the state is built."""

    max_turns = 10
    reward = RewardSpec(Aggregation.SUM, -1e6, 1e6)
    rubric: Rubric[Any] = Criterion("one", lambda _: 1.0)

    def tasks(self) -> TaskSet:
        return TaskSet([Task(id="train/store"), Task(id="train/other")])

    def prompt(self, task: Task, state: Any) -> str:
        return "Draw."


class DataclassStore(_Store):
    """Keep a nested dataclass."""

    name = "dataclass_store"

    def start(self, task: Task, rng: random.Random) -> Hand:
        return Hand([Card(Suit.HEARTS, rng.randint(1, 9))], {1, 2}, (("a", 1),), {1: 0.5})

    @tool
    def draw(self, state: Hand, rank: int) -> str:
        """Draw a card.

        Args:
            rank: Its rank.
        """
        state.cards.append(Card(Suit.SPADES, rank))
        state.seen.add(rank)
        state.history = (*state.history, ("draw", rank))
        state.scores[rank] = state.scores.get(rank, 0.0) + 0.1
        return f"{state.cards} {sorted(state.seen)} {state.history} {state.scores}"


class ModelStore(_Store):
    """Keep a pydantic model that holds dataclasses and a generator."""

    name = "model_store"

    def start(self, task: Task, rng: random.Random) -> Table:
        hand = Hand([], set(), (), {})
        return Table(hands={"me": hand}, rng=rng, frozen=frozenset({"x"}))

    @tool
    def draw(self, state: Table, rank: int) -> str:
        """Draw a card.

        Args:
            rank: Its highest rank.
        """
        drawn = state.rng.randint(0, max(rank, 1))
        state.hands["me"].seen.add(drawn)
        return f"{drawn} {sorted(state.hands['me'].seen)} {sorted(state.frozen)} {state.rng.gauss(0, 1):.6f}"


class DictStore(_Store):
    """Keep a mapping of JSON values."""

    name = "dict_store"

    def start(self, task: Task, rng: random.Random) -> dict[str, Any]:
        return {"drawn": [rng.randint(1, 9)], "nested": {"deep": [1, {"x": None}]}}

    @tool
    def draw(self, state: dict[str, Any], rank: int) -> str:
        """Draw a number.

        Args:
            rank: The number.
        """
        state["drawn"].append(rank)
        return f"{state}"


class TypedDictStore(DictStore):
    """Keep a mapping whose annotation says more than its values."""

    name = "typed_dict_store"

    def start(self, task: Task, rng: random.Random) -> dict[str, set[int]]:
        return {"seen": {rng.randint(1, 9)}}

    @tool
    def draw(self, state: dict[str, set[int]], rank: int) -> str:
        """Draw a number.

        Args:
            rank: The number.
        """
        state["seen"].add(rank)
        return f"{sorted(state['seen'])}"


class CustomStore(_Store):
    """Keep whatever a test's function makes."""

    name = "custom_store"

    def __init__(self, make: Callable[[random.Random], Any]) -> None:
        self.make = make

    def start(self, task: Task, rng: random.Random) -> Any:
        return self.make(rng)

    @tool
    def draw(self, state: Any, rank: int) -> str:
        """Draw nothing.

        Args:
            rank: Ignored.
        """
        return "Nothing."


@dataclass
class Outer:
    """Hold two parts that share one generator."""

    rng: Rng
    again: Rng


@dataclass
class Loose:
    """Hold a value whose annotation says nothing."""

    value: Any


STORES: tuple[type[_Store], ...] = (DataclassStore, ModelStore, DictStore, TypedDictStore)
"""The environments whose state is plain data in four shapes, each with the tool `draw(rank)`."""


def environment_of(name: str) -> Environment[Any]:
    """Return the environment of the catalogue, or the miniature, that has a name."""
    for cls in list(globals().values()):
        if isinstance(cls, type) and issubclass(cls, Environment) and getattr(cls, "name", None) == name:
            made: Environment[Any] = cls()
            return made
    return load_environment(name)
