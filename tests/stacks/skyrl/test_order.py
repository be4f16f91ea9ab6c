"""What becomes of one signature in the framework's own way to declare a tool."""

from __future__ import annotations

from bench.baselines.skyrl.order import ShopTools, declared


def test_a_tool_group_keeps_the_function_and_its_name_and_no_schema():
    (tool,) = declared()
    assert tool["schema"] is None
    assert tool["unseen"] == {"get_tool_names()": ["order"], "the decorator keeps": ["func", "name"]}


def test_a_tool_group_runs_the_tool_with_whatever_it_is_given():
    assert ShopTools().execute_tool("order", *"abcde") == "a b c d e None 3"
