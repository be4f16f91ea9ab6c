"""What every adapter promises, under SkyRL Gym."""

from __future__ import annotations

from tests.stacks.suite import *  # noqa: F403 - the whole suite
