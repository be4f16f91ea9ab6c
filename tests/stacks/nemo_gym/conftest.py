"""In which manner NeMo Gym keeps what every adapter promises."""

from __future__ import annotations

import pytest

from adapters.nemo_gym.adapter import NeMoGymAdapter
from canonical.tool import ToolCall
from tests.stacks.suite.framework import Manner


@pytest.fixture(scope="module")
def manner() -> Manner:
    return Manner(
        actions=(
            ToolCall("seed_session", {"task": "train/1"}),
            ToolCall("verify", {"reward": 1.0}),
            ToolCall("aggregate_metrics", {"verify_responses": []}),
            ToolCall("docs"),
            ToolCall("."),
            ToolCall(".."),
            ToolCall("../verify"),
        ),
        unopened="post a row to /seed_session first",
        abandoned="abandoned",
        # Its client asks for five seconds whether the server is there.
        stopped=None,
        fails_again=True,
        impatient=NeMoGymAdapter(receive_timeout=0.3),
        spare_descriptors=2,
    )
