"""Whether the machine was quiet while a run measured: what others did to it, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.machine import Stretch, busy_before, disturbances, foreign_cpu_share
from bench.records import End, Live

if TYPE_CHECKING:
    from bench.records import Run


def disturbed(run: Run) -> tuple[str, ...]:
    """Say what kept the machine busy before a run and beside it, whether or not the run came to its end.

    Nothing when it was quiet, and nothing of what the records do not tell.
    """
    return (
        *busy_before(run.header.pressure),
        *disturbances(map(_stretch, run.of(End)), "cells"),
        *disturbances(map(_stretch, run.of(Live)), "numbers of live episodes"),
    )


def foreign_share(record: End | Live) -> float | None:
    """Return the share of the machine's CPU time that went to others in a cell; nothing where it is not known."""
    before, after, own_cpu_s = _stretch(record)
    if before is None or after is None or own_cpu_s is None:
        return None
    return foreign_cpu_share(before, after, own_cpu_s)


def _stretch(record: End | Live) -> Stretch:
    return Stretch(record.pressure_before, record.pressure_after, record.own_cpu_s)
