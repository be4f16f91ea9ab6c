"""Progress: how far long work has come, for whoever shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Progress(NamedTuple):
    """Say how far one part of the work has come.

    Attributes:
        part: The part, in words.
        done: How much of it is done.
        total: How much it has in all; it may grow while a search goes on.
        detail: What is going on right now.
    """

    part: str
    done: float
    total: float
    detail: str = ""


OnProgress = Callable[[Progress], None]


def ignore_progress(_progress: Progress) -> None:
    """Show nothing."""
