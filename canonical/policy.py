"""Policies: what decides the actions of a rollout."""

from __future__ import annotations

import base64
import hashlib
import random
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any, Protocol

from canonical.adapter import Opened
from canonical.chat import ChatModel, Reply, RequestedCall
from canonical.content import JSON, Block, Message, Text
from canonical.dialect import TextForm, describe_tools
from canonical.environment import Environment
from canonical.sampling import random_call, sample_call
from canonical.schema import SchemaDialect, render_tools
from canonical.step import StepResult
from canonical.strict_json import InvalidJSONError, read_json, write_json
from canonical.tool import ToolCall
from canonical.transcript import Action, Transcript


class Policy(Protocol):
    """Decide the actions of episodes. One policy may play many episodes at once."""

    def play(self, opened: Opened, *, task: str, seed: int) -> AsyncGenerator[Action, StepResult]:
        """Play one episode: yield an action, receive its result, and so on; return to stop.

        Args:
            opened: The prompt and the tools.
            task: The task being played.
            seed: The seed of the episode.
        """


class OraclePolicy:
    """Play the solution that the environment knows.

    Raises, when played:
        NoOracleError: The environment knows none for the task.
    """

    def __init__(self, environment: Environment[Any]) -> None:
        self._environment = environment

    async def play(
        self,
        opened: Opened,  # noqa: ARG002 - the solution needs no look at it
        *,
        task: str,
        seed: int,  # noqa: ARG002
    ) -> AsyncGenerator[Action, StepResult]:
        """Yield the calls of the solution."""
        for call in self._environment.oracle(self._environment.tasks().get(task)):
            yield call


class RandomPolicy:
    """Call tools at random until the episode ends; a pure function of the seeds and the task.

    Args:
        seed: The seed of the policy. Episodes of other tasks and seeds get other actions from it.
        environment: Suggests plausible calls where it can; without it, the schemas of the tools decide.
    """

    def __init__(self, seed: int = 0, environment: Environment[Any] | None = None) -> None:
        self._seed, self._environment = seed, environment

    async def play(self, opened: Opened, *, task: str, seed: int) -> AsyncGenerator[Action, StepResult]:
        """Yield random calls without end.

        Raises:
            ValueError: There is no tool to call.
        """
        key = "\0".join((str(self._seed), task, str(seed))).encode("utf-8", "surrogatepass")
        rng = random.Random(int.from_bytes(hashlib.sha256(key).digest(), "big"))  # noqa: S311 - reproducible
        found = None if self._environment is None else self._environment.tasks().get(task)
        while True:
            if self._environment is None or found is None:
                yield sample_call(opened.tools, rng)
            else:
                yield random_call(self._environment, found, rng)


class ScriptedPolicy:
    """Play given actions, whatever they lead to."""

    def __init__(self, actions: Iterable[Action]) -> None:
        self._actions = tuple(actions)

    async def play(
        self,
        opened: Opened,  # noqa: ARG002 - a script looks at nothing
        *,
        task: str,  # noqa: ARG002
        seed: int,  # noqa: ARG002
    ) -> AsyncGenerator[Action, StepResult]:
        """Yield the actions."""
        for action in self._actions:
            yield action


class ReplayPolicy(ScriptedPolicy):
    """Play the actions of a transcript again."""

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(step.action for step in transcript.steps)


