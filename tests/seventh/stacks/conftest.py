"""In which manner Gymnasium keeps what every adapter promises."""

from __future__ import annotations

import pytest

from tests.stacks.suite.framework import Manner


@pytest.fixture(scope="module")
def manner() -> Manner:
    return Manner(unopened="call reset before step", writes_json=True)
