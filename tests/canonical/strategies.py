"""Strategies for actions: calls, texts that hold calls, and what no agent should write but some will."""

from __future__ import annotations

import json
import re

from hypothesis import strategies as st

from canonical.content import JSON
from canonical.dialect import TextForm, write_calls
from canonical.tool import ToolCall
from canonical.transcript import Action

_characters = st.characters(), st.characters(categories=["Cs"]), st.sampled_from("<>{}\"'\\/\0\n")
_half_pair = re.compile("[\ud800-\udbff]+(?=[\udc00-\udfff])")
any_text: st.SearchStrategy[str] = st.lists(st.one_of(*_characters), max_size=12).map(
    lambda parts: _half_pair.sub("", "".join(parts))
)
"""Any text, lone surrogates included; a pair of them side by side is one character in JSON, so there is none."""

json_values: st.SearchStrategy[JSON] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=6,
)

wild_calls: st.SearchStrategy[ToolCall] = st.builds(
    ToolCall, any_text, st.dictionaries(any_text, json_values, max_size=3)
)
"""Calls of tools that most likely do not exist."""


def calls_of(**tools: dict[str, st.SearchStrategy[JSON]]) -> st.SearchStrategy[ToolCall]:
    """Return a strategy for calls of named tools with arguments from strategies."""
    return st.one_of(
        [
            st.builds(ToolCall, st.just(name), st.fixed_dictionaries({}, optional=arguments))
            for name, arguments in tools.items()
        ]
    )


def messy(good: st.SearchStrategy[ToolCall]) -> st.SearchStrategy[Action]:
    """Return actions that are mostly good, and otherwise texts, several calls in a text, and mistakes."""
    misfits = st.builds(
        lambda call, extra: ToolCall(call.name, {**call.arguments, **extra}),
        good,
        st.dictionaries(
            st.sampled_from(["amount", "sides", "height", "word", "no_such"]), json_values, max_size=2
        ),
    )
    one = good | good | misfits | wild_calls
    texts = st.builds(
        write_calls,
        st.lists(one, min_size=1, max_size=3),
        st.sampled_from(TextForm),
    )
    broken = st.builds(
        lambda call, cut: f"<tool_call>{json.dumps(call.to_json())[:cut]}</tool_call>",
        good,
        st.integers(0, 30),
    )
    return one | one | texts | broken | any_text


counter_calls = calls_of(add={"amount": st.integers(-2, 4)}, refuse={})
dice_calls = calls_of(roll={"sides": st.integers(-1, 20)})
climb_calls = calls_of(move={"height": st.integers(-9, 9) | st.floats(-9, 9)}, stop={})
gallery_calls = calls_of(look={"angle": st.integers(0, 300)}, leave={})
waiter_calls = calls_of(order={"dishes": st.integers(0, 2)}, ask={})
draw_calls = calls_of(draw={"rank": st.integers(0, 50)})

seeds = st.integers(0, 2**64) | st.integers(-5, 5)
