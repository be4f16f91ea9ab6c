"""Canary: an environment whose every task hides a secret that no other text can look like, and tells it in the end.

Its tools fail in the ways in which frameworks write tracebacks, with the secret in the exception. The call that ends an
episode tells the secret, so that whoever searches for it can show that it would have been found before.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Literal

from canonical.environment import Environment
from canonical.reward import Criterion
from canonical.step import Cause
from canonical.task import Task, TaskSet
from canonical.tool import ToolCall, tool

_TASKS = 12
BROKEN = "odd/unstartable"
"""The task that fails as it starts, with its secret in the exception."""


@dataclass(slots=True)
class Cage:
    """Hold the secret of one episode, in two places as real states do.

    Attributes:
        secret: The secret.
        notes: Where it is written down, too.
        is_over: Whether it has been told.
    """

    secret: str
    notes: list[str]
    is_over: bool = False


@cache
def _tasks() -> TaskSet:
    names = [f"{'train' if index < _TASKS // 2 else 'test'}/{index:02d}" for index in range(_TASKS)]
    return TaskSet(
        Task(
            id=name,
            inputs={"label": f"cage {index}"},
            # Letters that every way of escaping writes differently stand beside 24 that all but encoding leaves alone.
            secret={
                "song": f"canary-{hashlib.sha256(name.encode()).hexdigest()[:24]}-\u00fc\u4f60\"'<&/\\ %"
            },
        )
        for index, name in enumerate([*names, BROKEN])
    )


def _told(cage: Cage) -> float:
    return float(cage.is_over)


class Canary(Environment[Cage]):
    """Keep a secret until the end."""

    name = "canary"
    version = "1"
    max_turns = 6
    rubric = Criterion("told", _told)

    def tasks(self) -> TaskSet:
        """Return twelve tasks in two splits, and one that cannot be started."""
        return _tasks()

    def start(self, task: Task, rng: random.Random) -> Cage:  # noqa: ARG002 - nothing here is left to chance
        """Return the cage of a task."""
        secret = str(task.secret["song"])
        if task.id == BROKEN:
            raise RuntimeError(f"nobody may read that the song is {secret}")
        return Cage(secret, [secret])

    def prompt(self, task: Task, state: Cage) -> str:  # noqa: ARG002 - the secret stays in the state
        """Return what may be known."""
        return f"A bird sits in {task.inputs['label']}."

    @tool
    def look(self, state: Cage, closely: bool = False) -> str:  # noqa: ARG002 - a tool's argument
        """Look at the bird.

        Args:
            closely: Whether to bend down.
        """
        return "It looks back."

    @tool
    def disturb(self, state: Cage, how: Literal["gently", "loudly"]) -> str:
        """Disturb the bird, which breaks the tool.

        Args:
            how: In which way.
        """
        if how == "loudly":
            sys.exit(f"the song is {state.secret}")
        raise ValueError(f"the song is {state.secret}", state)

    @tool
    def listen(self, state: Cage) -> str:
        """Wait until the bird sings its song, which ends the episode."""
        state.is_over = True
        return f"It sings: {state.secret}"

    def outcome(self, state: Cage) -> Cause | None:
        """Return solved once the bird has sung."""
        return Cause.SOLVED if state.is_over else None

    def oracle(self, task: Task) -> Iterable[ToolCall]:  # noqa: ARG002 - every bird sings
        """Return the one call that it takes."""
        return (ToolCall("listen", {}),)
