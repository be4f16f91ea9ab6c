"""What a model reads: text, images, messages and observations."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from pydantic import JsonValue

if TYPE_CHECKING:
    from collections.abc import Mapping

JSON: TypeAlias = JsonValue
"""Any value that JSON can carry."""

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class ErrorCode(StrEnum):
    """Name why an action had no effect; carried by an observation, never raised."""

    UNKNOWN_TOOL = "unknown_tool"
    INVALID_ARGUMENTS = "invalid_arguments"
    UNPARSABLE = "unparsable"
    TOOL_ERROR = "tool_error"
    INTERNAL_ERROR = "internal_error"
    EPISODE_OVER = "episode_over"


@dataclass(frozen=True, slots=True)
class Text:
    """Hold a block of text."""

    text: str

    def to_json(self) -> dict[str, JSON]:
        """Return the block as JSON."""
        return {"type": "text", "text": self.text}


@dataclass(frozen=True, slots=True)
class Image:
    """Hold an image as encoded bytes and its media type, such as `image/png`."""

    data: bytes
    media_type: str

    def to_json(self) -> dict[str, JSON]:
        """Return the block as JSON, with the bytes in base 64."""
        return {
            "type": "image",
            "media_type": self.media_type,
            "data": base64.b64encode(self.data).decode("ascii"),
        }


Block: TypeAlias = Text | Image


def quote(text: str, limit: int = 80) -> str:
    """Return the beginning of a text in double quotes, safe to send on: control characters and lone surrogates escaped."""
    return json.dumps(text[:limit], ensure_ascii=False).encode("utf-8", "backslashreplace").decode("utf-8")


def block_from_json(value: Mapping[str, JSON]) -> Block:
    """Read a block that `to_json` wrote.

    Raises:
        ValueError: The value is not a block.
    """
    match value:
        case {"type": "text", "text": str(text)}:
            return Text(text)
        case {"type": "image", "media_type": str(media_type), "data": str(data)}:
            return Image(base64.b64decode(data, validate=True), media_type)
        case _:
            raise ValueError(f"not a content block: keys {sorted(value)}")


def project_text(blocks: tuple[Block, ...]) -> str:
    """Return the text form of blocks, for frameworks that carry text only.

    Text blocks are joined by a line break; an image becomes a line that states its media type and size in bytes.
    """
    if len(blocks) == 1 and type(blocks[0]) is Text:
        return blocks[0].text
    return "\n".join(
        block.text if isinstance(block, Text) else f"[{block.media_type}, {len(block.data)} bytes]"
        for block in blocks
    )


@dataclass(frozen=True, slots=True)
class Message:
    """Hold one message of a conversation."""

    role: Role
    blocks: tuple[Block, ...]

    @property
    def text(self) -> str:
        """The text form of the message."""
        return project_text(self.blocks)

    def to_json(self) -> dict[str, JSON]:
        """Return the message as JSON."""
        return {"role": self.role, "blocks": [block.to_json() for block in self.blocks]}


@dataclass(frozen=True, slots=True)
class Observation:
    """Hold what the environment answers to one action.

    Attributes:
        blocks: What the model reads.
        error: Why the action had no effect, or None when it was carried out.
    """

    blocks: tuple[Block, ...]
    error: ErrorCode | None = None

    @classmethod
    def of(cls, text: str, error: ErrorCode | None = None) -> Observation:
        """Make an observation of one text block."""
        return cls((Text(text),), error)

    @property
    def text(self) -> str:
        """The text form of the observation."""
        return project_text(self.blocks)

    def to_json(self) -> dict[str, JSON]:
        """Return the observation as JSON; `error` is absent when there is none."""
        value: dict[str, JSON] = {"blocks": [block.to_json() for block in self.blocks]}
        if self.error is not None:
            value["error"] = self.error.value
        return value


def observation_from_json(value: Mapping[str, JSON]) -> Observation:
    """Read what `Observation.to_json` wrote.

    Raises:
        ValueError: The value is not an observation.
    """
    match value:
        case {"blocks": [*blocks], **rest} if rest.keys() <= {"error"} and all(
            isinstance(b, dict) for b in blocks
        ):
            error = ErrorCode(str(rest["error"])) if "error" in rest else None
            return Observation(
                tuple(block_from_json(cast("Mapping[str, JSON]", block)) for block in blocks), error
            )
        case _:
            raise ValueError("not an observation: it needs a list of blocks")
