"""The form of SkyRL's messages: what this project writes into a conversation and what it reads there."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from canonical.content import JSON, Block, Image, Text, project_text
from canonical.dialect import describe_tools
from canonical.tool import ToolSpec

Said: TypeAlias = dict[str, Any]
"""A message as SkyRL passes it on: `role` and `content`."""

_BEGIN, _END = "<tools>\n", "\n</tools>\n"
_NO_TOOLS = describe_tools(())


def write_content(blocks: Sequence[Block]) -> str | list[dict[str, JSON]]:
    """Return blocks as a message carries them: as one text, or as parts of the chat API when there is an image.

    Chat templates of language models take text only, so several texts become one, joined by line breaks; `texts_of`
    returns what is needed to take it apart again.
    """
    if len(blocks) == 1 and isinstance(blocks[0], Text):
        return blocks[0].text
    if any(isinstance(block, Image) for block in blocks):
        return [_write_part(block) for block in blocks]
    return project_text(tuple(blocks))


def texts_of(blocks: Sequence[Block]) -> list[str] | None:
    """Return the texts that `write_content` joins, or None when it joins nothing."""
    texts = [block.text for block in blocks if isinstance(block, Text)]
    return texts if len(texts) == len(blocks) != 1 else None


def read_content(content: Any, texts: Any = None) -> tuple[Block, ...]:
    """Read what `write_content` wrote.

    Raises:
        ValueError: The value is not content, or the texts are not those that were joined.
    """
    if isinstance(content, list):
        return tuple(_read_part(part) for part in content)
    if not isinstance(content, str):
        raise ValueError(f"content must be text or a list of parts, not {type(content).__name__}")  # noqa: TRY004
    if texts is None:
        return (Text(content),)
    if "\n".join(texts) != content:
        raise ValueError("the texts are not those of the message")
    return tuple(Text(text) for text in texts)


def _write_part(block: Block) -> dict[str, JSON]:
    if isinstance(block, Text):
        return {"type": "text", "text": block.text}
    data = base64.b64encode(block.data).decode("ascii")
    return {"type": "image_url", "image_url": {"url": f"data:{block.media_type};base64,{data}"}}


def _read_part(part: Any) -> Block:
    match part:
        case {"type": "text", "text": str(text)}:
            return Text(text)
        case {"type": "image_url", "image_url": {"url": str(url)}} if url.startswith("data:"):
            media_type, _, data = url.removeprefix("data:").partition(";base64,")
            return Image(base64.b64decode(data, validate=True), media_type)
        case _:
            raise ValueError("a part is a text, or an image in a data URL")


def add_tools(conversation: Sequence[Mapping[str, Any]], text: str) -> list[Said]:
    """Return a new conversation whose system message ends with the description of the tools.

    Chat templates want one system message and want it first, so an existing one is extended.
    """
    said = [dict(message) for message in conversation]
    if not said or said[0]["role"] != "system":
        return [{"role": "system", "content": text}, *said]
    content = said[0]["content"]
    said[0]["content"] = (
        f"{content}\n\n{text}" if isinstance(content, str) else [*content, {"type": "text", "text": text}]
    )
    return said


@lru_cache(maxsize=64)
def _read_tools(rows: str) -> tuple[ToolSpec, ...]:
    # Every episode of an environment describes the same tools.
    return tuple(ToolSpec(**json.loads(row)) for row in rows.split("\n"))


def take_tools(conversation: Sequence[Mapping[str, Any]]) -> tuple[tuple[ToolSpec, ...], list[Said]]:
    """Return the tools that the system message describes, and the conversation without the description.

    Raises:
        ValueError: The conversation does not begin with a system message that describes tools.
    """
    if not conversation or conversation[0]["role"] != "system":
        raise ValueError("the conversation does not begin with a system message")
    system, *rest = (dict(message) for message in conversation)
    content = system["content"]
    parts = isinstance(content, list)
    text = content[-1].get("text", "") if parts else content
    begin = text.rfind(_BEGIN)
    if begin != -1:
        tools = _read_tools(text[begin + len(_BEGIN) : text.index(_END, begin)])
        start = text.rfind("You act by calling tools.", 0, begin)
    elif text.endswith(_NO_TOOLS):
        tools, start = (), len(text) - len(_NO_TOOLS)
    else:
        raise ValueError("the system message describes no tools")
    if parts:
        return tools, [{**system, "content": content[:-1]}, *rest]
    if start == 0:
        return tools, rest
    return tools, [{**system, "content": text[: start - 2]}, *rest]
