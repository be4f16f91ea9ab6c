"""Rows that somebody else wrote: what an agent shows a model of them, and what it sends on to the resources server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nemo_gym.base_resources_server import BaseRunRequest
from pydantic import ConfigDict, ValidationError

from adapters.nemo_gym.wire import read_content
from canonical.adapter import Loss
from canonical.bridge.source import LiftError
from canonical.content import JSON, Block, Message, Text
from canonical.dialect import write_calls
from canonical.stone import Concern, PieceName
from canonical.tool import ToolCall, ToolSpec

_ANY: Mapping[str, JSON] = {"type": "object", "properties": {}}

_DEVELOPER = Loss(
    PieceName.PROMPT_TEMPLATE, "approximated", "messages of the role developer have the role system here"
)
_INSTRUCTIONS = Loss(
    PieceName.PROMPT_TEMPLATE, "approximated", "the instructions of rows are the first system message here"
)
_CALLS = Loss(
    PieceName.PROMPT_TEMPLATE,
    "approximated",
    "calls that prompts begin with are shown as text, their answers as messages of the role tool",
)
_REASONING = Loss(PieceName.PROMPT_TEMPLATE, "lost", "reasoning that prompts begin with is not shown")
_STRICT = Loss(
    PieceName.TOOLS,
    "approximated",
    "tools lose their mark strict, by which model servers hold a model to the schema; the schema stays as it is",
    Concern.TOOL_SCHEMA,
)
_HOSTED = Loss(
    PieceName.TOOLS,
    "lost",
    "tools that a model server carries out itself, which are no functions, are not offered",
)


class RunRequest(BaseRunRequest):
    """Be a row as agents of NeMo Gym read it: whatever else it holds goes on to the resources server."""

    model_config = ConfigDict(extra="allow")


@dataclass(frozen=True, slots=True)
class Row:
    """Hold one row.

    Attributes:
        row: The row as it is.
        prompt: What a model reads first.
        tools: What it may call.
        losses: What this reading of it changed.
    """

    row: Mapping[str, Any]
    prompt: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    losses: frozenset[Loss]

    def sent(self) -> dict[str, Any]:
        """Return what agents send of it to the resources server: with the defaults of all that it leaves out."""
        return RunRequest.model_validate(self.row).model_dump(mode="json")


def read_any_row(row: Mapping[str, Any], place: str) -> Row:
    """Read a row.

    Args:
        row: The row.
        place: Where it is, for the text of an error.

    Raises:
        LiftError: NeMo Gym does not take it, or it shows what cannot be shown here.
    """
    try:
        shown = RunRequest.model_validate(row).responses_create_params.model_dump(
            mode="json", exclude_unset=True
        )
        losses: set[Loss] = set()
        prompt = tuple(_read_input(shown, losses))
        tools = tuple(_read_tools(shown.get("tools") or [], losses))
    except ValidationError as error:
        detail = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, detail["loc"]))
        raise LiftError(f"{place} is no row of NeMo Gym: {where}: {detail['msg']}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise LiftError(f"{place} cannot be lifted: {error}") from error
    settings = sorted(key for key, value in shown.items() if key not in _SHOWN and value is not None)
    if settings:
        note = f"rows say to the model server: {', '.join(settings)}; whoever plays a lifted source says that"
        losses.add(Loss(PieceName.EPISODE_CONTROL, "lost", note))
    return Row(row, prompt, tools, frozenset(losses))


_SHOWN = frozenset({"input", "instructions", "tools"})


def _read_input(shown: Mapping[str, Any], losses: set[Loss]) -> list[Message]:
    messages = []
    if shown.get("instructions"):
        losses.add(_INSTRUCTIONS)
        messages.append(Message("system", (Text(shown["instructions"]),)))
    if isinstance(shown["input"], str):
        return [*messages, Message("user", (Text(shown["input"]),))]
    for item in shown["input"]:
        kind = item.get("type") or "message"
        if kind == "message":
            messages.append(Message(_role(item["role"], losses), _read_parts(item["content"])))
        elif kind == "function_call":
            losses.add(_CALLS)
            call = ToolCall(item["name"], json.loads(item["arguments"]))
            messages.append(Message("assistant", (Text(write_calls([call])),)))
        elif kind == "function_call_output":
            losses.add(_CALLS)
            messages.append(Message("tool", _read_parts(item["output"])))
        elif kind == "reasoning":
            losses.add(_REASONING)
        else:
            raise ValueError(f"its input begins with an item of type {kind}")
    return messages


def _role(role: str, losses: set[Loss]) -> Literal["system", "user", "assistant"]:
    match role:
        case "developer":
            losses.add(_DEVELOPER)
            return "system"
        case "system" | "user" | "assistant":
            return role
        case _:
            raise ValueError(f"its input has a message of the role {role}")


def _read_parts(content: Any) -> tuple[Block, ...]:
    if isinstance(content, str):
        return (Text(content),)
    blocks: list[Block] = []
    for part in content:
        match part:
            case {"type": "output_text" | "input_text", "text": str(text)}:
                blocks.append(Text(text))
            case {"type": "refusal", "refusal": str(text)}:
                blocks.append(Text(text))
            case {"type": "input_image", "image_url": str(url)} if url.startswith("data:"):
                blocks += read_content([{"type": "input_image", "image_url": url, "detail": "auto"}])
            case _:
                kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
                raise ValueError(
                    f"its input has a part that is neither text nor an image with its data: {kind}"
                )
    return tuple(blocks)


def _read_tools(tools: Sequence[Mapping[str, Any]], losses: set[Loss]) -> list[ToolSpec]:
    specs = []
    for tool in tools:
        if tool["type"] != "function":
            losses.add(_HOSTED)
            continue
        if tool.get("strict"):
            losses.add(_STRICT)
        specs.append(ToolSpec(tool["name"], tool.get("description") or "", tool.get("parameters") or _ANY))
    return specs
