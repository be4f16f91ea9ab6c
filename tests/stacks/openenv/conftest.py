"""In which manner OpenEnv keeps what every adapter promises."""

from __future__ import annotations

import pytest

from adapters.openenv.adapter import OpenEnvAdapter
from tests.stacks.suite.framework import Manner


@pytest.fixture(scope="module")
def manner() -> Manner:
    return Manner(
        unopened="call reset first",
        unstartable="lab could not start task odd/broken: ValueError",
        abandoned="abandoned",
        keeps_episode=True,
        rewords=True,
        impatient=OpenEnvAdapter(receive_timeout=0.3),
        spare_descriptors=8,
    )
