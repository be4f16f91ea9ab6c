"""Lift a task set of releases from 0.3.1 on: its tasks are played by episodes of Verifiers' own environment."""

from __future__ import annotations

import asyncio
import math
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from importlib.metadata import version
from itertools import count, islice
from pathlib import Path
from types import ModuleType
from typing import Any

import verifiers.v1 as vf

from adapters.verifiers.lifted_harness import CONVERSATIONS
from adapters.verifiers.lifted_session import LiftedSession, LiftedSource, after_model
from adapters.verifiers.losses import LOSSES
from adapters.verifiers.scripted_model import serve_model
from adapters.verifiers.turns import Asked, Outcome, Turns, rollout_loop
from canonical.adapter import Loss, SessionError
from canonical.bridge.source import LiftError, LiftOptions, SourceFacts, identifier, text_spec_beside
from canonical.reward import Aggregation
from canonical.step import Cause
from canonical.stone import Concern, PieceName
from canonical.task import Task
from canonical.tool import ToolSpec
from canonical.transcript import Action

_PACKAGE = "rosetta_lifted"
_KEY = "ROSETTA_LIFTED_KEY"
_CUT_OFF = "cut_off"
_REFUSAL = "nothing more is played, as if the context length did not allow it"
"""What a rollout is told that is cut off, in words by which 0.3.1 tells a limit from a failure."""
_BUDGETS = frozenset(
    {_CUT_OFF, "max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "context_length"}
)
_numbers = count()


def has_task_set(module: ModuleType) -> bool:
    """Say whether a module exports a task set, as Verifiers looks for one."""
    return bool(_exported(module, vf.Taskset))


def _exported(module: ModuleType, base: type) -> list[str]:
    found = []
    for name in getattr(module, "__all__", ()):
        kind = getattr(module, name, None)
        if isinstance(kind, type) and issubclass(kind, base) and kind is not base:
            found.append(name)
    return found


@contextmanager
def _package(module: ModuleType) -> Iterator[tuple[str, bool]]:
    """Make the package by which Verifiers finds a task set: ids of Verifiers are names of top-level modules.

    Yields:
        The id, and whether the harness is Verifiers' own way of a conversation, and not one of the module.
    """
    kinds = {base: _exported(module, base) for base in (vf.Taskset, vf.Env, vf.Harness)}
    has_harness = bool(kinds[vf.Harness])
    names = [name for found in kinds.values() for name in found]
    lines = [f"from {module.__name__} import {', '.join(names)}"]
    if not has_harness:
        lines.append("from adapters.verifiers.lifted_harness import LiftedHarness")
        names.append("LiftedHarness")
    lines.append(f"__all__ = {names!r}")
    name = f"{_PACKAGE}_{next(_numbers)}"
    kept = os.environ.get(_KEY)
    with tempfile.TemporaryDirectory(prefix="rosetta-verifiers-") as folder:
        (Path(folder) / f"{name}.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
        sys.path.insert(0, folder)
        os.environ[_KEY] = "none"
        try:
            import_module(name)
            yield name, not has_harness
        finally:
            sys.path.remove(folder)
            sys.modules.pop(name, None)
            if kept is None:
                os.environ.pop(_KEY, None)
            else:
                os.environ[_KEY] = kept


class _TaskSet:
    """Hold an environment of Verifiers, its tasks, and the rollouts under way.

    Args:
        environment: The environment.
        tasks: How many tasks there may be, where they never end.
    """

    def __init__(self, environment: Any, tasks: int) -> None:
        self.environment = environment
        found = list(islice(environment.taskset, tasks if environment.taskset.INFINITE else None))
        self.tasks = {f"train/{place}": task for place, task in enumerate(found)}
        self._under_way: dict[str, tuple[Turns, list[Any]]] = {}
        self._url = ""

    async def answer(self, body: Mapping[str, Any]) -> Action | None:
        """Answer a request of a rollout as its session does."""
        turns, traces = self._under_way[body["model"]]
        action = await turns.ask(Asked(body["messages"], body.get("tools") or ()))
        if action is None:
            traces[-1].stop(_CUT_OFF)
        return action

    @asynccontextmanager
    async def serving(self, loop: asyncio.AbstractEventLoop) -> AsyncIterator[None]:
        """Keep what rollouts share on their loop: the endpoint of the model, shared tools, Verifiers' interception.

        Raises:
            LiftError: It cannot be started.
        """
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        here = asyncio.get_running_loop()
        stop = asyncio.Event()

        async def hold() -> None:
            async with serve_model(self.answer, _REFUSAL) as self._url, self.environment.serving():
                here.call_soon_threadsafe(ready.set_result, None)
                await stop.wait()

        holding = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(hold(), loop))
        await asyncio.wait({holding, ready}, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            error = holding.exception()
            raise LiftError(f"Verifiers cannot serve the task set: {type(error).__name__}: {error}")
        try:
            yield
        finally:
            loop.call_soon_threadsafe(stop.set)
            await asyncio.wait({holding}, timeout=30)

    async def roll(self, task: str, turns: Turns) -> Outcome:
        """Take an episode as Verifiers takes one.

        Raises:
            SessionError: There is no such task, or the episode failed.
        """
        if task not in self.tasks:
            raise SessionError(f"there is no task {task}")
        model = f"session-{next(_numbers)}"
        traces: list[Any] = []
        self._under_way[model] = turns, traces
        context = vf.ModelContext(
            model=model, client=vf.EvalClientConfig(base_url=self._url, api_key_var=_KEY)
        )
        try:
            episode = await self.environment.run_episode(self.tasks[task], context, on_trace=traces.append)
            return _read(episode)
        finally:
            del self._under_way[model]
            for trace in traces:
                CONVERSATIONS.pop(trace.id, None)


def _read(episode: Any) -> Outcome:
    errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    if not episode.ok or len(episode.traces) != 1:
        raise SessionError(f"Verifiers stopped the rollout: {'; '.join(map(_error, errors)) or 'no trace'}")
    (trace,) = episode.traces
    reward = float(trace.reward)
    if not math.isfinite(reward):
        raise SessionError(f"the task pays {reward!r}")
    stop = trace.stop_condition
    # In releases before 0.4 a rollout that takes too long has failed.
    is_timeout = getattr(trace, "is_timeout", False)
    cause = Cause.TIMEOUT if is_timeout else Cause.BUDGET if stop in _BUDGETS else Cause.SUBMITTED
    branches = trace.branches
    said = CONVERSATIONS.get(trace.id) or (branches[-1].messages if branches else [])
    record = trace.model_dump(mode="json", include={"rewards", "metrics", "info", "stop_condition"})
    return Outcome(reward, cause, after_model(said), record)


def _error(error: Any) -> str:
    return f"{error.type}: {error.message}"


@asynccontextmanager
async def lift_task_set(
    module: ModuleType, reference: str, options: LiftOptions
) -> AsyncIterator[LiftedSource]:
    """Make a source of the task set that a module exports.

    Raises:
        LiftError: Its config is wrong, it has no tasks, more than one agent plays it, or the first task cannot be played.
    """
    with _package(module) as (package, is_chat):
        try:
            environment = _load(package, options)
        except LiftError:
            raise
        except Exception as error:
            raise LiftError(
                f"the task set of {reference} cannot be loaded: {type(error).__name__}: {error}; the arguments of the source "
                "are keys of its config"
            ) from error
        try:
            lifted = await asyncio.to_thread(_TaskSet, environment, options.tasks)
        except Exception as error:
            raise LiftError(f"{reference} cannot load its tasks: {type(error).__name__}: {error}") from error
        if not lifted.tasks:
            raise LiftError(f"{reference} has no tasks")
        async with rollout_loop() as loop, lifted.serving(loop):
            tools = await _tools(lifted, loop, reference)
            text = text_spec_beside(tools)
            yield LiftedSource(
                SourceFacts(
                    name=identifier(reference.rpartition("/")[2].removesuffix(".py").rpartition(".")[2]),
                    version=version("verifiers"),
                    source=f"verifiers:{reference}",
                    packages={"verifiers": version("verifiers")},
                    tasks=tuple(Task(id=task) for task in lifted.tasks),
                    tools=(*tools, text),
                    text_tool=text.name,
                    aggregation=Aggregation.TERMINAL,
                    # One more than Verifiers is told, so that Verifiers ends the episode, and not the bridge.
                    max_turns=options.max_turns + 1,
                    losses=tuple(_losses(environment, options, is_chat=is_chat)),
                ),
                lifted.roll,
                loop,
            )


def _load(package: str, options: LiftOptions) -> Any:
    roles = _roles(vf.resolve_env_config({"taskset": {"id": package, **options.arguments}}))
    if len(roles) != 1:
        raise LiftError(
            f"{len(roles)} agents play this task set ({', '.join(roles)}), and a model stands for one"
        )
    agent = {"runtime": {"type": "subprocess"}, "max_turns": options.max_turns}
    config = vf.resolve_env_config({"taskset": {"id": package, **options.arguments}, roles[0]: agent})
    return vf.load_environment(config)


def _roles(config: Any) -> list[str]:
    return [name for name, value in config if isinstance(value, vf.AgentConfig)]


async def _tools(lifted: _TaskSet, loop: asyncio.AbstractEventLoop, reference: str) -> list[ToolSpec]:
    """Return the tools that the first rollout offers.

    Raises:
        LiftError: It cannot be played.
    """
    session = LiftedSession(lifted.roll, loop)
    try:
        opened = await session.open(next(iter(lifted.tasks)), 0)
    except SessionError as error:
        raise LiftError(f"the first task of {reference} cannot be played: {error}") from error
    finally:
        await session.close()
    return list(opened.tools)


def _losses(environment: Any, options: LiftOptions, *, is_chat: bool) -> Iterator[Loss]:
    yield from LOSSES
    taskset = environment.taskset
    if taskset.INFINITE:
        note = f"its tasks never end; the first {options.tasks} are here (--tasks)"
        yield Loss(PieceName.TASKS, "approximated", note)
    yield Loss(PieceName.TASKS, "approximated", "task sets have no splits: all tasks are of one, train")
    note = f"Verifiers stops an episode after {options.max_turns} answers of the model (--max-turns)"
    yield Loss(PieceName.EPISODE_CONTROL, "approximated", note, Concern.TRUNCATION)
    if is_chat:
        note = (
            "the conversation is that of Verifiers' plain chat program, held in process; harnesses with tools of their own, "
            "such as a shell, are not offered"
        )
        yield Loss(PieceName.TOOLS, "approximated", note)
    kind = type(taskset).task_type()
    if kind.toolsets(taskset.config.task):
        note = "each episode starts a process for its tools, which takes seconds and some 200 MB"
        yield Loss(PieceName.EPISODE_CONTROL, "preserved", note, Concern.CONCURRENCY)
