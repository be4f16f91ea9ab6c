"""What every adapter promises, under OpenEnv."""

from __future__ import annotations

from tests.stacks.suite import *  # noqa: F403 - the whole suite
