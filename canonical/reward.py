"""Rewards: what an environment declares, how a rubric scores, and the ledger of what was paid."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from canonical.content import Observation
from canonical.tool import ToolCall

StateT = TypeVar("StateT")
ResultT = TypeVar("ResultT")


class ScoringError(RuntimeError):
    """Report that no valid reward could be computed. It is never replaced by a reward of 0.

    Attributes:
        failure: What the rubric or the rules raised, if they did. It may hold secrets, and the text holds nothing of it.
    """

    failure: BaseException | None = None


class OutcomeError(ScoringError):
    """Report that the rules of an environment failed, so that nobody can say whether the episode is over."""


class Aggregation(StrEnum):
    """Say how the scores of an episode become its return."""

    SUM = "sum"
    LAST = "last"
    TERMINAL = "terminal"


@dataclass(frozen=True, slots=True)
class RewardSpec:
    """Declare the reward of an environment.

    Attributes:
        aggregation: `terminal`: the rubric scores once, at the end. `sum`: it scores every action that was carried
            out, and the scores add up. `last`: it scores every action that was carried out and at the end, and each
            score replaces the one before.
        low: The smallest possible return.
        high: The largest possible return.
    """

    aggregation: Aggregation = Aggregation.TERMINAL
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"the reward range [{self.low}, {self.high}] must be finite and not empty")


@dataclass(frozen=True, slots=True)
class Score:
    """Hold a score as named parts; the total is their correctly rounded sum."""

    parts: Mapping[str, float]

    @property
    def total(self) -> float:
        """The sum of the parts."""
        return math.fsum(self.parts.values())


class Exchange(NamedTuple):
    """Hold one action and the observation that answered it."""

    action: ToolCall | str
    observation: Observation


Exchanges: TypeAlias = Sequence[Exchange]


def finish(coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run a coroutine that never waits, without an event loop.

    Raises:
        RuntimeError: The coroutine waited for something, so it needs an event loop.
    """
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: ResultT = done.value
        return result
    coroutine.close()
    raise RuntimeError("this call waits for something; await the async variant instead")


class Rubric(ABC, Generic[StateT]):
    """Score the state of an episode.

    Attributes:
        is_async: Whether scoring waits for something, such as a model's answer.
        uses_exchanges: Whether the score depends on the whole trajectory, so that the episode has to keep it.
    """

    is_async: bool = False
    uses_exchanges: bool = False

    @abstractmethod
    async def evaluate(self, state: StateT, exchanges: Exchanges) -> Score:
        """Return the score of a state; `exchanges` is empty unless `uses_exchanges`.

        Raises:
            ScoringError: No score could be computed.
        """

    def score(self, state: StateT, exchanges: Exchanges = ()) -> Score:
        """Return the score of a state, for rubrics that do not wait.

        Raises:
            ScoringError: No score could be computed.
        """
        return finish(self.evaluate(state, exchanges))


class Criterion(Rubric[StateT]):
    """Score one named property of the state with a function `state -> float`."""

    def __init__(self, name: str, measure: Callable[[StateT], float]) -> None:
        self.name = name
        self._measure = measure

    async def evaluate(self, state: StateT, exchanges: Exchanges) -> Score:  # noqa: ARG002 - part of the port
        """Return the measured value as the only part."""
        return Score({self.name: _finite(self.name, self._measure(state))})


class TrajectoryCriterion(Rubric[StateT]):
    """Score one named property of the whole trajectory with a function `(state, exchanges) -> float`."""

    uses_exchanges = True

    def __init__(self, name: str, measure: Callable[[StateT, Exchanges], float]) -> None:
        self.name = name
        self._measure = measure

    async def evaluate(self, state: StateT, exchanges: Exchanges) -> Score:
        """Return the measured value as the only part."""
        return Score({self.name: _finite(self.name, self._measure(state, exchanges))})


class _Combination(Rubric[StateT]):
    def __init__(self, rubrics: Sequence[Rubric[StateT]]) -> None:
        if not rubrics:
            raise ValueError(f"{type(self).__name__} needs at least one rubric")
        self.is_async = any(rubric.is_async for rubric in rubrics)
        self.uses_exchanges = any(rubric.uses_exchanges for rubric in rubrics)


