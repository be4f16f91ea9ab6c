"""The worker's loop: read requests, carry them out side by side, write replies."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import platform
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, TextIO

from pydantic import ValidationError

from bench import protocol
from bench.worker.compiled import CompiledEnvironments
from bench.worker.cost import measure_cost
from bench.worker.drive import Driver, SessionRequest, Unsupported
from bench.worker.host import Host
from bench.worker.inspection import inspect_names
from bench.worker.live import UnknownWay, list_ways, roll_out, step_together
from bench.worker.load import run_load
from bench.worker.troubles import show_trouble
from canonical.adapter import Adapter, SessionError
from canonical.catalogue import UnknownEnvironmentError

_LINE_LIMIT = 1 << 28


class RequestError(ValueError):
    """Report a request that makes no sense in the worker's present state."""


def load_adapter(name: str) -> Adapter[Any]:
    """Return the adapter of a folder name, of a dotted module with an `ADAPTER`, or of `module:key` in its `ADAPTERS`.

    Raises:
        ModuleNotFoundError: The module, or the framework that it needs, is not installed.
    """
    path, _, key = name.partition(":")
    module = importlib.import_module(path if "." in path else f"adapters.{path}.adapter")
    adapter: Adapter[Any] = module.ADAPTERS[key] if key else module.ADAPTER
    return adapter


class Service:
    """Answer the requests of one harness."""

    def __init__(self, name: str, wire: TextIO) -> None:
        self._name = name
        self._wire = wire
        self._adapter: Adapter[Any] | None = None
        self._compiled: CompiledEnvironments | None = None
        self._driver: Driver | None = None
        self._host: Host | None = None
        self._cleanup = AsyncExitStack()

    async def run(self) -> None:
        """Answer requests until stdin ends or the process is told to stop."""
        reader = asyncio.StreamReader(limit=_LINE_LIMIT)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        stopped = asyncio.create_task(stop.wait())
        under_way: set[asyncio.Task[None]] = set()
        async with self._cleanup:
            while True:
                line = asyncio.create_task(reader.readline())
                await asyncio.wait({line, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if stopped.done() or not line.result():
                    line.cancel()
                    break
                task = asyncio.create_task(self._answer(line.result()))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    def _send(self, reply: protocol.Reply) -> None:
        self._wire.write(json.dumps(reply.model_dump(exclude_none=True)) + "\n")

    async def _answer(self, line: bytes) -> None:
        seq = -1
        try:
            value = json.loads(line)
            seq = value.get("seq", -1) if isinstance(value, dict) else -1
            request = protocol.REQUESTS.validate_python(value)
            self._send(await self._carry_out(request))
        except asyncio.CancelledError:
            raise
        except (
            ValidationError,
            json.JSONDecodeError,
            RequestError,
            UnknownEnvironmentError,
            UnknownWay,
        ) as error:
            self._send(protocol.Failed(seq=seq, kind="request", reason=str(error)))
        except SessionError as error:
            self._send(protocol.Failed(seq=seq, kind="session", reason=str(error)))
        except Unsupported as error:
            self._send(protocol.Failed(seq=seq, kind="unsupported", reason=str(error)))
        except ModuleNotFoundError as error:
            self._send(protocol.Failed(seq=seq, kind="absent", reason=str(error)))
        except OSError as error:
            self._send(protocol.Failed(seq=seq, kind="os", reason=str(error)))
        except Exception as error:  # noqa: BLE001 - the harness must hear of everything
            traceback.print_exc()
            self._send(protocol.Failed(seq=seq, kind="crash", reason=f"{type(error).__name__}: {error}"))

    async def _carry_out(self, request: protocol.Request) -> protocol.Reply:
        if isinstance(request, protocol.Start):
            return self._start(request)
        if self._adapter is None or self._compiled is None or self._driver is None or self._host is None:
            raise RequestError("the first request must be 'start'")
        seq = request.seq
        if isinstance(request, SessionRequest):
            return await self._driver.answer(request)
        match request:
            case protocol.Serve():
                endpoint = await self._host.serve(request, self._cleanup)
                return protocol.Serving(seq=seq, url=endpoint.url, settings=dict(endpoint.settings))
            case protocol.Shut():
                self._host.shut()
                return protocol.Closing(seq=seq)
            case protocol.Observe():
                return self._host.observe(seq, collect=request.collect)
            case protocol.Load():
                return await run_load(self._adapter, self._compiled, request, self._send)
            case protocol.Cost():
                return measure_cost(request)
            case protocol.ListWays():
                return list_ways(self._adapter, seq)
            case protocol.StepTogether():
                return await step_together(self._adapter, self._compiled, request)
            case protocol.RollOut():
                return await roll_out(self._adapter, request)
            case protocol.Inspect():
                return inspect_names(request)
            case protocol.ShowTrouble():
                return await show_trouble(self._adapter, request)

    def _start(self, request: protocol.Start) -> protocol.Started:
        if request.protocol != protocol.PROTOCOL:
            raise RequestError(
                f"the harness speaks protocol {request.protocol}, this worker {protocol.PROTOCOL}; rebuild the stack"
            )
        adapter = load_adapter(self._name)
        self._adapter = adapter
        self._compiled = CompiledEnvironments(adapter)
        self._driver = Driver(adapter, self._compiled, self._cleanup)
        self._host = Host(adapter, self._compiled)
        return protocol.Started(
            seq=request.seq,
            protocol=protocol.PROTOCOL,
            adapter=adapter.name,
            packages=dict(adapter.packages()),
            python=platform.python_version(),
            features={
                feature.value: {"level": support.level.value, "note": support.note}
                for feature, support in adapter.features().items()
            },
        )


Send = Callable[[protocol.Reply], None]


def main(arguments: list[str], wire: TextIO) -> int:
    """Run a worker until its stdin ends."""
    parser = argparse.ArgumentParser(prog="python -m bench.worker")
    parser.add_argument(
        "--adapter", required=True, help="folder name under adapters/, a dotted module, or module:key"
    )
    options = parser.parse_args(arguments)
    asyncio.run(Service(options.adapter, wire).run())
    return 0
