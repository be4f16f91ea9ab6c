"""The frames of `openenv_wire`, read by a generator that has no time for it: 20 ms of work for each answer."""

from __future__ import annotations

import time

from tests.miniatures.openenv_wire import MiniatureWire, Reply


class BusyWire(MiniatureWire):
    def read_step(self, frame: str) -> Reply:
        until = time.perf_counter() + 0.02
        while time.perf_counter() < until:
            pass
        return super().read_step(frame)


WIRE = BusyWire()
