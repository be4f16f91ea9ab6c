"""The loop of SkyRL's generator without the model, and in which manner SkyRL Gym keeps what every adapter promises."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
import skyrl_gym

from adapters.skyrl.adapter import ADAPTER
from canonical.catalogue import load_environment
from canonical.environment import Environment
from canonical.tool import ToolCall
from tests.stacks.suite.framework import Manner
from tests.stacks.suite.lab import Lab


@dataclass
class Trajectory:
    """Hold what SkyRL's generator keeps of an episode."""

    conversation: list[dict[str, Any]]
    rewards: list[float]
    done: bool
    metrics: dict[str, Any]


def generate(row: dict[str, Any], texts: Sequence[str], *, max_turns: int, workers: int = 32) -> Trajectory:
    """Do with one row what `SkyRLGymGenerator.agent_loop` does, with these texts in place of a model.

    In its order and its threads: `make` on the loop; `init`, `step` and `close` in the pool; only `observations`, `reward`,
    `done` and `postprocessed_action` are read. When the texts run out, the context is full, of which the environment hears
    nothing.
    """

    async def agent_loop() -> Trajectory:
        extras = copy.deepcopy({key: row[key] for key in row if key not in {"prompt", "env_class"}})
        extras["max_turns"] = max_turns
        env = skyrl_gym.make(row["env_class"], env_config={}, extras=extras)
        loop = asyncio.get_running_loop()
        chat, info = await loop.run_in_executor(pool, env.init, copy.deepcopy(row["prompt"]))
        assert not (info or {}).get("next_user_message")
        rewards, done = [], False
        for text in texts:
            output = await loop.run_in_executor(pool, env.step, text)
            chat = [*chat, {"role": "assistant", "content": text}, *output["observations"]]
            assert output.get("postprocessed_action") is None
            rewards.append(output["reward"])
            done = output["done"]
            if done:
                break
        metrics = env.get_metrics()
        await loop.run_in_executor(pool, env.close)
        return Trajectory(chat, rewards, done, metrics)

    with ThreadPoolExecutor(workers, thread_name_prefix="skyrl-gym-env-") as pool:
        return asyncio.run(agent_loop())


@pytest.fixture(scope="module")
def manner() -> Manner:
    return Manner(
        actions=(ToolCall("init", {"prompt": []}), ToolCall("get_metrics")),
        unstartable="could not start task odd/broken",
        abandoned="abandoned",
        keeps_episode=True,
        inline=("direct",),
        writes_json=True,
        rewords=True,
    )


@pytest.fixture
def compiled(environment: Lab) -> Any:
    return ADAPTER.compile(environment)


@pytest.fixture(scope="session")
def wordle() -> Environment[Any]:
    return load_environment("wordle")


@pytest.fixture
def registered(compiled: Any) -> Iterator[Any]:
    name = compiled.environment.name
    skyrl_gym.register(id=name, entry_point=compiled)
    yield compiled
    skyrl_gym.envs.deregister(name)


@pytest.fixture
def play_row() -> Any:
    return generate
