"""The ways in which SkyRL's users step many environments: a plain loop, and the pool of the trainer's generator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import skyrl_gym
from skyrl_gym.envs.registration import EnvSpec

from adapters.skyrl.compiler import episode_turns
from adapters.skyrl.session import read_output
from canonical.adapter import SessionError
from canonical.dialect import write_calls
from canonical.executor import Executor, Opened, PlainLoop, Start, ThreadPool
from canonical.step import StepResult
from canonical.tool import ToolCall


def make_executors(workers: int) -> Mapping[str, Executor]:
    """Return the ways by name.

    Args:
        workers: Threads of the pool, as the trainer's `max_env_workers` says.
    """
    return {
        "plain loop": PlainLoop(
            "`step` of one environment after the other, in one thread", _write, _make, _read
        ),
        f"pool of {workers}": ThreadPool(
            f"as SkyRL's generator: a coroutine for each trajectory, whose `step` runs in a pool of {workers} threads",
            _write,
            _make,
            _read,
            workers,
            most=10_000,
        ),
    }


def _write(call: ToolCall) -> str:
    return write_calls([call])


def _make(compiled: Any, start: Start) -> Opened:
    extras = {
        "extra_info": {"task": start.task, "seed": start.seed},
        "max_turns": episode_turns(compiled.environment),
    }
    env: Any = skyrl_gym.make(EnvSpec(compiled.environment.name, compiled), env_config={}, extras=extras)
    _, metadata = env.init([])
    if "failure" in metadata:
        raise SessionError(metadata["failure"])
    return Opened(env.step, env.close)


def _read(output: Any) -> StepResult:
    if "failure" in output["metadata"]:
        raise SessionError(output["metadata"]["failure"])
    return read_output(output)
