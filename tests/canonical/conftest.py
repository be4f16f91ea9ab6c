"""Two profiles for the property tests: `fast` by default, `thorough` through the variable HYPOTHESIS_PROFILE."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_NEVER_TIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("fast", _NEVER_TIMED, max_examples=25, derandomize=True, database=None)
settings.register_profile("thorough", _NEVER_TIMED, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))
