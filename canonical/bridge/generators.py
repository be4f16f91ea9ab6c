"""Global generators, one set for each session: many environments draw from `random` and `numpy.random`, which all share."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")
_LOCK = threading.Lock()


class OwnGenerators:
    """Run calls of one session with global generators that no other session touches.

    While one runs, all others of the process wait: the generators are global, so there is no other way.
    """

    def __init__(self, seed: int | None = None) -> None:
        """Begin with generators that a seed decides, or, without one, that nobody can foretell.

        The generators of a process begin the second way too: what an environment draws without having been seeded is another
        thing in each session, as it is at home.
        """
        self._seed = seed
        self._states: tuple[Any, Any] | None = None

    def run(self, work: Callable[[], ResultT]) -> ResultT:
        """Carry out work with this session's generators, keep their states for its next call, and put the others back."""
        with _LOCK:
            before = _read()
            if self._states is None:
                _begin(self._seed)
            else:
                _write(self._states)
            try:
                return work()
            finally:
                self._states = _read()
                _write(before)


def _begin(seed: int | None) -> None:
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(None if seed is None else seed % (1 << 32))


def _read() -> tuple[Any, Any]:
    numpy = sys.modules.get("numpy")
    return random.getstate(), None if numpy is None else numpy.random.get_state()


def _write(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    numpy = sys.modules.get("numpy")
    if numpy is not None and states[1] is not None:
        numpy.random.set_state(states[1])
