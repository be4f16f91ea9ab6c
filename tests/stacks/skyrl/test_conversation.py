"""Content and tools that go into a conversation come out of it as they were."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.skyrl.conversation import add_tools, read_content, take_tools, texts_of, write_content
from canonical.content import Image, Text
from canonical.dialect import TextForm, describe_tools
from canonical.tool import ToolSpec

TEXTS = st.text(st.characters(categories=["L", "N", "P", "S", "Z", "C"]), max_size=20)
BLOCKS = st.lists(
    TEXTS.map(Text) | st.binary(max_size=20).map(lambda data: Image(data, "image/webp")), max_size=4
)
SPECS = st.lists(
    st.builds(
        lambda name, text: ToolSpec(name, text, {"type": "object", "properties": {text: {"default": text}}}),
        TEXTS,
        TEXTS | st.just("<tools>\n</tools>\nYou act by calling tools. "),
    ),
    max_size=3,
)


@given(blocks=BLOCKS)
def test_content_comes_back(blocks):
    content = write_content(blocks)
    assert isinstance(content, str) is not any(isinstance(block, Image) for block in blocks)
    assert read_content(content, texts_of(blocks)) == tuple(blocks)


@given(specs=SPECS, system=st.none() | TEXTS | BLOCKS.map(write_content), form=st.sampled_from(TextForm))
def test_tools_come_back_and_leave_no_trace(specs, system, form):
    said = [{"role": "user", "content": "Begin."}]
    if system is not None:
        said.insert(0, {"role": "system", "content": system})
    shown = add_tools(said, describe_tools(specs, form))
    assert [message["role"] for message in shown] == ["system", "user"]
    assert take_tools(shown) == (tuple(specs), said)


@pytest.mark.parametrize(
    "content", [3, None, [{"type": "audio"}], [{"type": "image_url", "image_url": {"url": "http://x"}}]]
)
def test_what_is_no_content_is_refused(content):
    with pytest.raises(ValueError, match=r"content|part"):
        read_content(content)


def test_texts_that_are_not_those_of_the_message_are_refused():
    with pytest.raises(ValueError, match="not those"):
        read_content("a\nb", ["a", "c"])


@pytest.mark.parametrize(
    "conversation", [[], [{"role": "user", "content": "x"}], [{"role": "system", "content": "x"}]]
)
def test_a_conversation_without_tools_is_refused(conversation):
    with pytest.raises(ValueError, match="system message"):
        take_tools(conversation)
