"""Chat: one question to a model behind an OpenAI-compatible endpoint, and an error in words when it goes wrong."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from canonical.content import JSON, quote

_AGAIN = frozenset({408, 409, 429})
_LONGEST_PAUSE = 8.0


class ChatError(RuntimeError):
    """Report that a model gave no usable answer.

    Attributes:
        reason: What went wrong; holds nothing that was sent or answered.
        detail: What the endpoint said about it, or nothing. It may quote what was sent.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason, self.detail = reason, detail
        super().__init__(f"{reason}: {detail}" if detail else reason)


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """Hold a tool call as a model requests it: `arguments` is text that should be a JSON object."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """Hold what a model answered: text (a refusal, too, is text) and tool calls."""

    text: str
    calls: tuple[RequestedCall, ...] = ()


@dataclass(slots=True)
class _Shared:
    client: Any
    users: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatModel:
    """Name a model behind an OpenAI-compatible chat endpoint. The package `openai` is imported at the first question.

    Many questions may be under way at once, in several event loops; those of one loop share its connections.

    Attributes:
        model: The name that the endpoint knows the model by.
        base_url: The address of the API, such as `http://127.0.0.1:8000/v1`; None for OpenAI's own, or whatever the
            environment variable OPENAI_BASE_URL says.
        api_key_variable: The environment variable that holds the key. A server at `base_url` may do without one.
        timeout: Seconds that one attempt may take in total.
        retries: How many further attempts follow one that failed for a passing reason: no connection, no answer in
            time, HTTP 408, 409, 429, or 500 and above. Pauses between them double from half a second to 8.
    """

    model: str
    base_url: str | None = None
    api_key_variable: str = "OPENAI_API_KEY"
    timeout: float = 60.0
    retries: int = 2
    _shared: dict[asyncio.AbstractEventLoop, _Shared] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if not self.timeout > 0:
            raise ValueError(f"the timeout must be a positive number of seconds, not {self.timeout}")
        if self.retries < 0:
            raise ValueError(f"the number of retries cannot be {self.retries}")

    @property
    def endpoint(self) -> str:
        """The address as error sentences name it, without credentials."""
        address = self.base_url or os.environ.get("OPENAI_BASE_URL")
        if not address:
            return "of OpenAI"
        try:
            parts = urlsplit(address)
        except ValueError:
            return quote(address)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    async def ask(
        self,
        messages: Sequence[Mapping[str, JSON]],
        *,
        tools: Sequence[Mapping[str, JSON]] = (),
        options: Mapping[str, JSON] | None = None,
    ) -> Reply:
        """Return the model's answer to a conversation.

        Args:
            messages: The conversation in the form of the chat API. Lone surrogates are sent as question marks.
            tools: The tools in the dialect OPENAI_CHAT.
            options: Further fields of the request, such as `temperature`; those that are None are left out.

        Raises:
            ChatError: The package is missing, the endpoint cannot be asked or refuses, or its answer has another form.
        """
        request: dict[str, Any] = {"model": self.model, "messages": _sendable(list(messages))}
        if tools:
            request["tools"] = _sendable(list(tools))
        request |= {key: value for key, value in (options or {}).items() if value is not None}
        attempt = 0
        async with self.connected():
            while True:
                try:
                    return _reply(await self._post(request), self.endpoint)
                except _PassingError as error:
                    if attempt >= self.retries:
                        raise ChatError(error.reason, error.detail) from None
                await asyncio.sleep(min(_LONGEST_PAUSE, 0.5 * 2**attempt))
                attempt += 1

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Keep connections open between the questions that are asked inside the context.

        Raises:
            ChatError: The package or the key is missing, or the address is none.
        """
        # A client costs tens of milliseconds and belongs to one event loop, so all users in a loop share one.
        loop = asyncio.get_running_loop()
        shared = self._shared.get(loop)
        if shared is None:
            shared = self._shared[loop] = _Shared(self._client())
        shared.users += 1
        try:
            yield
        finally:
            shared.users -= 1
            if not shared.users:
                del self._shared[loop]
                await shared.client.close()

    def _client(self) -> Any:
        try:
            import openai  # noqa: PLC0415 - only who asks a model needs it
        except ImportError:
            raise ChatError(
                'asking a model needs the package openai: pip install "rosetta-environments[model]"'
            ) from None
        key = self._key()
        try:
            return openai.AsyncOpenAI(
                api_key=key, base_url=self.base_url, timeout=self.timeout, max_retries=0
            )
        except Exception as error:  # noqa: BLE001 - whatever the HTTP library makes of an address that is none
            raise ChatError(f"the endpoint {self.endpoint} cannot be asked", str(error)) from None

    async def _post(self, request: dict[str, Any]) -> str:
        import openai  # noqa: PLC0415 - there is a client, so there is the package

        where = f"the endpoint {self.endpoint}"
        client = self._shared[asyncio.get_running_loop()].client
        try:
            async with asyncio.timeout(self.timeout):
                raw = await client.chat.completions.with_raw_response.create(**request)
                return str(raw.http_response.text)
        except (TimeoutError, openai.APITimeoutError):
            raise _PassingError(f"{where} did not answer within {self.timeout:g} s") from None
        except openai.APIStatusError as error:
            is_passing = error.status_code in _AGAIN or error.status_code >= 500
            kind = _PassingError if is_passing else ChatError
            raise kind(f"{where} answered HTTP {error.status_code}", error.message[:500]) from None
        except openai.APIConnectionError as error:
            raise _PassingError(f"{where} cannot be reached", str(error.__cause__ or "")) from None
        except (openai.OpenAIError, ValueError) as error:
            raise ChatError(f"{where} cannot be asked ({type(error).__name__})", str(error)) from None

    def _key(self) -> str:
        key = os.environ.get(self.api_key_variable)
        if key:
            return key
        if self.base_url is None and not os.environ.get("OPENAI_BASE_URL"):
            raise ChatError(
                f"set the environment variable {self.api_key_variable} to the API key, or give the base_url of a server"
            )
        return "none"


class _PassingError(ChatError):
    """Report a failure that another attempt may not meet."""


def _sendable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, Mapping):
        return {_sendable(key): _sendable(item) for key, item in value.items()}
    return [_sendable(item) for item in value] if isinstance(value, list | tuple) else value


def _reply(body: str, endpoint: str) -> Reply:
    odd = f"the endpoint {endpoint} answered in another form than the chat API"
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise ChatError(odd, "the body is not JSON") from None
    match value:
        case {"choices": [{"message": {**message}}, *_]}:
            pass
        case _:
            raise ChatError(odd, "there is no message in choices[0]")
    text = message.get("content") or message.get("refusal") or ""
    requested = message.get("tool_calls") or []
    if not isinstance(text, str) or not isinstance(requested, list):
        raise ChatError(odd, "the message has a content or tool_calls of another type")
    return Reply(text, tuple(_requested(call, index, odd) for index, call in enumerate(requested)))


def _requested(call: Any, index: int, odd: str) -> RequestedCall:
    match call:
        case {"function": {"name": str(name), **rest}}:
            pass
        case _:
            raise ChatError(odd, f"tool_calls[{index}] names no function")
    arguments = rest.get("arguments")
    if arguments is not None and not isinstance(arguments, str):
        arguments = json.dumps(arguments)  # some servers answer with the object itself
    identity = call.get("id")
    return RequestedCall(identity if isinstance(identity, str) else f"call_{index}", name, arguments or "{}")
