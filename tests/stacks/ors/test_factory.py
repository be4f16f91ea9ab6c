"""A compiled environment is served as any environment of ORS is: by its own `Server`."""

from __future__ import annotations

import sys

from adapters.ors.adapter import ADAPTER
from tests.stacks.suite.places import serves_wordle

SCRIPT = (
    "from adapters.ors.compiler import compile_environment, make_server\n"
    "from canonical.catalogue import load_environment\n"
    "make_server(compile_environment(load_environment('wordle'))).run(host='127.0.0.1', port=0)"
)


def test_the_frameworks_own_server_serves_an_environment():
    serves_wordle([sys.executable, "-P", "-c", SCRIPT], ADAPTER)
