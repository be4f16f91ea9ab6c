"""Play the conformance of one stack until the first divergence, and print it as a line of JSON.

Runs inside a copy of the project: `python -P -m tests.faults.prove openenv openenv-0.10.0 PYTHON`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from bench.client import WorkerError, start_worker
from bench.conformance import run_conformance
from bench.stacks import Stack, find_stack

EPISODES = 40
"""Few: the scenario files alone are more, and the fuzzer finds little that they do not."""
LEAK_PATIENCE_S = 3.0


async def first_divergence(stack: Stack, python: Path) -> str | None:
    """Return the first place where a stack differs from the reference, or None.

    Args:
        stack: The stack.
        python: What is started as its Python.

    Raises:
        WorkerError: A worker broke down.
    """
    # One process serves and plays: what is lost between two is for conformance itself to find, and most of the time of
    # a short play goes into importing the framework.
    async with start_worker(python, stack.adapter, label=stack.label) as worker:
        result = await run_conformance(
            worker,
            worker,
            source="wordle",
            episodes=EPISODES,
            stop_after=1,
            leak_patience_s=LEAK_PATIENCE_S,
        )
    for found in result.divergences:
        where = found.scenario.partition(":")[0]
        step = "" if found.step is None else f" at step {found.step}"
        return f"{where}: {found.piece}{step}: {found.reference} | {found.framework}"
    return None


def main() -> int:
    """Print what was found."""
    adapter, release, python = sys.argv[1:]
    try:
        found = asyncio.run(first_divergence(find_stack(adapter, release), Path(python)))
    except* WorkerError as errors:
        found = str(errors.exceptions[0])
    sys.stdout.write(json.dumps({"found": found}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
