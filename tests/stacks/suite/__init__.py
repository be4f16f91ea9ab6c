"""What every adapter promises, whatever its framework: `from tests.stacks.suite import *` in a module of a framework's folder."""

from __future__ import annotations

from tests.stacks.suite.baseline import TestBaseline
from tests.stacks.suite.endings import TestEndings
from tests.stacks.suite.isolation import TestIsolation
from tests.stacks.suite.leaks import TestLeaks
from tests.stacks.suite.opening import TestOpening
from tests.stacks.suite.places import TestPlaces
from tests.stacks.suite.secrets import TestSecrets
from tests.stacks.suite.settings import TestSettings
from tests.stacks.suite.stepping import TestStepping
from tests.stacks.suite.transcripts import TestTranscripts

__all__ = [
    "TestBaseline",
    "TestEndings",
    "TestIsolation",
    "TestLeaks",
    "TestOpening",
    "TestPlaces",
    "TestSecrets",
    "TestSettings",
    "TestStepping",
    "TestTranscripts",
]
