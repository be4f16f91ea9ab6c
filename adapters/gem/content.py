"""Content and tools in the form that chat templates take: OpenAI's messages, content parts and functions."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from canonical.content import Block, Image, Message, Text
from canonical.tool import ToolSpec


def write_content(blocks: Sequence[Block]) -> str | list[dict[str, Any]]:
    """Return blocks as the content of a message: one text as it is, anything else as a list of parts."""
    if len(blocks) == 1 and isinstance(blocks[0], Text):
        return blocks[0].text
    return [_part(block) for block in blocks]


def read_content(content: Any) -> tuple[Block, ...]:
    """Read what `write_content` wrote.

    Raises:
        ValueError: The value is not the content of a message.
    """
    if isinstance(content, str):
        return (Text(content),)
    if not isinstance(content, list):
        raise ValueError("content is a text or a list of parts")  # noqa: TRY004 - a wrong value, not a wrong argument
    return tuple(_block(part) for part in content)


def read_message(message: Mapping[str, Any]) -> Message:
    """Read a message with `role` and `content`.

    Raises:
        KeyError, ValueError: The value is not a message.
    """
    return Message(message["role"], read_content(message["content"]))


def read_tool(tool: Mapping[str, Any]) -> ToolSpec:
    """Read a tool in the form of OpenAI's functions.

    Raises:
        KeyError: The value is not a tool.
    """
    function = tool["function"]
    return ToolSpec(function["name"], function["description"], function["parameters"])


def _part(block: Block) -> dict[str, Any]:
    if isinstance(block, Text):
        return {"type": "text", "text": block.text}
    data = base64.b64encode(block.data).decode("ascii")
    return {"type": "image_url", "image_url": {"url": f"data:{block.media_type};base64,{data}"}}


def _block(part: Any) -> Block:
    match part:
        case {"type": "text", "text": str(text)}:
            return Text(text)
        case {"type": "image_url", "image_url": {"url": str(url)}} if url.startswith("data:"):
            media_type, _, data = url.removeprefix("data:").rpartition(";base64,")
            return Image(base64.b64decode(data, validate=True), media_type)
        case _:
            raise ValueError("a part is a text, or an image with its data in the URL")
