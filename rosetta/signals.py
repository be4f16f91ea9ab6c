"""Signals: what ends a command that runs until it is told to stop."""

from __future__ import annotations

import asyncio
import signal


def hear_signals() -> asyncio.Event:
    """Return an event that is set when this process is told to end, by SIGTERM or Ctrl-C."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
