"""What becomes of one signature in the framework's own way to declare a tool."""

from __future__ import annotations

from bench.baselines.nemo_gym.order import declared


def test_a_tool_over_mcp_loses_what_annotated_says_and_a_route_shows_a_policy_nothing():
    tool, route = declared()
    assert tool["schema"]["properties"]["portion"] == {"title": "Portion", "type": "number"}
    assert tool["schema"]["properties"]["colour"]["enum"] == ["red", "green"]
    assert route["schema"] is None
    assert route["unseen"]["schema"]["properties"]["portion"]["exclusiveMaximum"] == 1.0
