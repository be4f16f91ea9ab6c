"""The ways in which GEM's users step many environments: a plain loop, and GEM's two vector environments."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

import gem

from adapters.gem.compiler import Compiled, Refusal
from adapters.gem.session import read_result
from canonical.adapter import SessionError
from canonical.dialect import TextForm, write_calls
from canonical.executor import Executor, Opened, PlainLoop, Start
from canonical.step import StepResult
from canonical.tool import ToolCall


def make_executors() -> Mapping[str, Executor]:
    """Return the ways by name."""
    return {
        "plain loop": PlainLoop(
            "`step` of one environment after the other, in one thread", _write, _make, _read
        ),
        "SyncVectorEnv": _Vector(
            "`make_vec`, which steps one after the other and copies what they show", is_async=False, most=None
        ),
        "AsyncVectorEnv": _Vector(
            "`make_vec` with `async_mode`, a pool with as many threads as there are environments, and a barrier for each step",
            is_async=True,
            most=4_096,
        ),
    }


def _write(call: ToolCall) -> str:
    return write_calls([call], TextForm.XML)


def _make(compiled: Compiled, start: Start) -> Opened:
    env: Any = gem.make(compiled.env_id)
    try:
        env.reset(seed=start.seed, task=start.task)
    except Refusal as error:
        raise SessionError(str(error)) from error
    return Opened(env.step, env.close)


def _read(shown: Any) -> StepResult:
    try:
        return read_result(*shown)
    except (KeyError, TypeError, ValueError) as error:
        raise SessionError(
            f"what step returned is not what a compiled environment returns: {error}"
        ) from error


@dataclass(frozen=True, slots=True)
class _Vector:
    note: str
    is_async: bool
    most: int | None

    def write(self, call: ToolCall) -> str:
        return _write(call)

    async def open(self, compiled: Compiled, starts: Sequence[Start]) -> _VectorBatch:
        """Make a vector environment and reset it with one seed for each environment.

        A vector environment chooses tasks by seeds alone, so a start must be the task that its seed leads to.

        Raises:
            SessionError: A start names another task.
        """
        with redirect_stdout(io.StringIO()):
            vector: Any = gem.make_vec([compiled.env_id] * len(starts), async_mode=self.is_async)
        _, infos = vector.reset(seed=[start.seed for start in starts])
        for start, info in zip(starts, infos, strict=True):
            if info["task"] != start.task:
                raise SessionError(f"seed {start.seed} leads to task {info['task']}, and not to {start.task}")
        return _VectorBatch(vector)


class _VectorBatch:
    def __init__(self, vector: Any) -> None:
        self._vector = vector

    async def step(self, actions: Sequence[str]) -> Any:
        return self._vector.step(actions)

    def read(self, shown: Any) -> list[StepResult]:
        return [
            _read((text, float(reward), bool(terminated), bool(truncated), info))
            for text, reward, terminated, truncated, info in zip(*shown, strict=True)
        ]

    async def close(self) -> None:
        # A vector environment has no close, and its pool no end, so that its threads would wait for ever.
        pool = getattr(self._vector, "thread_pool_executer", None)
        if pool is not None:
            pool.shutdown()
        for env in self._vector.envs:
            env.close()
