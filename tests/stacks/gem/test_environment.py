"""A compiled environment as users of GEM hold it: `gem.make`, `gem.make_vec`, wrappers, states and copies."""

from __future__ import annotations

import asyncio
import copy
import gc
import random
from pathlib import Path
from typing import Any

import gem
import numpy as np
import pytest
from gem.vector.sync_vector_env import SyncVectorEnv
from gem.wrappers.episode_tracking_wrapper import EpisodeTrackingWrapper
from gem.wrappers.observation_wrapper import ObservationWrapper

from adapters.gem.compiler import Refusal, compile_environment, make_environment, register_environment
from canonical.dialect import describe_tools, read_calls
from canonical.environment import Environment
from canonical.reward import Criterion
from canonical.task import Task, TaskSet
from canonical.tool import ToolCall, tool


def test_it_is_an_environment_of_gem(env, compiled, environment):
    assert isinstance(env, gem.Env)
    assert type(env) is compiled.env_class
    assert type(env).__name__ == type(environment).__name__
    assert (env.env_id, env.seed, env.split, env.max_turns) == (compiled.env_id, 0, "train", 100_000)


def test_a_name_of_the_catalogue_can_be_registered_and_made(say):
    env_id = register_environment("wordle")
    assert env_id == "rosetta:wordle-v1"
    assert register_environment("wordle") == env_id
    env = gem.make(env_id, split="test", seed=3)
    observation, info = env.reset(seed=7)
    assert info["task"] == "test/0007"
    assert observation.startswith("Find the hidden five-letter English word.")
    assert env.step(action=say("guess", word="crane"))[1:4] == (0.0, False, False)
    assert make_environment("wordle", seed=3).split == "train"


def test_the_first_observation_is_the_prompt_and_the_tools_below_it(env, environment):
    observation, info = env.reset(task="train/1")
    specs = [tool.spec for tool in environment.tools]
    head, _, tail = observation.partition("\n\n")
    assert head == "Level 1."
    assert tail.splitlines()[2 : 2 + len(specs)] == [
        line for line in describe_tools(specs).splitlines() if line.startswith("{")
    ]
    assert "<tool_name>TOOL</tool_name>" in tail
    assert info["messages"] == [{"role": "user", "content": "Level 1."}]
    assert [tool["function"]["name"] for tool in info["tools"]] == [spec.name for spec in specs]
    info["tools"].clear()
    assert env.reset(task="train/1")[1]["tools"]


def test_exactly_one_flag_ends_an_episode_and_none_before(wordle, say):
    env = gem.make(wordle.env_id)
    env.reset(task="train/0000")
    flags = [env.step("nothing")[2:4] for _ in range(13)]
    assert flags == [(False, False)] * 11 + [(False, True)] * 2
    _, info = env.reset(task="train/0000")
    assert info["previous"]["cause"] == "budget"
    word = wordle.environment.tasks().get("train/0000").secret["answer"]
    observation, reward, terminated, truncated, info = env.step(say("guess", word=word))
    assert (reward, terminated, truncated, info["cause"]) == (1.0, True, False, "solved")
    observation, reward, terminated, truncated, info = env.step(say("guess", word=word))
    assert (reward, terminated, truncated, info["error"]) == (0.0, True, False, "episode_over")
    assert observation.startswith("The episode is over (solved)")


def test_gem_s_own_form_and_that_of_hermes_are_read_alike(env):
    env.reset()
    forms = (
        '<tool_call><tool_name>echo</tool_name><arguments>{"text": "x"}</arguments></tool_call>',
        '<tool_call>{"name": "echo", "arguments": {"text": "x"}}</tool_call>',
    )
    assert [env.step(f"I say so.\n{form}")[0] for form in forms] == ["x", "x"]


def test_wrong_requests_are_refused_in_words_and_the_episode_goes_on(env, say):
    with pytest.raises(Refusal, match="call reset first"):
        env.step("x")
    with pytest.raises(Refusal, match="call reset first"):
        env.sample_random_action()
    env.reset(task="train/3", seed=2)
    for wrong in (
        {"task": "nope"}, {"task": 3}, {"idx": 99}, {"idx": -1}, {"idx": "x"}, {"seed": "x"}, {"seed": 1.5},
        {"seed": True}, {"task": "train/0", "idx": 0},
    ):  # fmt: skip
        with pytest.raises(Refusal):
            env.reset(**wrong)
    for wrong in (None, 3, ToolCall("echo"), b"x"):
        with pytest.raises(Refusal, match="an action is what the model wrote"):
            env.step(wrong)
    assert env.step(say("echo", text="still"))[0] == "still"
    with pytest.raises(Refusal, match="no split"):
        gem.make(env.env_id, split="nope")
    with pytest.raises(TypeError):
        gem.make(env.env_id, no_such_setting=1)


def test_a_seed_decides_the_task_and_the_episode(env, say):
    tasks = [env.reset(seed=number)[1]["task"] for number in range(7)]
    assert tasks == [f"train/{number % 5}" for number in range(7)]
    env.reset(seed=np.int64(3))
    first = env.step(say("draw"))[0]
    env.reset(seed=3)
    assert env.step(say("draw"))[0] == first
    assert env.reset(idx=4)[1]["task"] == "train/4"


