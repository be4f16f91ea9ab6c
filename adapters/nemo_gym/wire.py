"""The form of the bodies: what this project writes to a resources server and what it reads there. No framework is imported."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias
from urllib.parse import quote

from canonical.content import JSON, Block, Image, Message, Text, project_text
from canonical.step import StepResult
from canonical.tool import ToolCall, ToolSpec
from canonical.transcript import Action, result_from_json

ACTION_TYPE = "application/vnd.rosetta.action+json"
"""Media type of a request that holds a whole action: a text, or a call whose name no path can hold.

An agent writes names and arguments but never media types, so no call of an agent can be mistaken for it.
"""

RESULT_TYPE = "application/vnd.rosetta.result+json"
"""Media type, asked for by `Accept`, of an answer that holds the whole result of a step instead of what a model reads."""

MAX_PATH = 2000
"""How many characters of a path a name may take; servers refuse long ones."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_DATA_URL = re.compile(r"data:([^;,]*);base64,(.*)", re.DOTALL)


def write_action(action: Action) -> tuple[str, str, bytes]:
    """Return path, media type and body of the request that carries an action.

    A call goes to the path of its name, as an agent sends it. What a path cannot hold travels as a whole action.
    """
    if isinstance(action, ToolCall):
        path = "/" + quote(action.name, safe="", errors="surrogatepass")
        if len(path) <= MAX_PATH and action.name not in {".", ".."}:
            return path, "application/json", write_json(dict(action.arguments))
        return "/", ACTION_TYPE, write_json(action.to_json())
    return "/", ACTION_TYPE, write_json(action)


def write_json(value: Any) -> bytes:
    """Return a value as JSON in ASCII, so that text which is no Unicode survives."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def write_content(blocks: Sequence[Block]) -> str | list[dict[str, JSON]]:
    """Return blocks as the Responses API carries them: one text as it is, anything else as a list of parts."""
    if len(blocks) == 1 and isinstance(blocks[0], Text):
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
        return tuple(_read_block(part) for part in value)
    raise ValueError(f"content must be text or a list of parts, not {type(value).__name__}")


def write_message(message: Message) -> dict[str, JSON]:
    """Return a message of a prompt."""
    content: Any = write_content(message.blocks)
    return {"role": message.role, "content": content}


def read_message(value: Mapping[str, Any]) -> Message:
    """Read what `write_message` wrote.

    Raises:
        KeyError, ValueError: The value is not a message with role and content alone.
    """
    if more := value.keys() - {"role", "content"}:
        raise ValueError(f"a message has role and content, and this one {', '.join(sorted(more))} too")
    return Message(value["role"], read_content(value["content"]))


def as_input(message: Message) -> Message:
    """Return a message as the Responses API can carry it: no role `tool`, and nothing that is no Unicode."""
    blocks = tuple(Text(sendable(b.text)) if isinstance(b, Text) else b for b in message.blocks)
    return Message("user" if message.role == "tool" else message.role, blocks)


def write_input(message: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return what `write_message` wrote as the Responses API takes it: no role `tool`, and nothing that is no Unicode."""
    role = "user" if message["role"] == "tool" else message["role"]
    return {"role": role, "content": _sendable(message["content"])}


def write_tool(spec: ToolSpec) -> dict[str, JSON]:
    """Return a tool as a row lists it.

    The schema stays as it is, so that a model may leave out what has a default; strict mode would forbid that.
    """
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": dict(spec.parameters),
        "strict": False,
    }


def read_tool(value: Mapping[str, Any]) -> ToolSpec:
    """Read what `write_tool` wrote.

    Raises:
        KeyError: A key is missing.
        ValueError: There are others, or it is no function whose arguments may be left out.
    """
    if more := value.keys() - {"type", "name", "description", "parameters", "strict"}:
        raise ValueError(f"it has {', '.join(sorted(more))} too")
    if value["type"] != "function" or value["strict"] is not False:
        raise ValueError("it is not a function with strict off")
    return ToolSpec(value["name"], value["description"], value["parameters"])


def read_row(row: Mapping[str, Any]) -> tuple[tuple[Message, ...], tuple[ToolSpec, ...]]:
    """Read what an agent shows a model of a row: the input and the tools.

    Raises:
        KeyError, ValueError: The row is not one of a compiled environment, or shows more.
    """
    shown = row["responses_create_params"]
    if more := shown.keys() - {"input", "tools"}:
        raise ValueError(f"it has {', '.join(sorted(more))} too")
    return tuple(map(read_message, shown["input"])), tuple(map(read_tool, shown["tools"]))


def read_result(body: bytes) -> StepResult:
    """Read the result of a step in JSON.

    Raises:
        ValueError, KeyError, TypeError: The body is none.
    """
    return result_from_json(json.loads(body))


def write_item(action: Action, number: int) -> dict[str, JSON]:
    """Return the item of a rollout that is an action; the number tells it from the others."""
    if isinstance(action, str):
        part: dict[str, JSON] = {"type": "output_text", "text": sendable(action), "annotations": []}
        return {
            "type": "message",
            "id": f"message_{number}",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }
    return {
        "type": "function_call",
        "call_id": f"call_{number}",
        "name": sendable(action.name),
        "arguments": json.dumps(dict(action.arguments)),
    }


