"""What becomes of one signature in the framework's own way to declare a tool."""

from __future__ import annotations

import json

from bench.baselines.gem.order import OrderTool, declared


def test_a_tool_describes_itself_in_the_authors_words_and_a_policy_sees_no_schema():
    tool, from_a_server = declared()
    assert tool["schema"] is None
    assert tool["unseen"]["instruction_string()"].startswith("Order an item")
    assert not from_a_server["is_tried"]


def test_a_tool_reads_its_call_out_of_the_text():
    call = {"item": {"name": "tea"}, "colour": "red", "parts": [1], "label": 1, "portion": 0.5}
    is_valid, _, answer, _ = OrderTool().execute_action(f"Now. <order>{json.dumps(call)}</order>")
    assert is_valid
    assert "colour='red'" in answer
    assert not OrderTool().execute_action("Now.")[0]
