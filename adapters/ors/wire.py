"""The form of ORS: content, prompts and actions as JSON, and the bytes of its HTTP. No framework is imported."""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from canonical.content import JSON, Block, Image, Message, Text, project_text
from canonical.tool import ToolCall
from canonical.transcript import Action, action_from_json

CHANNEL = "action_channel"
"""The key of a task_spec under which a client names the channel for whole actions.

ORS carries tool calls only, and no lone surrogates. So assistant text, and a call with lone surrogates, is sent as a call
of a name that the client has made up for this one session. Models never see it, so no call of a model can be mistaken for
it; a session without it has no such channel.
"""

SHORTEST_CHANNEL = 16
"""How many characters a channel has at least, so that nobody guesses it."""

_SURROGATE = re.compile("[\ud800-\udfff]")

Reading: TypeAlias = Literal["sum", "last"]
"""How a trainer reads rewards: it adds all of them, or takes the last one that is not null."""


def make_channel() -> str:
    """Return a new name for the channel of one session; its spaces keep it apart from every tool."""
    return f"assistant action {secrets.token_hex(16)}"


def write_action(action: Action, channel: str) -> tuple[str, dict[str, JSON]]:
    """Return the name and the input with which an action is called in a session that has a channel."""
    if isinstance(action, str):
        return channel, {"text": action} if _is_unicode(action) else {"exact": _exact(json.dumps(action))}
    # Escaped by JSON, a lone surrogate leaves no trace in the bytes; so the text is looked at before.
    if _is_unicode(json.dumps(action.to_json(), ensure_ascii=False)):
        return action.name, dict(action.arguments)
    return channel, {"exact": _exact(json.dumps(action.to_json()))}


def read_action(name: str, arguments: Mapping[str, Any], channel: str | None) -> Action | None:
    """Return the action that `write_action` sent through a channel, or None when this is an ordinary call."""
    if channel is None or name != channel:
        return None
    match dict(arguments):
        case {"text": str(text), **rest} if not rest:
            return text
        case {"exact": str(exact), **rest} if not rest:
            try:
                return action_from_json(json.loads(base64.b64decode(exact, validate=True)))
            except (ValueError, RecursionError):
                return None
        case _:
            return None


def write_blocks(blocks: Sequence[Block], detail: Mapping[str, JSON] | None = None) -> list[dict[str, Any]]:
    """Return blocks as ORS carries them.

    ORS writes JSON with pydantic, which refuses lone surrogates. A text that has any is shown with replacement
    characters, and travels exactly in the block's `detail`, under `exact`: base 64 of UTF-8 that lets surrogates through.

    Args:
        blocks: The content.
        detail: What else the `detail` of every block says.
    """
    return [_write_block(block, dict(detail or {})) for block in blocks]


def read_blocks(blocks: Sequence[Any]) -> tuple[Block, ...]:
    """Read what `write_blocks` wrote.

    Raises:
        ValueError: The value is not content of ORS.
    """
    return tuple(map(_read_block, blocks))


