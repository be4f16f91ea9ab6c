"""A compiled environment is served as any environment of ORS is: by its own `Server`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from adapters.ors.adapter import ADAPTER
from tests.stacks.suite.places import serves_wordle

SCRIPT = (
    "from adapters.ors.compiler import compile_environment, make_server\n"
    "from canonical.catalogue import load_environment\n"
    "make_server(compile_environment(load_environment('wordle'))).run(host='127.0.0.1', port=0)"
)


def test_the_frameworks_own_server_serves_an_environment():
    serves_wordle([sys.executable, "-P", "-c", SCRIPT], ADAPTER)


ORWD = Path(sys.executable).parent / "orwd"
SERVED = "Server([BasicEnvironment]).run()"


@pytest.mark.skipif(not ORWD.exists(), reason="this distribution has no command line")
def test_a_compiled_environment_stands_in_for_the_example_of_a_scaffold(tmp_path):
    """`orwd` has no validator that runs without an account; its template runs as it is, with one line changed."""
    folder = tmp_path / "scaffold"
    subprocess.run([ORWD, "init", "wordle", "--dir", folder], check=True, capture_output=True, timeout=60)
    script = folder / "server.py"
    written = script.read_text(encoding="utf-8")
    assert written.count(SERVED) == 1
    ours = "Server([compile_environment(load_environment('wordle'))]).run(host='127.0.0.1', port=0)"
    imports = "\n".join(SCRIPT.splitlines()[:2])
    script.write_text(f"{imports}\n{written.replace(SERVED, ours)}", encoding="utf-8")
    serves_wordle([sys.executable, "-P", str(script)], ADAPTER)
