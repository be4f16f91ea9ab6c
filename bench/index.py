"""The package index: which releases of a distribution it offers, asked through uv and pip wherever they are configured to look."""

from __future__ import annotations

import json
import os
import subprocess

from packaging.version import Version

from bench.stacks import StackError, find_uv


def released_versions(package: str) -> list[Version]:
    """Return the final releases of a distribution that the index offers, whatever Python they ask for, oldest first.

    Raises:
        StackError: uv is not installed, or the index does not list the distribution.
    """
    uv = find_uv()
    if uv is None:
        raise StackError("uv is not installed; install the extra 'harness' of this project, or uv itself")
    done = subprocess.run(
        [
            uv, "tool", "run", "--quiet", "pip", "index", "versions", package, "--json",
            "--ignore-requires-python", "--disable-pip-version-check",
        ],
        capture_output=True, text=True, check=False,
        env={key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"},
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise StackError(f"the index does not list {package}: {done.stderr.strip()[-300:]}")
    return sorted(Version(one) for one in json.loads(lines[-1])["versions"])
