"""Compiled environments of one worker: each is compiled once, whether it is served, driven or loaded."""

from __future__ import annotations

from typing import Any

from bench.workloads import Workload, apply_workload
from canonical.adapter import Adapter
from canonical.catalogue import load_environment


class CompiledEnvironments:
    """Compile environments for one adapter, and keep them.

    A framework that runs in process counts its live episodes per compiled environment, so whoever observes one must
    look at the one that is being played.
    """

    def __init__(self, adapter: Adapter[Any]) -> None:
        self._adapter = adapter
        self._compiled: dict[tuple[str, Workload | None], Any] = {}

    def get(self, environment: str, workload: Workload | None = None) -> Any:
        """Return the compiled environment of a name or path, with tools as slow as the workload says.

        Raises:
            UnknownEnvironmentError: There is no such environment.
        """
        if workload is not None:
            # Only how its tools work makes an environment another one.
            workload = Workload(turns=1, tool_ns=workload.tool_ns, tool_kind=workload.tool_kind)
            workload = workload if workload.tool_ns else None
        key = (environment, workload)
        if key not in self._compiled:
            loaded = load_environment(environment)
            self._compiled[key] = self._adapter.compile(
                apply_workload(loaded, workload) if workload else loaded
            )
        return self._compiled[key]
