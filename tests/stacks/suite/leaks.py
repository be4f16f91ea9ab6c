"""Two thousand sessions, opened and given up in every way, leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import tracemalloc
from dataclasses import dataclass
from pathlib import Path

import pytest

from canonical.catalogue import load_environment
from canonical.tool import ToolCall
from tests.stacks.suite.lab import Lab
from tests.stacks.suite.standing import standing

WARM_UP = 400
CYCLES = 2_000
WIDTH = 20
GUESS = ToolCall("guess", {"word": "crane"})

needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")


@dataclass(frozen=True)
class Used:
    """Hold what this process has: descriptors, threads, and resident memory in bytes."""

    descriptors: int
    threads: int
    memory: int

    @classmethod
    def now(cls) -> Used:
        """Count."""
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return cls(
            len(list(Path("/proc/self/fd").iterdir())),
            threading.active_count(),
            pages * os.sysconf("SC_PAGESIZE"),
        )

    def settled(self, manner, *, threads: int = 0) -> Used:
        """Count until no more is used than before, or connections have been kept alive for as long as they may be.

        Servers close connections in their own time, so that what is read at once looks like a leak.
        """
        deadline = time.monotonic() + manner.kept_alive_s
        while True:
            after = Used.now()
            is_settled = (
                after.descriptors <= self.descriptors + manner.spare_descriptors
                and after.threads <= self.threads + threads
                and after.memory <= self.memory + manner.kept_mib * 1024 * 1024
            )
            if is_settled or time.monotonic() > deadline:
                print(f"before {self}, after {after}")
                return after
            time.sleep(0.2)

    def check(self, manner, *, threads: int = 0) -> None:
        """Fail when more is used than before, even after a while."""
        after = self.settled(manner, threads=threads)
        assert after.descriptors <= self.descriptors + manner.spare_descriptors
        assert after.threads <= self.threads + threads
        assert after.memory - self.memory <= manner.kept_mib * 1024 * 1024


class TestLeaks:
    """Two thousand sessions, opened and given up in every way, leave nothing behind."""

    @needs_proc
    def test_two_thousand_sessions_leave_nothing_behind(self, adapter, manner):
        with standing(load_environment("wordle"), adapter) as stand:

            async def cycle(number):
                async with stand.connect() as session:
                    await session.open(f"train/{number % 50:04d}", number)
                    if number % 3:
                        await session.step(GUESS)
                    if number % 7 == 0:
                        # Given up in the middle of a call.
                        stepping = asyncio.create_task(session.step(GUESS))
                        await asyncio.sleep(0)
                        stepping.cancel()
                        await asyncio.gather(stepping, return_exceptions=True)

            async def cycles(count):
                for start in range(0, count, WIDTH):
                    await asyncio.gather(*(cycle(number) for number in range(start, start + WIDTH)))

            asyncio.run(cycles(WARM_UP))
            assert stand.becomes(0)
            before = Used.now()
            asyncio.run(cycles(CYCLES))
            assert stand.becomes(0)
            # Tools run in as many threads as there were calls at once, given up ones too, and those threads stay.
            before.check(manner, threads=WIDTH)

    def test_not_one_object_of_a_session_stays(self, adapter, framework, manner):
        if framework.is_server or not manner.is_lean:
            pytest.skip("this framework keeps some for itself")
        with standing(Lab(), adapter) as stand:

            async def cycles(count):
                for number in range(count):
                    async with stand.connect() as session:
                        await session.open(f"train/{number % 5}", number)
                        if number % 2:
                            await session.step(ToolCall("draw"))
                stand.environment.closed.clear()

            def held():
                gc.collect()
                return tracemalloc.get_traced_memory()[0]

            asyncio.run(cycles(50))
            tracemalloc.start()
            try:
                asyncio.run(cycles(200))
                before = held()
                asyncio.run(cycles(CYCLES // 2))
                grown = held() - before
            finally:
                tracemalloc.stop()
            assert stand.becomes(0)
        # Fifty bytes for each session would be seen, which is less than any object that one could leave.
        assert grown < 50 * CYCLES // 2
