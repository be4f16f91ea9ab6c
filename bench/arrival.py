"""Arrivals: when sessions come to a system that does not ask them to wait for each other."""

from __future__ import annotations

import itertools
import random
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

CLOSED = "closed"
"""A fixed number of sessions, each of which waits for its own answers."""
BURST = "burst"
"""All sessions at once, each of which leaves when it is done."""


class Arrival(BaseModel):
    """Let sessions arrive at a rate, whatever became of those before: an open loop.

    What arrives is a session; each plays its whole episode and leaves.

    Attributes:
        rate_per_s: Sessions per second, on average.
        spacing: `poisson` draws the gaps from an exponential distribution, as from many independent clients; `constant`
            makes them equal.
        seed: Of the gaps. The same seed gives the same arrivals.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    rate_per_s: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    spacing: Literal["poisson", "constant"] = "poisson"
    seed: int = 0

    @classmethod
    def parse(cls, text: str, *, seed: int = 0) -> Self:
        """Read `open:RATE` or `open:RATE:constant`.

        Raises:
            ValueError: It is neither.
        """
        kind, _, rest = text.partition(":")
        rate, _, spacing = rest.partition(":")
        try:
            if kind == "open" and spacing in {"", "poisson", "constant"}:
                return cls.model_validate(
                    {"rate_per_s": float(rate), "spacing": spacing or "poisson", "seed": seed}
                )
        except ValueError:
            pass
        raise ValueError(
            f"{text!r} is no arrival: write 'closed', 'open:RATE' or 'open:RATE:constant', with sessions per second"
        )

    def times_s(self, sessions: int) -> tuple[float, ...]:
        """Return when each of so many sessions arrives, in seconds after the start, ascending."""
        if self.spacing == "constant":
            return tuple(number / self.rate_per_s for number in range(sessions))
        rng = random.Random(self.seed)  # noqa: S311 - reproducible on purpose
        gaps = (rng.expovariate(self.rate_per_s) for _ in range(sessions))
        return tuple(itertools.accumulate(gaps))

    def __str__(self) -> str:
        spacing = "" if self.spacing == "poisson" else f":{self.spacing}"
        return f"open:{self.rate_per_s:g}{spacing}"
