"""The result of one action: observation, reward, and how the episode ended if it did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from canonical.content import JSON, Observation

NO_COMPONENTS: Mapping[str, float] = MappingProxyType({})


class Ending(StrEnum):
    """Say whether the task itself ended the episode (terminated) or something outside it did (truncated)."""

    TERMINATED = "terminated"
    TRUNCATED = "truncated"


class Cause(StrEnum):
    """Name why an episode ended; each cause belongs to exactly one `Ending`."""

    SOLVED = "solved"
    FAILED = "failed"
    SUBMITTED = "submitted"
    BUDGET = "budget"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    ERROR = "error"

    @property
    def ending(self) -> Ending:
        """The ending that this cause belongs to."""
        return Ending.TERMINATED if self in _TERMINATING else Ending.TRUNCATED


_TERMINATING = frozenset({Cause.SOLVED, Cause.FAILED, Cause.SUBMITTED})


@dataclass(frozen=True, slots=True)
class StepResult:
    """Hold what one action led to.

    Attributes:
        observation: What the model reads.
        reward: What this step pays. The payments of an episode sum to its return.
        total: The return so far: what a trainer gets that reads only the last value.
        cause: Why the episode has ended, or None while it goes on.
        components: The named parts of this step's payment.
    """

    observation: Observation
    reward: float = 0.0
    total: float = 0.0
    cause: Cause | None = None
    components: Mapping[str, float] = field(default_factory=lambda: NO_COMPONENTS)

    @property
    def ending(self) -> Ending | None:
        """How the episode has ended, or None while it goes on."""
        return None if self.cause is None else self.cause.ending

    def to_json(self) -> dict[str, JSON]:
        """Return the result as JSON; absent values are absent keys."""
        value: dict[str, JSON] = {
            "observation": self.observation.to_json(),
            "reward": self.reward,
            "total": self.total,
        }
        if self.cause is not None:
            value["ending"] = self.cause.ending.value
            value["cause"] = self.cause.value
        if self.components:
            value["components"] = dict(self.components)
        return value
