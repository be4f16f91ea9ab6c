"""Troubles of Verifiers, each shown on the installed release by the smallest task or toolset that has it."""

from __future__ import annotations

import inspect
import logging
from importlib import import_module
from typing import Any

import verifiers.v1 as vf

from canonical.trouble import Shown


class _Guesses(vf.State):
    made: int = 0


class _Guessing(vf.Toolset[vf.ToolsetConfig, _Guesses]):
    @vf.tool
    async def guess(self, word: str) -> str:
        """Guess a word."""
        self.state.made += 1
        return f"{word}, guess {self.state.made}"

    @vf.tool
    async def fail(self) -> str:
        """Raise."""
        raise ValueError("the answer is crane")


class _Task(vf.Task[vf.TaskData, _Guesses, vf.TaskConfig]):
    """Play a row."""


class _Plain(_Task):
    @vf.reward(weight=1.0)
    def plain(self, trace: Any) -> float:  # noqa: ARG002 - Verifiers' way to call it
        """Pay 1, and be no coroutine."""
        return 1.0


class _Failing(_Task):
    @vf.reward(weight=1.0)
    async def right(self, trace: Any) -> float:  # noqa: ARG002
        """Pay 1."""
        return 1.0

    @vf.reward(weight=1.0)
    async def wrong(self, trace: Any) -> float:  # noqa: ARG002
        """Raise."""
        raise ValueError("no reward")


async def _tools() -> Any:
    # The library of MCP puts a handler on the root logger when a server is made.
    handlers = list(logging.getLogger().handlers)
    server = import_module("mcp.server.mcpserver").MCPServer("trouble")
    logging.getLogger().handlers[:] = handlers
    _Guessing(vf.ToolsetConfig()).register(server)
    return server


def _text(answer: Any) -> str:
    content = answer.content if hasattr(answer, "content") else answer[0]
    return str(content[0].text)


async def _score(kind: type[_Task]) -> tuple[str, dict[str, Any]]:
    task = kind(vf.TaskData(prompt="Begin."), vf.TaskConfig())
    agent: Any = vf.AgentConfig(runtime=vf.SubprocessConfig())
    trace: Any = vf.Trace(
        task=vf.TraceTask(type=kind.__name__, data=task.data, key=task.key, hash=task.hash),
        state=_Guesses(), agent=vf.AgentInfo(config=agent),
    )  # fmt: skip
    try:
        await task.score(trace)
    except Exception as error:  # noqa: BLE001 - what Verifiers raises is what is looked at
        said = type(error).__name__
    else:
        said = "no error"
    return said, {name: getattr(reward, "score", reward) for name, reward in trace.rewards.items()}


def rollouts_run_elsewhere_unless_told() -> Shown:
    """Read where an agent runs by default."""
    kind = vf.AgentConfig().runtime.type
    return Shown("`AgentConfig().runtime.type`", str(kind), kind not in {"subprocess", "docker", "podman"})


def a_harness_wants_a_container_unless_told() -> Shown:
    """Read what a harness needs by default."""
    needs = vf.Harness.NEEDS_CONTAINER
    return Shown("`Harness.NEEDS_CONTAINER`, which every harness inherits", str(needs), bool(needs))


def tools_are_called_by_another_name() -> Shown:
    """Read under which name a model sees the tools of a server."""
    prefix = _Guessing(vf.ToolsetConfig()).server_name
    calling = inspect.getsource(import_module("verifiers.v1.harnesses.utils.mcp"))
    puts_before = 'f"{name}_{tool.name}" if name' in calling
    seen = f"the server is called {prefix!r}, and harnesses {'put its name before' if puts_before else 'keep'} those of its tools"
    return Shown(
        "a `Toolset` with the tool `guess`, without `TOOL_PREFIX`", seen, bool(prefix) and puts_before
    )


async def arguments_that_no_tool_has_are_dropped() -> Shown:
    """Call a tool with an argument that it does not have."""
    answer = _text(await (await _tools()).call_tool("guess", {"word": "crane", "certain": True}))
    return Shown(
        '`guess` with `{"word": "crane", "certain": true}`', f"it runs: {answer}", answer.startswith("crane")
    )


async def a_tool_alone_forgets_its_state() -> Shown:
    """Call a tool twice without the channel that a rollout has."""
    server = await _tools()
    answers = [_text(await server.call_tool("guess", {"word": "crane"})) for _ in range(2)]
    return Shown(
        "two calls of a tool that counts in `self.state`, on a server of one's own",
        "; ".join(answers),
        answers[0] == answers[1],
    )


def what_a_state_holds_is_not_checked() -> Shown:
    """Set a number of a state to a text."""
    state: Any = _Guesses()
    try:
        state.made = "many"
    except ValueError as error:
        return Shown("`state.made = 'many'`, where `made` is an `int`", type(error).__name__, False)
    return Shown("`state.made = 'many'`, where `made` is an `int`", f"made is {state.made!r}", True)


async def a_plain_reward_is_an_error() -> Shown:
    """Score a task one of whose rewards is no coroutine."""
    said, _ = await _score(_Plain)
    return Shown("`@vf.reward` on a plain function, then `score`", said, said != "no error")


async def one_reward_that_fails_takes_the_others_along() -> Shown:
    """Score a task one of whose rewards raises."""
    said, rewards = await _score(_Failing)
    shown = ", ".join(f"{name} {value}" for name, value in sorted(rewards.items()))
    return Shown(
        "a reward of 1 and one that raises, then `score`", f"{said}; {shown}", rewards.get("right") is None
    )


def a_server_that_has_died_is_awaited_for_minutes() -> Shown:
    """Read how long Verifiers waits for the port of a tool server, whether it lives or not."""
    waiting = inspect.getsource(import_module("verifiers.v1.mcp.launch")._read_back_port)  # noqa: SLF001 - no other way
    is_there = "range(180)" in waiting and "sleep(1)" in waiting
    return Shown(
        "the source of `verifiers.v1.mcp.launch._read_back_port`",
        "180 looks, a second apart, and none at the process" if is_there else "another way to wait",
        is_there,
    )


def an_installer_is_fetched_when_it_is_missing() -> Shown:
    """Read what a runtime has a shell run before a program, and when."""
    base = import_module("verifiers.v1.runtimes.base")
    script = str(base._ENSURE_UV)  # noqa: SLF001 - no other way
    is_run = "_ENSURE_UV" in inspect.getsource(base.Runtime)
    asks_first = "uv sync --help" in script and "|| { pip install" in script
    is_there = is_run and "pip install" in script and "curl" in script
    when = "a `uv` that is missing or has no `sync --script`" if asks_first else "what it finds missing"
    return Shown(
        "`verifiers.v1.runtimes.base._ENSURE_UV`, which the source of `Runtime` puts before a program",
        f"for {when}, `pip install`, or else a script from the network"
        if is_there
        else "it installs nothing",
        is_there,
    )


async def what_an_exception_says_reaches_the_model() -> Shown:
    """Call a tool that raises."""
    try:
        answer = _text(await (await _tools()).call_tool("fail", {}))
    except Exception as error:  # noqa: BLE001 - what the server of a tool makes of it
        answer = str(error)
    return Shown('a tool that raises ValueError("the answer is crane")', answer, "crane" in answer)
