"""What becomes of one signature in the framework's own way to declare a tool."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from bench.baselines.ors.order import declared


def test_the_schema_that_a_session_lists_is_that_of_the_model():
    whole, _ = declared()
    assert [one["type"] for one in whole["schema"]["properties"]["label"]["anyOf"]] == ["integer", "string"]


@pytest.mark.skipif(find_spec("openreward") is None, reason="what openreward's client does, and no other")
def test_openais_form_drops_all_options_but_one():
    _, for_openai = declared()
    assert for_openai["schema"]["properties"]["label"] == {"type": "integer"}
    assert for_openai["schema"]["properties"]["note"] == {"default": None, "type": "string"}
