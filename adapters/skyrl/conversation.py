"""The form of SkyRL's messages: what this project writes into a conversation and what it reads there."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from canonical.content import JSON, Block, Image, Message, Text, project_text
from canonical.dialect import TextForm, describe_tools
from canonical.tool import ToolSpec

Said: TypeAlias = dict[str, Any]
"""A message as SkyRL passes it on: `role` and `content`."""

_KEYS = {"role", "content"}
_GAP = "\n\n"
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
        if texts is not None:
            raise ValueError("there are texts for a message that joins none")
        return tuple(_read_part(part) for part in content)
    if not isinstance(content, str):
        raise ValueError(f"content must be text or a list of parts, not {type(content).__name__}")  # noqa: TRY004
    if texts is None:
        return (Text(content),)
    if "\n".join(texts) != content:
        raise ValueError("the texts are not those of the message")
    return tuple(Text(text) for text in texts)


def read_message(said: Mapping[str, Any], texts: Any = None) -> Message:
    """Read a message, of which chat templates show whatever it holds.

    Raises:
        KeyError, ValueError: The value is not a message with role and content alone, or the texts are not those that were
            joined.
    """
    if more := said.keys() - _KEYS:
        raise ValueError(f"a message has role and content, and this one {', '.join(sorted(more))} too")
    return Message(said["role"], read_content(said["content"], texts))


def _write_part(block: Block) -> dict[str, JSON]:
    if isinstance(block, Text):
        return {"type": "text", "text": block.text}
    data = base64.b64encode(block.data).decode("ascii")
    return {"type": "image_url", "image_url": {"url": f"data:{block.media_type};base64,{data}"}}


def _read_part(part: Any) -> Block:
    match part:
        case {"type": "text", "text": str(text), **rest} if not rest:
            return Text(text)
        case {"type": "image_url", "image_url": {"url": str(url), **more}, **rest} if not (rest or more) and (
            url.startswith("data:")
        ):
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
        f"{content}{_GAP}{text}" if isinstance(content, str) else [*content, {"type": "text", "text": text}]
    )
    return said


@lru_cache(maxsize=64)
def _read_tools(rows: str) -> tuple[tuple[ToolSpec, ...], Mapping[TextForm, str]]:
    # Every episode of an environment describes the same tools.
    tools = tuple(ToolSpec(**json.loads(row)) for row in rows.split("\n"))
    return tools, {form: describe_tools(tools, form) for form in TextForm}


def take_tools(
    conversation: Sequence[Mapping[str, Any]], form: TextForm | None = None
) -> tuple[tuple[ToolSpec, ...], list[Said]]:
    """Return the tools that the system message describes, and the conversation without the description.

    Args:
        conversation: What the model reads first.
        form: How it must be told to write calls; any of the known ways when left out.

    Raises:
        ValueError: The conversation does not begin with a system message that ends with the description of its tools, word
            for word.
    """
    if not conversation or conversation[0]["role"] != "system":
        raise ValueError("the conversation does not begin with a system message")
    system, *rest = (dict(message) for message in conversation)
    content = system["content"]
    parts = isinstance(content, list)
    text = content[-1].get("text", "") if parts else content
    tools, texts = _described(text)
    # Whatever a model is told of its tools beside the lines that are read here would stand in this text, too.
    shown = next((t for f, t in texts.items() if form in {None, f} and text.endswith(t)), None)
    if shown is None:
        raise ValueError("the system message does not end with the description of its tools")
    before = text[: len(text) - len(shown)]
    if parts:
        if content[-1] != {"type": "text", "text": shown}:
            raise ValueError("the last part of the system message is not the description of its tools")
        return tools, [{**system, "content": content[:-1]}, *rest]
    if not before:
        read_message(system)
        return tools, rest
    if not before.endswith(_GAP):
        raise ValueError("the system message has something between its text and the description of its tools")
    return tools, [{**system, "content": before.removesuffix(_GAP)}, *rest]


def _described(text: str) -> tuple[tuple[ToolSpec, ...], Mapping[TextForm, str]]:
    begin = text.rfind(_BEGIN)
    if text.endswith(_NO_TOOLS):
        return (), dict.fromkeys(TextForm, _NO_TOOLS)
    if begin == -1:
        raise ValueError("the system message describes no tools")
    return _read_tools(text[begin + len(_BEGIN) : text.index(_END, begin)])
