"""Attacks: scripted episodes that try to win without solving, or to reach what an agent must not reach."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from canonical.step import Cause
from canonical.transcript import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoys:
    """Name the things on the host that an attack may reach for. Each betrays whoever reaches it.

    Attributes:
        file: Path of a file; what stands in it must show in no observation, and must not change.
        folder: Path of a folder that anybody may write to, and that must stay as it is.
        port: A TCP port of 127.0.0.1 that nobody must connect to.
        process: The id of a process that must stay alive.
        variable: The name of an environment variable of the host; its value must show in no observation.
        marker: A word; no process whose command line holds it may be left when the episode is over.
    """

    file: str
    folder: str
    port: int
    process: int
    variable: str
    marker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """Hold one attack.

    Attributes:
        name: A short name, in words joined by hyphens.
        aim: What it tries, in one sentence.
        task: The task in which it is tried.
        actions: What the attacker does, in order. What follows the end of the episode is tried too.
        honest: The return that what it leaves behind deserves; more is a success of the attack.
        causes: The causes with which its episode may end.
    """

    name: str
    aim: str
    task: str
    actions: tuple[Action, ...]
    honest: float = 0.0
    causes: frozenset[Cause] = frozenset({Cause.SUBMITTED})


MakeAttacks: TypeAlias = Callable[[Decoys], Iterable[Attack]]
"""What `ATTACKS` of a module `attacks.py` beside an environment is."""