def write_prompt(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return a prompt as blocks. ORS has no roles here, so unless it is one user message, `detail` holds them."""
    if len(messages) == 1 and messages[0].role == "user":
        return write_blocks(messages[0].blocks)
    written: list[dict[str, Any]] = []
    for number, message in enumerate(messages):
        detail: dict[str, JSON] = {"role": message.role, "message": number}
        # A message without content would leave no trace.
        written += write_blocks(message.blocks, detail) or [_write_block(Text(""), {**detail, "empty": True})]
    return written


def read_prompt(blocks: Sequence[Any]) -> tuple[Message, ...]:
    """Read what `write_prompt` wrote.

    Raises:
        ValueError: The value is not a prompt of ORS.
    """
    if all("message" not in (block.get("detail") or {}) for block in blocks):
        return (Message("user", read_blocks(blocks)),)
    messages: list[Message] = []
    for block in blocks:
        match block:
            case {
                "detail": {
                    "role": "system" | "user" | "assistant" | "tool" as role,
                    "message": int(number),
                    **detail,
                }
            }:
                # In the order in which they are shown, and not in another one that they claim.
                if number == len(messages):
                    messages.append(Message(role, ()))
                if number != len(messages) - 1 or role != messages[-1].role:
                    raise ValueError("a block of this prompt does not belong to the message that it names")
                messages[-1] = Message(role, messages[-1].blocks + _read_part(block, detail))
            case _:
                raise ValueError("a block of this prompt belongs to no message")
    return tuple(messages)


def _read_part(block: Mapping[str, Any], detail: Mapping[Any, Any]) -> tuple[Block, ...]:
    if not detail.get("empty"):
        return (_read_block({**block, "detail": detail}),)
    if (block.get("type"), block.get("text"), len(detail)) != ("text", "", 1):
        raise ValueError("a message without content shows something all the same")
    return ()


def keep_space(text: str, size: int) -> str:
    """Return compact JSON in which no chunk begins with white space when it is cut every `size` characters.

    The clients of ORS strip white space from the beginning of every chunk. In compact JSON white space stands in texts
    only, where it may as well be an escape sequence.
    """
    if len(text) <= size:
        return text
    return "".join(_chunks(text, size))


def _chunks(text: str, size: int) -> Iterator[str]:
    place = 0
    while place < len(text):
        first = text[place]
        if first.isspace():
            escaped = f"\\u{ord(first):04x}"
            end = place + size - len(escaped) + 1
            yield escaped + text[place + 1 : end]
        else:
            end = place + size
            yield text[place:end]
        place = end


def _is_unicode(text: str) -> bool:
    return _SURROGATE.search(text) is None


def _exact(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")


def _write_block(block: Block, detail: dict[str, JSON]) -> dict[str, Any]:
    match block:
        case Image(data, media_type):
            encoded = base64.b64encode(data).decode("ascii")
            return {"type": "image", "data": encoded, "mimeType": media_type, "detail": detail or None}
        case Text(text) if _is_unicode(text):
            return {"type": "text", "text": text, "detail": detail or None}
        case Text(text):
            shown = _SURROGATE.sub("\ufffd", text)
            return {"type": "text", "text": shown, "detail": {**detail, "exact": _exact(text)}}


def _read_block(block: Any) -> Block:
    match {**block, "detail": block.get("detail") or None}:
        case {"type": "text", "text": str(shown), "detail": {"exact": str(exact), **more}, **rest} if not (
            more or rest
        ):
            text = base64.b64decode(exact, validate=True).decode("utf-8", "surrogatepass")
            if shown != _SURROGATE.sub("\ufffd", text):
                raise ValueError("the text that a block shows is not the exact one beside it")
            return Text(text)
        case {"type": "text", "text": str(text), "detail": None, **rest} if not rest:
            return Text(text)
        case {
            "type": "image",
            "data": str(data),
            "mimeType": str(media_type),
            "detail": None,
            **rest,
        } if not rest:
            return Image(base64.b64decode(data, validate=True), media_type)
        case _:
            raise ValueError("a block is a text or an image of ORS, and nothing beside")


class Request(NamedTuple):
    """Hold one request of HTTP."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None


class Response(Protocol):
    """Be the answer to a request."""

    @property
    def status(self) -> int:
        """Return the status code."""

    @property
    def body(self) -> bytes:
        """Return the content."""


class Reply(NamedTuple):
    """Hold what the server says.

    Attributes:
        text: The observation as a model reads it.
        reward: What the step paid.
        ended: Whether the episode is over.
        error: Why the server refused or failed, or None. A tool's own error is an observation, not this.
    """

    text: str
    reward: float | None
    ended: bool | None
    error: str | None


Operation: TypeAlias = Generator[Request, Response, Reply]

_DONE = Reply("", None, None, None)


class OrsWire:
    """Say what the official clients say over HTTP; stateless, what a session remembers is in its `memory`.

    A session here keeps one connection alive, and pings nothing: it is never silent for the 900 seconds after which a
    server of ORS forgets it.
    """

    transport: Literal["http"] = "http"
    connection: Literal["session"] = "session"
    last_events = frozenset({"end", "error"})

    def connect(self, memory: dict[str, Any]) -> Operation:
        """Learn which environment the server has."""
        answer = yield Request("GET", "/list_environments", {}, None)
        names = _read_json(answer)
        if not isinstance(names, list) or not names or not isinstance(names[0], str):
            raise _unknown("the list of environments", answer)
        memory["environment"] = names[0]
        return _DONE

    def reset(self, memory: dict[str, Any], task: str, seed: int) -> Operation:
        """Make a session for a task, and read its prompt."""
        made = yield Request("POST", "/create_session", _JSON, b"{}")
        memory["session"] = next((data for event, data in _events(made) if event == "task_id"), None)
        if memory["session"] is None:
            raise _unknown("the answer to create_session", made)
        memory["channel"] = make_channel()
        task_spec = {"id": task, "seed": seed, CHANNEL: memory["channel"]}
        spec = {"env_name": memory["environment"], "task_spec": task_spec}
        created = yield self._ask(memory, "POST", "/create", spec)
        if created.status != 200:
            return _refused("create", created)
        prompt = yield self._ask(memory, "GET", f"/{memory['environment']}/prompt")
        if prompt.status != 200:
            return _refused("prompt", prompt)
        try:
            messages = read_prompt(_read_json(prompt))
        except (AttributeError, TypeError) as error:
            raise _unknown("the prompt", prompt) from error
        return Reply("\n".join(message.text for message in messages), 0.0, ended=False, error=None)

    def step(self, memory: dict[str, Any], name: str, arguments: Mapping[str, JSON]) -> Operation:
        """Call a tool."""
        called = ToolCall(name, arguments)
        name, given = write_action(called, memory["channel"])
        answer = yield self._ask(
            memory, "POST", f"/{memory['environment']}/call", {"name": name, "input": given}
        )
        if answer.status != 200:
            return _refused("call", answer)
        parts = []
        for event, data in _events(answer):
            if event == "error":
                return Reply("", None, None, f"the call failed: {data}")
            parts += [data] if event in {"chunk", "end"} else []
        try:
            result = json.loads("".join(parts))
            if not result["ok"]:
                return Reply("", None, None, f"the call was refused: {result['error']}")
            output = result["output"]
            metadata = output["metadata"] or {}
            text = project_text(read_blocks(output["blocks"]))
            return Reply(text, metadata.get("paid", output["reward"]) or 0.0, output["finished"], None)
        except (ValueError, KeyError, TypeError) as error:
            raise _unknown("the answer to a call", answer) from error

    def score(self, memory: dict[str, Any]) -> None:
        """Return None: ORS has no request that scores an episode."""

    def close(self, memory: dict[str, Any]) -> Operation | None:
        """End the session, on which the server frees the episode."""
        return self._close(memory) if memory.get("session") else None

    def _close(self, memory: dict[str, Any]) -> Operation:
        for path in ("/delete", "/delete_session"):
            answer = yield self._ask(memory, "POST", path)
            if answer.status != 200:
                return _refused(path.strip("/"), answer)
        return _DONE

    def _ask(self, memory: dict[str, Any], method: str, path: str, body: JSON = None) -> Request:
        headers = {**_JSON, "X-Session-ID": memory["session"]}
        return Request(method, path, headers, None if body is None else json.dumps(body).encode("ascii"))


_JSON: Mapping[str, str] = {"Content-Type": "application/json"}


def _read_json(answer: Response) -> Any:
    try:
        return json.loads(answer.body)
    except ValueError as error:
        raise _unknown("an answer", answer) from error


def _events(answer: Response) -> Iterator[tuple[str, str]]:
    try:
        stream = answer.body.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise _unknown("an event stream", answer) from error
    for block in stream.split("\n\n"):
        event, data = "", []
        for line in block.split("\n"):
            field, _, value = line.partition(":")
            # One space belongs to the form of a line, every further one to its content.
            value = value.removeprefix(" ")
            if field == "event":
                event = value
            elif field == "data":
                data.append(value)
        if event:
            yield event, "\n".join(data)


def _refused(what: str, answer: Response) -> Reply:
    return Reply(
        "", None, None, f"{what}: status {answer.status}: {answer.body[:200].decode(errors='replace')}"
    )


def _unknown(what: str, answer: Response) -> ValueError:
    return ValueError(f"{what} is not in the form of ORS: {answer.body[:200].decode(errors='replace')}")


WIRE = OrsWire()
