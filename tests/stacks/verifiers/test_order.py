"""What becomes of one signature in the framework's own way to declare a tool."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from packaging.version import Version

if Version(version("verifiers")) < Version("0.4"):
    pytest.skip(
        "the tool server is another one before 0.4; the tables show the default release",
        allow_module_level=True,
    )

from bench.baselines.verifiers.order import declared


def test_a_tool_keeps_all_and_a_model_in_a_postponed_annotation_is_refused():
    (tool,) = declared()
    assert tool["schema"]["properties"]["portion"]["exclusiveMaximum"] == 1.0
    assert tool["postponed"].startswith("refused: ")
