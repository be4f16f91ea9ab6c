"""Whole rollouts of an environment of releases before 0.4, as its `generate` takes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adapters.verifiers.environment_session import SilentClient
from adapters.verifiers.environment_target import compile_environment, types
from adapters.verifiers.messages import read_content
from canonical.adapter import SessionError
from canonical.catalogue import load_environment
from canonical.content import project_text
from canonical.executor import Part, Played, RolloutPath
from canonical.tool import ToolCall


def rollout_paths() -> Mapping[str, RolloutPath]:
    """Return the way in which Verifiers takes rollouts of an environment by itself."""
    return {
        "generate": _Generate(
            "Verifiers' `generate`: every rollout is a task of one event loop, with a scripted client"
        )
    }


class _ScriptedClient(SilentClient):
    """Answer each rollout with the next call of its script."""

    def __init__(self, scripts: Mapping[tuple[str, int], Sequence[ToolCall]]) -> None:
        super().__init__()
        self._scripts = scripts

    async def get_native_response(self, prompt: Any, *_: Any, **options: Any) -> Any:
        """Return the response of a model that says the next call.

        Raises:
            SessionError: The script is over.
        """
        info = options["state"]["info"]
        calls = self._scripts[info["task_id"], info["seed"]]
        turn = sum(message.role == "assistant" for message in prompt)
        if turn >= len(calls):
            raise SessionError("the script is over")
        call = calls[turn]
        said = types.ToolCall(id=f"call_{turn}", name=call.name, arguments=json.dumps(dict(call.arguments)))
        message = types.ResponseMessage(
            content=None, tool_calls=[said], finish_reason="tool_calls", is_truncated=False
        )
        return types.Response(id="scripted", created=0, model="scripted", usage=None, message=message)


@dataclass(frozen=True, slots=True)
class _Generate:
    note: str

    async def roll(self, source: str, parts: Sequence[Part]) -> Sequence[Played]:
        compiled = compile_environment(load_environment(source))
        client = _ScriptedClient({(part.start.task, part.start.seed): part.calls for part in parts})
        found = await compiled.generate(
            inputs=[compiled.row(*part.start) for part in parts],
            client=client,
            model="scripted",
            on_progress=lambda *_: None,
        )
        return [_read(output) for output in found["outputs"]]


def _read(output: Any) -> Played:
    if output.get("error") is not None:
        raise SessionError(f"a rollout failed: {output['error']}")
    shown = [
        _field(message, "content")
        for message in output["completion"]
        if _field(message, "role") != "assistant"
    ]
    return Played([project_text(read_content(content)) for content in shown], float(output["reward"]))


def _field(message: Any, name: str) -> Any:
    return message[name] if isinstance(message, dict) else getattr(message, name)