class WeightedSum(_Combination[StateT]):
    """Add the scores of rubrics, each multiplied by its weight.

    Args:
        weighted: Pairs of a finite weight and a rubric. Weights need not sum to 1: the declared range decides.
    """

    def __init__(self, *weighted: tuple[float, Rubric[StateT]]) -> None:
        super().__init__([rubric for _, rubric in weighted])
        for weight, _ in weighted:
            if not math.isfinite(weight):
                raise ValueError(f"the weight {weight} is not finite")
        self._weighted = weighted

    async def evaluate(self, state: StateT, exchanges: Exchanges) -> Score:
        """Return all parts, weighted.

        Raises:
            ScoringError: A rubric failed, or two rubrics use one name.
        """
        parts: dict[str, float] = {}
        for weight, rubric in self._weighted:
            for name, value in (await rubric.evaluate(state, exchanges)).parts.items():
                if name in parts:
                    raise ScoringError(f"two components of the rubric are called {name!r}")
                parts[name] = weight * value
        return Score(parts)


class Gate(_Combination[StateT]):
    """Let a rubric count only when another one reaches a threshold; otherwise the score is 0.

    Args:
        condition: The rubric that decides. It does not add to the score.
        rubric: The rubric that scores when the condition holds.
        threshold: The smallest total of `condition` that lets `rubric` count.
    """

    def __init__(self, condition: Rubric[StateT], rubric: Rubric[StateT], *, threshold: float = 1.0) -> None:
        super().__init__([condition, rubric])
        self._condition, self._rubric, self._threshold = condition, rubric, threshold

    async def evaluate(self, state: StateT, exchanges: Exchanges) -> Score:
        """Return the score of the rubric, or the condition's parts set to 0."""
        opened = await self._condition.evaluate(state, exchanges)
        if opened.total >= self._threshold:
            return await self._rubric.evaluate(state, exchanges)
        return Score(dict.fromkeys(opened.parts, 0.0))


class Sequential(_Combination[StateT]):
    """Evaluate rubrics in order and stop at the first whose total stays below a threshold.

    The score is that of the last rubric when all before it pass, and 0 otherwise. Rubrics after the first failing one
    are not run, so put the cheap ones first.
    """

    def __init__(self, *rubrics: Rubric[StateT], threshold: float = 1.0) -> None:
        super().__init__(rubrics)
        self._rubrics, self._threshold = rubrics, threshold

    async def evaluate(self, state: StateT, exchanges: Exchanges) -> Score:
        """Return the score of the last rubric, or the failing one's parts set to 0."""
        *conditions, last = self._rubrics
        for condition in conditions:
            reached = await condition.evaluate(state, exchanges)
            if reached.total < self._threshold:
                return Score(dict.fromkeys(reached.parts, 0.0))
        return await last.evaluate(state, exchanges)


def _finite(name: str, value: object) -> float:
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    # Anything but a number may be the answer itself, so it is not quoted.
    given = repr(value) if isinstance(value, float) else f"a value of type {type(value).__name__}"
    raise ScoringError(f"component {name!r} of the rubric gave {given}, which is not a finite number")


_SLACK = 1e-9


@dataclass(slots=True)
class Ledger:
    """Hold what an episode has paid, and check it against the declaration.

    Attributes:
        spec: The declaration.
        total: The return so far.
        payments: What each payment added, in order. Added in this order they give `total`: exactly for `sum` and
            `terminal`, up to rounding for `last`, whose payments are differences.
    """

    spec: RewardSpec
    total: float = 0.0
    payments: list[float] = field(default_factory=list)

    def enter(self, score: Score) -> float:
        """Enter a score and return what it pays: the difference that it makes to the return.

        Raises:
            ScoringError: The score is not finite, or the return leaves the declared range.
        """
        value = score.total
        if not math.isfinite(value):
            raise ScoringError(f"the score {dict(score.parts)} is not finite")
        if self.spec.aggregation is Aggregation.SUM:
            # Not the difference of the totals, which rounding can make another number than the score.
            total, payment = self.total + value, value
        else:
            total, payment = value, value - self.total
            self._check(total)
        if not (math.isfinite(total) and math.isfinite(payment)):
            raise ScoringError(f"the score {value!r} after the return {self.total!r} gives no finite payment")
        self.total = total
        self.payments.append(payment)
        return payment

    def close(self) -> None:
        """Check the return at the end of the episode.

        Raises:
            ScoringError: The return lies outside the declared range.
        """
        self._check(self.total)

    def _check(self, total: float) -> None:
        if not self.spec.low - _SLACK <= total <= self.spec.high + _SLACK:
            raise ScoringError(
                f"the return {total!r} lies outside the declared range [{self.spec.low}, {self.spec.high}]"
            )