def test_resets_without_a_seed_walk_through_a_sequence_that_the_last_seed_decides(wordle):
    one, other = gem.make(wordle.env_id, seed=5), gem.make(wordle.env_id)
    walked = [one.reset()[1]["task"] for _ in range(6)]
    assert len(set(walked)) > 3
    other.reset(seed=5)
    assert [other.reset()[1]["task"] for _ in range(6)] == walked
    neighbour = gem.make(wordle.env_id, seed=6)
    assert not set(walked) & {neighbour.reset()[1]["task"] for _ in range(6)}


def test_the_global_generators_are_neither_read_nor_changed(env, say):
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002 - this is the generator that GEM's own reset seeds

    def states():
        return random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002

    before = states()
    env.reset(seed=3)
    env.step(env.sample_random_action())
    env.step(say("draw"))
    env.reset()
    env.spawn(same_state=True).close()
    assert states() == before
    drawn = []
    for seed in (1, 2):
        random.seed(seed)
        env.reset(seed=3)
        drawn.append(env.step(say("draw"))[0])
    assert drawn[0] == drawn[1]


def test_a_state_can_be_kept_and_gone_on_with_here_and_elsewhere(env, compiled, say):
    env.reset(task="train/2", seed=4)
    env.step(say("pay", amount=1.5))
    kept = copy.deepcopy(env.get_state())
    drawn = [env.step(say("draw"))[0] for _ in range(3)]
    other = gem.make(compiled.env_id)
    for held in (env, other):
        held.set_state(kept)
        assert [held.step(say("draw"))[0] for _ in range(3)] == drawn
        assert held.step(say("finish"))[4]["total"] == env.get_state()["episode"]["total"]
    assert other.get_state() == env.get_state()
    other.set_state({"episode": None})
    assert other.get_state() == {"episode": None}
    assert len(compiled.live) == 1


def test_a_state_that_does_not_fit_is_refused_and_the_episode_goes_on(env, wordle, say):
    env.reset(task="train/2", seed=4)
    alien = gem.make(wordle.env_id)
    alien.reset()
    damaged = env.get_state()
    damaged["episode"]["state"] = 3
    aged = env.get_state()
    aged["episode"]["version"] = "2"
    for wrong in (None, {}, {"episode": 3}, {"episode": {}}, alien.get_state(), damaged, aged):
        with pytest.raises(Refusal, match="this state cannot be set"):
            env.set_state(wrong)
    assert env.step(say("echo", text="still"))[0] == "still"


def test_setting_a_state_does_not_change_which_episodes_come_next(wordle):
    envs = [gem.make(wordle.env_id, seed=number) for number in range(4)]
    envs[0].reset()
    for env in envs[1:]:
        env.set_state(envs[0].get_state())
    assert len({env.reset()[1]["task"] for env in envs}) == 4


@pytest.mark.parametrize(
    "copied", [lambda env: env.spawn(same_state=True), copy.deepcopy], ids=["spawn", "deepcopy"]
)
def test_a_copy_goes_on_alike_and_alone(env, compiled, environment, say, copied):
    env.reset(task="train/2", seed=4)
    env.step(say("echo", text="once"))
    other = copied(env)
    assert type(other) is compiled.env_class
    assert other.env_id == env.env_id
    assert other.get_state() == env.get_state()
    drawn = [other.step(say("draw"))[0] for _ in range(3)]
    other.step(say("finish"))
    assert [env.step(say("draw"))[0] for _ in range(3)] == drawn
    assert env.step(say("echo", text="x"))[2:4] == (False, False)
    assert other.reset()[1]["task"] == env.reset()[1]["task"]
    env.close()
    other.close()
    assert len(environment.closed) == 4


def test_a_group_of_copies_made_before_the_first_reset_plays_one_task(wordle):
    pool = gem.make(wordle.env_id, seed=9)
    for group in ([copy.deepcopy(pool) for _ in range(4)], [pool.spawn(same_state=True) for _ in range(4)]):
        assert len({env.reset()[1]["task"] for env in group}) == 1
    assert len({pool.spawn(seed=seed).reset()[1]["task"] for seed in range(4)}) == 4
    held_out = pool.spawn(split="test")
    assert (held_out.split, held_out.spawn().split, held_out.spawn().reset()[1]["task"][:5]) == (
        "test", "test", "test/",
    )  # fmt: skip


class Odd(Environment):
    """Have a state that is no plain data."""

    name = "odd"
    max_turns = 3
    rubric = Criterion("nothing", lambda state: 0.0)

    def tasks(self):
        return TaskSet([Task(id="train/0")])

    def start(self, task, rng):
        return object()

    def prompt(self, task, state):
        return "odd"


class Bag(Odd):
    """Have a state of nested lists, which a careless copy would share."""

    name = "bag"
    max_turns = 30

    def start(self, task, rng):
        return {"items": [["first"]]}

    @tool
    def put(self, state: dict[str, Any], item: str) -> str:
        """Put an item into the bag, and say what is in it."""
        state["items"][0].append(item)
        return " ".join(state["items"][0])


