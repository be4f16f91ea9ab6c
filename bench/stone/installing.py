"""Installing: uv, and how it is run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from bench.stacks import StackError, find_uv


def uv_path() -> str:
    """Return where uv is.

    Raises:
        StackError: It is not installed.
    """
    uv = find_uv()
    if uv is None:
        raise StackError("uv is not installed; install the extra 'harness' of this project, or uv itself")
    return uv


def run(command: Sequence[str], sent: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command outside of any virtual environment, and return what it has written and how it ended.

    Args:
        command: The command.
        sent: What it reads.
    """
    environment = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
    return subprocess.run(
        list(command), input=sent, capture_output=True, text=True, check=False, env=environment
    )
