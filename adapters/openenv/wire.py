"""The form of OpenEnv's frames: what this project writes into `/ws` and what it reads there. No framework is imported."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from canonical.content import JSON, Block, Image, Message, Text, project_text

TEXT_KEY = "assistant_text"
"""Key of `CallToolAction.metadata` that holds assistant text, which the server's episode reads instead of a tool call.

An agent writes tool names and arguments but never metadata, so no call of an agent can be mistaken for it.
"""


_SURROGATE = re.compile("[\ud800-\udfff]")


def write_content(blocks: Sequence[Block]) -> str | list[dict[str, JSON]]:
    """Return blocks as OpenEnv carries them: one text as it is, anything else as a list of MCP content blocks.

    OpenEnv writes JSON with pydantic, which refuses lone surrogates. A text that has any is shown with replacement
    characters, and travels exactly in the further key `exact`: base 64 of UTF-8 in which surrogates are let through.
    """
    if len(blocks) == 1 and isinstance(blocks[0], Text) and _is_unicode(blocks[0].text):
        return blocks[0].text
    return [_write_block(block) for block in blocks]


def read_content(value: Any) -> tuple[Block, ...]:
    """Read what `write_content` wrote.

    Raises:
        ValueError: The value is not content.
    """
    if isinstance(value, str):
        return (Text(value),)
    if isinstance(value, list):
        return tuple(_read_block(block) for block in value)
    raise ValueError(f"content must be text or a list of blocks, not {type(value).__name__}")


def read_message(value: Mapping[str, Any]) -> Message:
    """Read a message of a prompt.

    Raises:
        KeyError, ValueError: The value is not a message with role and content alone.
    """
    if more := value.keys() - {"role", "content"}:
        raise ValueError(f"a message has role and content, and this one {', '.join(sorted(more))} too")
    return Message(value["role"], read_content(value["content"]))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _write_block(block: Block) -> dict[str, JSON]:
    match block:
        case Image(data, media_type):
            return {"type": "image", "data": base64.b64encode(data).decode("ascii"), "mimeType": media_type}
        case Text(text) if _is_unicode(text):
            return {"type": "text", "text": text}
        case Text(text):
            exact = base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")
            return {"type": "text", "text": _SURROGATE.sub("\ufffd", text), "exact": exact}


def _read_block(block: Any) -> Block:
    match block:
        case {"type": "text", "text": str(shown), "exact": str(exact), **rest} if not rest:
            text = base64.b64decode(exact, validate=True).decode("utf-8", "surrogatepass")
            if shown != _SURROGATE.sub("\ufffd", text):
                raise ValueError("the text that a block shows is not the exact one beside it")
            return Text(text)
        case {"type": "text", "text": str(text), **rest} if not rest:
            return Text(text)
        case {"type": "image", "data": str(data), "mimeType": str(media_type), **rest} if not rest:
            return Image(base64.b64decode(data, validate=True), media_type)
        case _:
            raise ValueError("a content block is a text or an image of MCP")


class Reply(NamedTuple):
    """Hold what a frame of the server says.

    Attributes:
        text: The observation as a model reads it.
        reward: The reward of the step; 0.0 for a reset.
        ended: Whether the episode is over.
        error: Why the server refused or failed, or None. A tool's own error is an observation, not this.
    """

    text: str
    reward: float
    ended: bool
    error: str | None


class OpenEnvWire:
    """Translate between calls and frames of `/ws`; stateless, one object for all sessions."""

    transport: Literal["websocket"] = "websocket"
    path = "/ws"

    def reset(self, task: str, seed: int) -> str:
        """Return the frame that opens an episode of a task."""
        return json.dumps({"type": "reset", "data": {"task": task, "seed": seed}})

    def step(self, name: str, arguments: Mapping[str, JSON]) -> str:
        """Return the frame of one tool call."""
        data = {"type": "call_tool", "tool_name": name, "arguments": dict(arguments)}
        return json.dumps({"type": "step", "data": data})

    def close(self) -> str:
        """Return the frame that makes the server end the session and close the connection."""
        return '{"type": "close"}'

    def read_reset(self, frame: str) -> Reply:
        """Read the answer to `reset`.

        Raises:
            ValueError: The frame is none that the protocol knows here.
        """
        return _read(frame, _prompt)

    def read_step(self, frame: str) -> Reply:
        """Read the answer to `step`.

        Raises:
            ValueError: The frame is none that the protocol knows here.
        """
        return _read(frame, _observation)


def _text(content: Any) -> str:
    return content if isinstance(content, str) else project_text(read_content(content))


def _prompt(seen: Any) -> str:
    return "\n".join(_text(message["content"]) for message in seen["prompt"])


def _observation(seen: Any) -> str:
    return _text(seen["result"])


def _read(frame: str, text_of: Callable[[Any], str]) -> Reply:
    try:
        message = json.loads(frame)
        kind, data = message["type"], message["data"]
        if kind == "observation":
            return Reply(text_of(data["observation"]), data["reward"] or 0.0, data["done"], None)
        if kind == "error":
            return Reply("", 0.0, ended=False, error=f"{data['message']} ({data['code']})")
    except (KeyError, TypeError) as error:
        raise ValueError(f"this frame is not in the form of OpenEnv's /ws: {frame[:200]}") from error
    raise ValueError(f"this frame is neither an observation nor an error: {frame[:200]}")


WIRE = OpenEnvWire()
