"""What becomes of one signature in the framework's own way to declare a tool."""

from __future__ import annotations

from bench.baselines.openenv.order import declared


def test_a_tool_of_fastmcp_keeps_all_and_one_of_a_mode_keeps_plain_types():
    whole, moded = declared()
    assert whole["schema"]["properties"]["portion"] == {
        "type": "number",
        "minimum": 0.0,
        "exclusiveMaximum": 1.0,
        "description": "A part of one.",
    }
    assert "$ref" not in str(whole["schema"])
    kinds = {one["type"] for one in moded["schema"]["properties"].values()}
    assert kinds == {"string", "integer"}
