"""Run a source in the stack that it belongs to: `python -P -m bench.worker.source LIFTER REFERENCE ADDRESS OPTIONS`.

`LIFTER` is a module such as `adapters.gem.lifter`.

Writes one line of JSON to stdout, `{"ready": address, "facts": ...}` or `{"failed": reason}`, and ends with its stdin.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import TextIO

from canonical.bridge.server import lend
from canonical.bridge.source import Lifter, LiftError, LiftOptions


def _claim_stdout() -> TextIO:
    # As in the worker: frameworks print.
    wire = os.fdopen(os.dup(1), "w", encoding="ascii", buffering=1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return wire


async def _run(module: str, reference: str, address: str, options: str, wire: TextIO) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    given = json.loads(options)
    given["imports"] = tuple(given["imports"])
    try:
        lifter: Lifter = importlib.import_module(module).LIFTER
        async with lifter.lift(reference, LiftOptions(**given)) as source, lend(source, address) as bound:
            wire.write(json.dumps({"ready": bound, "facts": source.facts.to_json()}) + "\n")
            ended, stopped = asyncio.create_task(reader.read()), asyncio.create_task(stop.wait())
            await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
            stopped.cancel()
    except LiftError as error:
        wire.write(json.dumps({"failed": str(error)}) + "\n")
        return 1
    except ModuleNotFoundError as error:
        wire.write(json.dumps({"failed": f"{reference} cannot be lifted: {error}"}) + "\n")
        return 1
    except Exception as error:  # noqa: BLE001 - the harness must hear of everything
        traceback.print_exc()
        wire.write(
            json.dumps({"failed": f"{reference} cannot be lifted: {type(error).__name__}: {error}"}) + "\n"
        )
        return 1
    return 0


if __name__ == "__main__":
    claimed = _claim_stdout()
    # What a user names may lie where the command was given.
    sys.path.append(str(Path.cwd()))
    lifter_module, reference_text, address_text, options_text = sys.argv[1:]
    sys.exit(asyncio.run(_run(lifter_module, reference_text, address_text, options_text, claimed)))
