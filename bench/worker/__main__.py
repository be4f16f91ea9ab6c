"""Run a worker: `python -P -m bench.worker --adapter NAME`, then one JSON message per line on stdin and stdout."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def _claim_stdout() -> TextIO:
    # Frameworks print. From here on, whatever is printed, in Python or below it, goes to stderr.
    wire = os.fdopen(os.dup(1), "w", encoding="ascii", buffering=1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return wire


if __name__ == "__main__":
    claimed = _claim_stdout()
    from bench.worker.service import main

    sys.exit(main(sys.argv[1:], claimed))
