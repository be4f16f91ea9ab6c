"""The program that runs named tests of a repository with pytest and writes down how each went.

Tests and solution share this process, so a solution can forge what is written; see `repository` for what is done about it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


class Outcomes:
    """Note how each test went, as a plugin of pytest."""

    def __init__(self) -> None:
        self.passed: dict[str, bool] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Count a test as passed when its call passed and neither set-up nor clean-up failed."""
        if report.when == "call" or report.outcome != "passed":
            is_passed = report.outcome == "passed" and not hasattr(report, "wasxfail")
            self.passed[report.nodeid] = self.passed.get(report.nodeid, True) and is_passed


def main() -> None:
    """Run the tests that the standard input names, and write the results where the standard output was."""
    request = json.loads(sys.stdin.buffer.read())
    channel = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    sys.path.insert(0, os.path.abspath(request["packages"]))  # noqa: PTH100 - as little as possible is imported here
    import pytest  # noqa: PLC0415 - found only now

    # As `python -m pytest` has it, but behind pytest's own modules.
    sys.path.insert(1, os.getcwd())  # noqa: PTH109 - as above
    outcomes = Outcomes()
    pytest.main(["-p", "no:cacheprovider", *request["ids"]], plugins=[outcomes])
    data = json.dumps(outcomes.passed).encode()
    while data:
        data = data[os.write(channel, data) :]
    os._exit(0)
