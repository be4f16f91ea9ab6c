"""A harness that plays any task set without leaving the process: the conversation of Verifiers' own chat program.

It asks the model through Verifiers' interception server, as every harness does, and the tool servers with Verifiers' own
client. What the chat program needs a process and an interpreter of its own for, it does where it stands.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import aiohttp
import verifiers.v1 as vf

from adapters.verifiers.taskset_target import wire_message

_TOOLS_S = 60.0
_REFUSED = 400
# 0.3.1 keeps it in the program itself.
_MCP: Any = import_module(
    "verifiers.v1.harnesses.utils.mcp"
    if find_spec("verifiers.v1.harnesses.utils") and find_spec("verifiers.v1.harnesses.utils.mcp")
    else "verifiers.v1.harnesses.null.program"
)
_OWNS_CLIENTS = "stack" in inspect.signature(_MCP.connect_mcp).parameters


class LiftedHarnessConfig(vf.HarnessConfig):
    """Settings of the harness."""


class LiftedHarness(vf.Harness[LiftedHarnessConfig]):
    """Hold a conversation until the model writes a text without a call, or Verifiers stops it."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_MCP = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(  # noqa: PLR0917 - as Verifiers declares it
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,  # noqa: ARG002 - Verifiers asks for it
        endpoint: str,
        secret: str,
        mcp_urls: Any,
        data: Any,
    ) -> Any:
        """Take one segment of a conversation."""
        system, prompt = self.resolve_prompt(data)
        messages = [] if not system else [{"role": "system", "content": system}]
        if isinstance(prompt, str):
            messages += [{"role": "user", "content": prompt}] if prompt else []
        else:
            messages += [wire_message(message) for message in prompt or ()]
        CONVERSATIONS[trace.id] = messages
        async with AsyncExitStack() as stack:
            tools, call = await self._tools(mcp_urls or {}, stack)
            http = await stack.enter_async_context(
                aiohttp.ClientSession(
                    headers={"Authorization": f"Bearer {secret}"}, timeout=aiohttp.ClientTimeout(total=None)
                )
            )
            while True:
                body: dict[str, Any] = {"model": ctx.model, "messages": messages}
                if tools:
                    body["tools"] = tools
                async with http.post(f"{endpoint}/chat/completions", json=body) as reply:
                    if reply.status >= _REFUSED:
                        # A stop or a limit of Verifiers, or nothing more is played.
                        return vf.ProgramResult(1, "", await reply.text())
                    said = (await reply.json())["choices"][0]["message"]
                messages.append(said)
                if not said.get("tool_calls"):
                    return vf.ProgramResult(0, "", "")
                for one in said["tool_calls"]:
                    content = await call(one["function"])
                    messages.append({"role": "tool", "tool_call_id": one["id"], "content": content})

    async def _tools(self, urls: Mapping[str, str], stack: AsyncExitStack) -> tuple[list[Any], Any]:
        if not urls:
            tools, dispatch, servers = [], {}, {}
        else:
            places = {name: {"url": url, "timeout": self.config.tool_timeout} for name, url in urls.items()}
            config = {"mcpServers": places}
            given = (config, stack) if _OWNS_CLIENTS else (config,)
            async with asyncio.timeout(_TOOLS_S):
                tools, dispatch, servers = await _MCP.connect_mcp(*given)

        async def call(function: Mapping[str, Any]) -> Any:
            name, arguments = function["name"], json.loads(function["arguments"])
            if name not in dispatch:
                return f"error: unknown tool {name!r}"
            return await _MCP.call_mcp(servers, dispatch, name, arguments)

        return tools, call


CONVERSATIONS: dict[str, list[Any]] = {}
"""Trace id -> the conversation so far, the last answers included, which no trace keeps once a rollout is stopped."""
