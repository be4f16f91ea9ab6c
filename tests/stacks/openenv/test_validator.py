"""OpenEnv's own validator accepts what is served."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

OPENENV = Path(sys.executable).parent / "openenv"


def knows_addresses():
    shown = subprocess.run([OPENENV, "validate", "--help"], capture_output=True, text=True, check=False)
    return "--url" in shown.stdout


@pytest.mark.skipif(not knows_addresses(), reason="this release validates folders only")
def test_openenv_validate_accepts_a_running_server(standing_wordle):
    done = subprocess.run(
        [OPENENV, "validate", "--url", standing_wordle.url, "--json", "--timeout", "60"],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["passed"]
    assert report["summary"]["failed_criteria"] == []
    assert report["summary"]["total_count"] >= 6