class ModelPolicy:
    """Let a model behind an OpenAI-compatible endpoint play.

    Tools are offered through the API's tool calls. Several calls in one answer are carried out in order; an answer
    without a call, a refusal included, is a text action; a call whose arguments are not a JSON object becomes a text
    action, too, so that the environment says what is wrong with it.

    Args:
        model: The name that the endpoint knows the model by.
        base_url: See `ChatModel`, as for `api_key_variable`, `timeout` (seconds) and `retries`.
        temperature: Sent with every request; None leaves it to the endpoint.
        seed: As `temperature`.
        text_form: Offer the tools as text in this form instead, for models without tool calls; then every answer is a
            text action.

    Raises, when played:
        ChatError: The model gave no usable answer.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key_variable: str = "OPENAI_API_KEY",
        temperature: float | None = None,
        seed: int | None = None,
        timeout: float = 60.0,
        retries: int = 2,
        text_form: TextForm | None = None,
    ) -> None:
        self._chat = ChatModel(
            model=model,
            base_url=base_url,
            api_key_variable=api_key_variable,
            timeout=timeout,
            retries=retries,
        )
        self._options: dict[str, JSON] = {"temperature": temperature, "seed": seed}
        self._text_form = text_form

    async def play(
        self,
        opened: Opened,
        *,
        task: str,  # noqa: ARG002 - a model knows what the prompt says
        seed: int,  # noqa: ARG002
    ) -> AsyncGenerator[Action, StepResult]:
        """Ask the model, yield what it answers, and show it what that led to."""
        messages: list[dict[str, JSON]] = [_message(message) for message in opened.prompt]
        tools: list[dict[str, JSON]] = []
        if self._text_form is None:
            tools = render_tools(opened.tools, SchemaDialect.OPENAI_CHAT)
        else:
            messages.insert(0, {"role": "system", "content": describe_tools(opened.tools, self._text_form)})
        async with self._chat.connected():
            while True:
                reply = await self._chat.ask(messages, tools=tools, options=self._options)
                if not reply.calls:
                    result = yield reply.text
                    messages += [_assistant(reply.text), _user(result.observation.blocks)]
                    continue
                actions = [_action_of(call) for call in reply.calls]
                results = []
                for action in actions:
                    results.append((yield action))  # noqa: PERF401 - a comprehension cannot yield
                messages += _history(reply, actions, results)


def _action_of(call: RequestedCall) -> Action:
    try:
        arguments = read_json(call.arguments)
    except InvalidJSONError:
        pass
    else:
        if arguments is None:
            return ToolCall(call.name, {})
        if isinstance(arguments, dict):
            return ToolCall(call.name, arguments)
    return f'<tool_call>{{"name": {write_json(call.name)}, "arguments": {call.arguments}}}</tool_call>'


def _history(reply: Reply, actions: Sequence[Action], results: Sequence[StepResult]) -> list[dict[str, JSON]]:
    """Return the messages that an answer with calls, and what they led to, add to the conversation.

    Servers refuse a conversation in which the arguments of a call are not JSON, so such a call goes in as text.
    """
    said = [reply.text] if reply.text else []
    calls: list[JSON] = []
    answers: list[dict[str, JSON]] = []
    shown: list[Block] = []
    for call, action, result in zip(reply.calls, actions, results, strict=True):
        blocks = result.observation.blocks
        if isinstance(action, str):
            said.append(action)
            shown += blocks
            continue
        function: JSON = {"name": call.name, "arguments": call.arguments}
        calls.append({"id": call.id, "type": "function", "function": function})
        answers.append({"role": "tool", "tool_call_id": call.id, "content": result.observation.text})
        # The answer to a call is text; what it describes in words follows as an image.
        shown += [block for block in blocks if not isinstance(block, Text)]
    message = _assistant("\n".join(said))
    if calls:
        message["tool_calls"] = calls
    return [message, *answers, *([_user(tuple(shown))] if shown else [])]


def _assistant(text: str) -> dict[str, JSON]:
    return {"role": "assistant", "content": text}


def _user(blocks: tuple[Block, ...]) -> dict[str, JSON]:
    return _message(Message("user", blocks))


def _message(message: Message) -> dict[str, JSON]:
    # A prompt holds no call that a message of the role `tool` could answer.
    role = "user" if message.role == "tool" else message.role
    if all(isinstance(block, Text) for block in message.blocks):
        return {"role": role, "content": message.text}
    return {"role": role, "content": [_part(block) for block in message.blocks]}


def _part(block: Block) -> JSON:
    if isinstance(block, Text):
        return {"type": "text", "text": block.text}
    data = base64.b64encode(block.data).decode("ascii")
    return {"type": "image_url", "image_url": {"url": f"data:{block.media_type};base64,{data}"}}
