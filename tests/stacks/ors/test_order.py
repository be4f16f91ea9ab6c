"""What becomes of one signature in the framework's own way to declare a tool."""

from __future__ import annotations

from openreward.api.environments.client import convert_tool_response

from bench.baselines.ors.order import declared


def test_the_schema_is_that_of_the_model_and_openais_form_drops_all_options_but_one():
    whole, for_openai = declared()
    assert [one["type"] for one in whole["schema"]["properties"]["label"]["anyOf"]] == ["integer", "string"]
    assert for_openai["schema"]["properties"]["label"] == {"type": "integer"}
    assert for_openai["schema"]["properties"]["note"] == {"default": None, "type": "string"}


def test_openais_form_is_what_a_client_gets_that_asks_for_it():
    spec = {"name": "order", "description": "", "input_schema": declared()[0]["schema"]}
    (told,) = convert_tool_response({"tools": [spec]}, "openai")
    assert told["parameters"] == declared()[1]["schema"]
