"""Content and calls as Verifiers carries them: parts of OpenAI's chat format. No framework is imported here."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from canonical.content import (
    JSON,
    Block,
    ErrorCode,
    Image,
    Message,
    Observation,
    Text,
    observation_from_json,
)
from canonical.dialect import write_calls
from canonical.step import NO_COMPONENTS, Cause, StepResult
from canonical.strict_json import InvalidJSONError, read_json, write_json
from canonical.tool import ToolCall, ToolSpec
from canonical.transcript import Action

TEXT_KEY = "assistant_text"
"""Key that holds assistant text exactly, beside a message that could not. An agent writes messages and never keys."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_DATA_URL = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)


def write_content(blocks: Sequence[Block]) -> str | list[dict[str, Any]]:
    """Return blocks as the content of a message: one text as it is, anything else as a list of parts.

    Messages of Verifiers are pydantic models, which refuse lone surrogates: those become replacement characters.
    """
    if len(blocks) == 1 and isinstance(blocks[0], Text):
        return clean(blocks[0].text)
    return [_write_part(block) for block in blocks]


def read_content(content: Any) -> tuple[Block, ...]:
    """Read the content of a message: a text, or a list of parts.

    Raises:
        ValueError: The value is not content.
    """
    if isinstance(content, str):
        return (Text(content),)
    if isinstance(content, Sequence):
        return tuple(_read_part(part) for part in content)
    raise ValueError(f"content must be text or a list of parts, not {type(content).__name__}")


def read_message(message: Any) -> Message:
    """Read a message of a prompt: role and content, and for what a tool has said, of which call.

    Raises:
        KeyError, ValueError: The value is not such a message, or holds more.
    """
    value = _plain(message)
    is_tool = value["role"] == "tool"
    if more := value.keys() - {"role", "content", *(("tool_call_id",) if is_tool else ())}:
        raise ValueError(f"a message has role and content, and this one {', '.join(sorted(more))} too")
    return Message(value["role"], read_content(value["content"]))


def read_answer(answers: Sequence[Any], response: Any) -> Any:
    """Return the content of the one message that answers a model's: a call as its tool, a text as the user.

    Args:
        answers: What came after the model's message.
        response: The model's message, with one call or none.

    Raises:
        KeyError, ValueError: It is not one such message, or holds more.
    """
    if len(answers) != 1:
        raise ValueError(f"{len(answers)} messages answer, and not one")
    (answer,) = map(_plain, answers)
    call = response.tool_calls[0].id if response.tool_calls else None
    role = read_message(answer).role
    if (role, answer.get("tool_call_id")) != ("user" if call is None else "tool", call):
        raise ValueError(f"the answer is of the role {role}, and does not fit what was called")
    return answer["content"]


def _plain(value: Any) -> Mapping[str, Any]:
    plain: Mapping[str, Any] = value if isinstance(value, Mapping) else value.model_dump(exclude_none=True)
    return plain


def read_tool(tool: Any) -> ToolSpec:
    """Read a tool as a model is told of it.

    Raises:
        KeyError, ValueError: The value is not a tool, or holds more.
    """
    value = _plain(tool)
    more = value.keys() - {"name", "description", "parameters", "type"}
    if more or value.get("type", "function") != "function":
        raise ValueError(
            f"a tool is a function, and this one has {', '.join(sorted(more)) or 'another type'}"
        )
    return ToolSpec(value["name"], value["description"], value["parameters"])


def read_action(name: str, arguments: str) -> Action:
    """Return a call as a model wrote it; arguments that are no JSON object become text, so that the episode says why."""
    try:
        value = read_json(arguments) if arguments.strip() else None
    except InvalidJSONError:
        pass
    else:
        if value is None:
            return ToolCall(name, {})
        if isinstance(value, dict):
            return ToolCall(name, value)
    return f'<tool_call>{{"name": {write_json(name)}, "arguments": {arguments}}}</tool_call>'


def write_action(action: Action) -> Action:
    """Return an action that messages of Verifiers can carry: a call whose name is no Unicode is written as text.

    Arguments need no such care, because they are a JSON text, in which any character can be escaped.
    """
    if isinstance(action, ToolCall) and clean(action.name) != action.name:
        return write_calls([action])
    return action


def clean(text: str) -> str:
    """Return a text with replacement characters in place of lone surrogates."""
    return _SURROGATE.sub("\ufffd", text)


def publish(result: StepResult) -> dict[str, JSON]:
    """Return what a step result holds besides the content that the model reads, for trainers and records."""
    value = result.to_json()
    observation = value.pop("observation")
    if result.observation.error is not None:
        value["error"] = result.observation.error.value
    if any(
        isinstance(block, Text) and clean(block.text) != block.text for block in result.observation.blocks
    ):
        # What a message cannot hold as it is, kept in ASCII.
        value["exact"] = json.dumps(observation)
    return value


def _write_part(block: Block) -> dict[str, Any]:
    if isinstance(block, Text):
        return {"type": "text", "text": clean(block.text)}
    data = base64.b64encode(block.data).decode("ascii")
    return {"type": "image_url", "image_url": {"url": f"data:{block.media_type};base64,{data}"}}


def _read_part(part: Any) -> Block:
    match _plain(part):
        case {"type": "text", "text": str(text), **rest} if not rest:
            return Text(text)
        case {"type": "image_url", "image_url": {"url": str(url), **more}, **rest} if not (more or rest) and (
            match := _DATA_URL.fullmatch(url)
        ):
            return Image(base64.b64decode(match[2], validate=True), match[1])
        case _:
            raise ValueError("a part of a message is a text or an image in a data URL")


def read_result(content: Any, reward: Any, total: Any, public: Mapping[str, Any]) -> StepResult:
    """Return the result that a turn of a rollout shows.

    Args:
        content: The content of the message that answers.
        reward: What the framework holds as the reward of the turn.
        total: What the framework's rubric says of the whole rollout, or None before its end.
        public: What `publish` wrote beside it.

    Raises:
        KeyError, TypeError, ValueError: The parts are not those of a turn, or contradict each other.
    """
    blocks = read_content(content)
    if "exact" in public:
        exact = observation_from_json(json.loads(public["exact"])).blocks
        if write_content(exact) != write_content(blocks):
            raise ValueError("the message is not the text that it stands for")
        blocks = exact
    error = public.get("error")
    cause = Cause(public["cause"]) if "cause" in public else None
    if (cause is None) != (total is None):
        raise ValueError(f"the rollout's return is {total!r}, which does not fit the cause {cause}")
    if not isinstance(reward, int | float) or reward != public["reward"]:
        raise ValueError(f"the reward of the turn is {reward!r}, not {public['reward']!r}")
    return StepResult(
        Observation(blocks, None if error is None else ErrorCode(error)),
        float(reward),
        float(public["total"] if total is None else total),
        cause,
        public.get("components") or NO_COMPONENTS,
    )