def write_output(text: str, number: int) -> dict[str, JSON]:
    """Return the item of a rollout that is the answer to the call with a number."""
    return {"type": "function_call_output", "call_id": f"call_{number}", "output": sendable(text)}


def sendable(text: str) -> str:
    """Return a text as UTF-8 can carry it: lone surrogates become replacement characters."""
    return _SURROGATE.sub("\ufffd", text)


def _sendable(value: JSON) -> JSON:
    if isinstance(value, list):
        return [_sendable(item) for item in value]
    if isinstance(value, dict):
        return {key: _sendable(item) for key, item in value.items()}
    return sendable(value) if isinstance(value, str) else value


def _write_block(block: Block) -> dict[str, JSON]:
    if isinstance(block, Text):
        return {"type": "input_text", "text": block.text}
    data = base64.b64encode(block.data).decode("ascii")
    return {
        "type": "input_image",
        "image_url": f"data:{block.media_type};base64,{data}",
        "detail": "auto",
    }


def _read_block(part: Any) -> Block:
    match part:
        case {"type": "input_text", "text": str(text), **rest} if not rest:
            return Text(text)
        case {"type": "input_image", "image_url": str(url), "detail": "auto", **rest} if not rest and (
            match := _DATA_URL.fullmatch(url)
        ):
            return Image(base64.b64decode(match[2], validate=True), match[1])
        case _:
            raise ValueError("a part of content is a text or an image with its data")


class Reply(NamedTuple):
    """Hold what an answer of the server says.

    Attributes:
        text: The observation as a model reads it.
        reward: The reward of the step, or of the rollout for `score`; None where nothing is said of it.
        ended: Whether the episode is over; None where nothing is said of it.
        error: Why the server refused or failed, or None. A tool's own error is an observation, not this.
    """

    text: str
    reward: float | None
    ended: bool | None
    error: str | None = None


class Request(NamedTuple):
    """Hold one HTTP request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None


class Response(Protocol):
    """Be what the load engine reads of an HTTP response."""

    @property
    def status(self) -> int:
        """The status."""

    @property
    def cookies(self) -> Mapping[str, str]:
        """The cookies that it sets, by name."""

    @property
    def body(self) -> bytes:
        """The content."""


Operation: TypeAlias = Generator[Request, Response, Reply]
Memory: TypeAlias = dict[str, Any]

RESPONSE: Mapping[str, JSON] = {
    "id": "response",
    "object": "response",
    "created_at": 0,
    "model": "policy",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "output": [],
}
"""What a model server answers; an agent puts the items of the whole rollout into its `output`."""


class NeMoGymWire:
    """Translate between calls and requests; stateless, one object for all sessions.

    A session remembers its cookies, its row, and whether its episode is still to be verified.
    """

    transport: Literal["http"] = "http"
    connection: Literal["pool"] = "pool"
    last_events: tuple[str, ...] = ()

    def connect(self, memory: Memory) -> None:
        """Return nothing: a session begins with its row."""

    def reset(self, memory: Memory, task: str, seed: int) -> Operation:
        """Return the operation that posts a row to `/seed_session`."""
        memory["row"] = {"task": task, "seed": seed, "verify_key": "a key that no model sees"}
        body = yield from _post(memory, "/seed_session", "application/json", write_json(memory["row"]))
        if isinstance(body, Reply):
            return body
        try:
            prompt = [read_content(message["content"]) for message in json.loads(body)["prompt"]]
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is no answer to /seed_session: {body[:200]!r}") from error
        memory["is_live"] = True
        return Reply("\n".join(project_text(blocks) for blocks in prompt), None, ended=False)

    def step(self, memory: Memory, name: str, arguments: Mapping[str, JSON]) -> Operation:
        """Return the operation of one tool call."""
        body = yield from _post(memory, *write_action(ToolCall(name, arguments)))
        if isinstance(body, Reply):
            return body
        try:
            result = read_result(body)
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is no result of a call: {body[:200]!r}") from error
        return Reply(result.observation.text, result.reward, result.cause is not None)

    def score(self, memory: Memory) -> Operation:
        """Return the operation that posts the rollout to `/verify`, which frees the episode."""
        params = {"responses_create_params": {"input": "played by a script"}, "response": RESPONSE}
        asked = {**params, **memory["row"]}
        body = yield from _post(memory, "/verify", "application/json", write_json(asked))
        if isinstance(body, Reply):
            return body
        memory["is_live"] = False
        try:
            return Reply("", float(json.loads(body)["reward"]), ended=None)
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is no answer to /verify: {body[:200]!r}") from error

    def close(self, memory: Memory) -> Operation | None:
        """Return the operation of `/verify` where it was not reached, so that the server frees the episode at once."""
        return self.score(memory) if memory.get("is_live") else None


def _post(
    memory: Memory, path: str, media_type: str, body: bytes
) -> Generator[Request, Response, bytes | Reply]:
    headers = {"Content-Type": media_type, "Accept": RESULT_TYPE}
    if memory.get("cookies"):
        headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in memory["cookies"].items())
    answer = yield Request("POST", path, headers, body)
    if answer.cookies:
        memory["cookies"] = dict(answer.cookies)
    if answer.status == _OK:
        return answer.body
    return Reply("", None, None, error=f"POST {path}: status {answer.status}")


_OK = 200

WIRE = NeMoGymWire()
