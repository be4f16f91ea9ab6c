"""Show a trouble of the framework by the probe that stands in the adapter's folder."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from typing import Any

from bench import protocol
from bench.worker.drive import Unsupported
from canonical.adapter import Adapter
from canonical.trouble import Shown


async def show_trouble(adapter: Adapter[Any], request: protocol.ShowTrouble) -> protocol.TroubleShown:
    """Run a probe: a coroutine on this loop, a plain function in a thread.

    Raises:
        Unsupported: The adapter has no probe of this name.
    """
    package = type(adapter).__module__.rpartition(".")[0]
    try:
        module = importlib.import_module(f"{package}.troubles")
    except ModuleNotFoundError as error:
        raise Unsupported(f"the adapter {adapter.name} shows no troubles") from error
    probe = getattr(module, request.name, None)
    if not inspect.isfunction(probe) or probe.__module__ != module.__name__:
        raise Unsupported(f"the adapter {adapter.name} has no probe called {request.name}")
    shown: Shown = await (probe() if inspect.iscoroutinefunction(probe) else asyncio.to_thread(probe))
    return protocol.TroubleShown(seq=request.seq, sent=shown.sent, seen=shown.seen, is_there=shown.is_there)
