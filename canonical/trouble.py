"""A trouble that people have with a framework, shown by what the installed release does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shown:
    """Hold what a probe of a trouble did.

    Each `adapters/<name>/troubles.py` has one function, plain or a coroutine, per trouble that its `adapter.toml` names. It
    takes nothing, returns this, and says the same whenever it is asked: no addresses, ports or times.

    Attributes:
        sent: What was tried.
        seen: What came of it.
        is_there: Whether that is the trouble; False where the release does not have it any more.
    """

    sent: str
    seen: str
    is_there: bool