def test_states_that_are_no_plain_data_are_refused_in_words():
    env = gem.make(compile_environment(Odd()).env_id)
    env.reset()
    for ask in (env.get_state, lambda: env.spawn(same_state=True), lambda: copy.deepcopy(env)):
        with pytest.raises(Refusal, match="not plain data"):
            ask()


def test_one_kept_state_serves_many_times(say):
    env = gem.make(compile_environment(Bag()).env_id)
    env.reset()
    kept = env.get_state()
    other = env.spawn(same_state=True)
    for held in (env, env, other):
        held.set_state(kept)
        assert held.step(say("put", item="second"))[0] == "first second"
    assert kept["episode"]["state"] == {"items": [["first"]]}


def test_an_object_that_nobody_closes_frees_its_episode(compiled, environment):
    env = gem.make(compiled.env_id)
    env.reset()
    del env
    gc.collect()
    # Coroutines are closed on their own loop, in their own time; the next call there comes after it.
    gem.make(compiled.env_id).reset()
    assert len(environment.closed) >= 1
    gc.collect()
    assert not compiled.live


def test_random_actions_are_calls_of_the_tools(env, environment):
    env.reset()
    names = {read_calls(env.sample_random_action())[0].name for _ in range(200)}
    assert names == {tool.name for tool in environment.tools}


def test_an_environment_that_waits_can_be_stepped_inside_an_event_loop(env, environment, say):
    environment.gate.set()

    async def main():
        env.reset()
        return env.step(say("block"))[0]

    assert asyncio.run(main()) == "through"


WRAPPERS = [
    lambda env: ObservationWrapper(env, include_action=True, include_chat_template=False),
    EpisodeTrackingWrapper,
]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_vector_environments_play_side_by_side(wordle, say, asynchronous, capsys):
    vector = gem.make_vec(
        [wordle.env_id] * 4,
        vec_kwargs=[{"seed": number} for number in range(4)],
        wrappers=WRAPPERS,
        async_mode=asynchronous,
    )
    observations, infos = vector.reset(seed=[3, 4, 5, 6])
    assert [info["task"] for info in infos] == [f"train/{number:04d}" for number in (3, 4, 5, 6)]
    assert all(text.startswith("Find the hidden") for text in observations)
    secrets = [wordle.environment.tasks().get(info["task"]).secret["answer"] for info in infos]
    actions = [say("guess", word=secret if number % 2 else "crane") for number, secret in enumerate(secrets)]
    observations, rewards, terminated, truncated, infos = vector.step(actions)
    assert rewards.tolist() == [0.0, 1.0, 0.0, 1.0]
    assert terminated.tolist() == [False, True, False, True]
    assert not truncated.any()
    for number, info in enumerate(infos):
        if number % 2:
            assert info["previous"]["cause"] == "solved"
            assert info["previous"]["observation"].startswith(" ".join(secrets[number].upper()))
            assert (info["prev_ep_cumulative_rewards"], info["cumulative_rewards"]) == (1.0, 0.0)
            assert info["task"] != f"train/{number + 3:04d}"
        else:
            assert (info["turn"], info["cumulative_rewards"]) == (1, info["total"])
    assert isinstance(vector, SyncVectorEnv) is not asynchronous


def test_the_sum_that_gem_tracks_is_the_return(env, say):
    tracked = EpisodeTrackingWrapper(env)
    tracked.reset(seed=1)
    paid = 0.0
    for amount in (0.1, -3.0, 1e6, 0.7):
        _, reward, _, _, info = tracked.step(say("pay", amount=amount))
        paid += reward
        assert info["cumulative_rewards"] == paid == info["total"]
    _, reward, _, _, info = tracked.step(say("finish"))
    assert info["cumulative_rewards"] == paid + reward == info["total"]


def test_wrappers_show_the_whole_conversation(wordle, say):
    wrapped = ObservationWrapper(gem.make(wordle.env_id), include_action=True, include_chat_template=False)
    first, _ = wrapped.reset(seed=1)
    action = say("guess", word="crane")
    shown = wrapped.step(action)[0]
    assert shown.startswith(f"{first}{action}\nC R A N E\n")


def test_an_environment_that_raises_leaves_the_others_of_a_vector_playable(compiled, say):
    vector = gem.make_vec([compiled.env_id] * 3)
    vector.reset(seed=[0, 1, 2])
    with pytest.raises(Refusal, match="no valid reward"):
        vector.step([say("echo", text="x"), say("pay", amount=1e300) + say("finish"), say("draw")])
    assert vector.envs[1].step("x")[3]
    assert vector.envs[2].step(say("echo", text="x"))[0] == "x"


def test_the_example_of_the_readme_runs():
    readme = Path(__file__).parents[3] / "adapters" / "gem" / "README.md"
    code = readme.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - it is this project's own
    assert names["observation"].startswith("C R A N E\n")
    assert names["info"]["turn"] == 1
