"""Two thousand sessions, opened and given up in every way, leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from pathlib import Path

from adapters.ors.adapter import ADAPTER
from canonical.catalogue import load_environment
from canonical.tool import ToolCall

CYCLES = 2_000
WIDTH = 20

KEPT_ALIVE_S = 75
"""How long a connection may outlive its session, in seconds: ORS keeps connections and results of calls for 60."""


def used():
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return {
        "fds": len(list(Path("/proc/self/fd").iterdir())),
        "threads": threading.active_count(),
        "bytes": pages * os.sysconf("SC_PAGESIZE"),
    }


def test_sessions_descriptors_threads_and_memory_stay(serve_standing):
    with serve_standing(load_environment("wordle")) as server:

        async def cycle(number):
            async with ADAPTER.connect(None, server.endpoint) as session:
                await session.open(f"train/{number % 50:04d}", number)
                if number % 3:
                    await session.step(ToolCall("guess", {"word": "crane"}))
                if number % 7 == 0:
                    # Given up in the middle of a call.
                    stepping = asyncio.create_task(session.step(ToolCall("guess", {"word": "sloth"})))
                    await asyncio.sleep(0)
                    stepping.cancel()
                    await asyncio.gather(stepping, return_exceptions=True)

        async def cycles(first, count):
            for start in range(first, first + count, WIDTH):
                await asyncio.gather(*(cycle(number) for number in range(start, start + WIDTH)))

        asyncio.run(cycles(0, 200))
        assert server.becomes(0)
        before = used()
        asyncio.run(cycles(200, CYCLES))
        assert server.becomes(0)
        after = used()
        deadline = time.monotonic() + KEPT_ALIVE_S
        while after["fds"] > before["fds"] + 8 and time.monotonic() < deadline:
            time.sleep(1)
            after = used()
        print(f"before {before}, after {CYCLES} sessions {after}")
    assert after["fds"] <= before["fds"] + 8
    # Tools and constructors run in as many threads as there were calls at once, and those threads stay.
    assert after["threads"] <= WIDTH + 16
    # The server keeps the result of every call for a minute: about 7 kB each, and no more than that.
    assert after["bytes"] - before["bytes"] < 40 * 1024 * 1024
