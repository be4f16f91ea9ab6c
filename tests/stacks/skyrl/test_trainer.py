"""What SkyRL's trainer meets: its registry, its loop, its configuration, its metrics."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import skyrl_gym
from omegaconf import OmegaConf
from skyrl_gym.envs.base_text_env import BaseTextEnv
from skyrl_gym.envs.registration import EnvSpec
from skyrl_gym.metrics import aggregate_for_environment

from adapters.skyrl.adapter import ADAPTER
from adapters.skyrl.compiler import CatalogueEnvironment, episode_turns
from adapters.skyrl.conversation import take_tools
from canonical.dialect import describe_tools, write_calls
from canonical.episode import Episode, SnapshotError
from canonical.step import Cause
from canonical.tool import ToolCall


def text(name, **arguments):
    return write_calls([ToolCall(name, arguments)])


def extras(task="train/0", seed=0, **more):
    return {"extra_info": {"task": task, "seed": seed}, **more}


def make(compiled, *, env_config=None, **more):
    return skyrl_gym.make(
        EnvSpec(compiled.environment.name, compiled), env_config=env_config or {}, extras=extras(**more)
    )


def started(compiled, **more):
    env = make(compiled, **more)
    env.init([])
    return env


def test_a_compiled_class_is_an_environment_of_skyrl(registered):
    assert issubclass(registered, BaseTextEnv)
    name = registered.environment.name
    assert skyrl_gym.spec(name).entry_point is registered
    with skyrl_gym.make(name, env_config={}, extras=extras()) as env:
        assert isinstance(env, registered)
        assert (env.turns, env.max_turns) == (0, 100_000)
        env.init([])
        output = env.step(text("echo", text="x"))
    assert set(output) == {"observations", "reward", "done", "metadata", "postprocessed_action"}
    assert output["observations"] == [{"role": "user", "content": "x"}]
    assert not registered.live


def test_a_registration_in_words_survives_json_and_another_process():
    script = (
        "import skyrl_gym; from skyrl_gym.envs.registration import EnvSpec;"
        "skyrl_gym.register(id='wordle', entry_point='adapters.skyrl.compiler:CatalogueEnvironment', "
        "kwargs={'source': 'wordle'});"
        "spec = EnvSpec.from_json(skyrl_gym.spec('wordle').to_json());"
        "env = skyrl_gym.make(spec, env_config={}, extras={'extra_info': {'task': 'train/0001'}, 'max_turns': 2});"
        "print(env.init([])[0][1]['content'][:8]);"
        'print(env.step(\'{"name": "guess", "arguments": {"word": "crane"}}\')[\'observations\'][0][\'content\'][:9])'
    )
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["Find the", "C R A N E"], done.stderr


def test_an_environment_of_the_catalogue_shares_its_class_parts():
    env = CatalogueEnvironment("wordle", {}, extras("train/0001"))
    env.init([])
    other = CatalogueEnvironment("wordle", {}, extras("train/0002"))
    assert env.live is other.live
    assert len(env.live) == 1
    env.close()
    assert not other.live


def test_the_generators_loop_pays_the_return_of_the_episode(registered, play_row):
    """Rewards are placed on the last token of each message of the model, and their sum is what is logged."""
    row = next(registered.rows("train", seed=3))
    said = [
        text("pay", amount=0.25),
        "nothing",
        text("echo", text="x"),
        text("pay", amount=-2.0),
        text("finish"),
    ]
    trajectory = play_row(row, said, max_turns=50)
    episode = Episode.open if not registered.waits else None
    token_rewards = [0.0] * 100
    for place, reward in enumerate(trajectory.rewards):
        token_rewards[place * 10] += reward
    assert sum(token_rewards) == trajectory.metrics["return"] == 0.25 + 0.25 - 2.0 - 2.0
    if episode is not None:
        played = episode(registered.environment, "train/0", seed=3)
        assert sum(played.step(one).reward for one in said) == played.total == sum(token_rewards)
    assert trajectory.done
    assert trajectory.metrics["cause_submitted"] is True
    assert not registered.live


def test_the_generators_loop_shows_what_the_session_shows(wordle, play_row):
    compiled = ADAPTER.compile(wordle)
    skyrl_gym.register(id="wordle", entry_point=compiled)
    try:
        row = next(compiled.rows("test"))
        trajectory = play_row(row, [text("guess", word="crane")] * 20, max_turns=episode_turns(wordle))
    finally:
        skyrl_gym.envs.deregister("wordle")
    tools, said = take_tools(trajectory.conversation[:2])
    assert list(tools) == [tool.spec for tool in wordle.tools]
    assert said == row["prompt"] == [{"role": "user", "content": wordle.prompt(None, None)}]
    assert [message["role"] for message in trajectory.conversation] == ["system", "user"] + [
        "assistant",
        "user",
    ] * 6
    assert trajectory.done


def test_the_trainers_turns_are_obeyed_and_the_state_is_scored(wordle):
    compiled = ADAPTER.compile(wordle)
    env = started(compiled, task="train/0003", max_turns=3)
    outputs = [env.step(text("guess", word="crane")) for _ in range(2)] + [env.step("no call")]
    assert [output["done"] for output in outputs] == [False, False, True]
    assert [output["reward"] for output in outputs[:2]] == [0.0, 0.0]
    metadata = outputs[-1]["metadata"]
    assert (metadata["ending"], metadata["cause"], metadata["error"]) == ("truncated", "budget", "unparsable")
    assert outputs[-1]["reward"] == metadata["total"] == sum(metadata["components"].values()) > 0
    assert outputs[-1]["observations"][0]["content"].startswith("The message holds no tool call.")
    after = env.step(text("guess", word="crane"))
    assert (after["done"], after["reward"], after["metadata"]["error"]) == (True, 0.0, "episode_over")
    assert env.get_metrics()["truncated"] is True
    env.close()


def test_an_end_on_the_trainers_last_turn_is_the_environments_own(compiled):
    env = started(compiled, max_turns=2)
    env.step(text("pay", amount=1.0))
    output = env.step(text("finish"))
    assert output["done"]
    assert (output["metadata"]["ending"], output["metadata"]["cause"]) == ("terminated", "submitted")
    env.close()


@pytest.mark.parametrize("turns", [0, -1, "6", 1.5, True])
def test_turns_that_are_no_number_of_turns_are_refused(compiled, turns):
    with pytest.raises(ValueError, match="max_turns must be"):
        make(compiled, max_turns=turns)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({}, "the row names no task: extra_info needs the key 'task', such as 'train/0'"),
        ({"extra_info": {"index": 3}}, "the row names no task"),
        ({"extra_info": None}, "the row names no task"),
        ({"extra_info": {"task": "train/77"}}, "there is no task 'train/77'"),
        ({"extra_info": {"task": "train/0", "seed": "x"}}, 'extra_info: seed must be an integer, not "x"'),
        ({"extra_info": {"task": "train/0", "seed": True}}, "seed must be an integer"),
    ],
)
def test_a_wrong_row_is_refused_by_make_in_words(compiled, row, words):
    with pytest.raises(ValueError, match=r"task|seed") as caught:
        skyrl_gym.make(EnvSpec("lab", compiled), env_config={}, extras=row)
    assert words in str(caught.value)
    assert not compiled.live


@pytest.mark.parametrize(
    "config",
    [{"tool_form": "xml"}, SimpleNamespace(tool_form="xml"), OmegaConf.create({"tool_form": "xml"})],
    ids=["dict", "dataclass", "omegaconf"],
)
def test_the_configuration_chooses_how_calls_are_written(compiled, config):
    env = make(compiled, env_config=config)
    conversation, _ = env.init([])
    assert "<tool_name>TOOL</tool_name>" in conversation[0]["content"]
    env.close()


def test_a_configuration_without_tools_adds_no_message(compiled):
    env = make(compiled, env_config={"tool_form": "none"})
    assert env.init([])[0] == [{"role": "user", "content": "Level 0."}]
    env.close()
    with pytest.raises(ValueError, match="tool_form must be one of hermes, xml, json, none"):
        make(compiled, env_config={"tool_form": "yaml"})


def test_the_conversation_of_the_row_is_where_the_model_starts_and_stays_as_it_was(compiled):
    prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Another level."}]
    given = copy.deepcopy(prompt)
    env = make(compiled)
    conversation, _ = env.init(given)
    tools = describe_tools([tool.spec for tool in compiled.environment.tools])
    assert conversation == [{"role": "system", "content": f"Be brief.\n\n{tools}"}, prompt[1]]
    assert given == prompt
    conversation[1]["content"] = "changed"
    assert given == prompt
    env.close()


NONSENSE = [
    "",
    "x" * 100_000,
    "<tool_call>",
    "{" * 5000,
    "\ud800",
    '{"name": 1}',
    "<think>",
    "\x00",
    '{"name": "leave"}',
]


def test_a_step_never_raises(compiled, canary, caplog):
    env = make(compiled)
    before = env.step("too early")
    assert (before["done"], before["reward"]) == (True, 0.0)
    assert "call init first" in before["metadata"]["failure"]
    env.init([])
    for said in [*NONSENSE, text("crash"), text("leave"), text("refuse"), text("none")]:
        output = env.step(said)
        assert (output["done"], output["reward"]) == (False, 0.0)
        assert output["metadata"]["error"]
        assert canary not in json.dumps(output)
    for said in (None, text("draw")):
        output = env.step(said)
        assert output["done"]
        assert (
            output["metadata"]["failure"]
            == f"{compiled.environment.name} could not carry out the action: TypeError"
        )
    assert not compiled.live
    env.close()
    env.close()
    assert env.step(text("draw"))["done"]
    assert canary not in caplog.text


def test_an_episode_that_cannot_start_ends_at_its_first_step_and_is_counted(compiled, canary, caplog):
    env = make(compiled, task="odd/broken")
    _, metadata = env.init([{"role": "user", "content": "Level?"}])
    assert metadata["failure"] == f"{compiled.environment.name} could not start task odd/broken: StartError"
    output = env.step(text("draw"))
    assert (output["done"], output["reward"], output["metadata"]["cause"]) == (True, 0.0, "error")
    assert env.get_metrics()["failed"] is True
    assert canary not in json.dumps([metadata, output]) + caplog.text
    assert not compiled.live


def test_a_reward_that_cannot_be_computed_ends_the_episode_and_is_counted_or_raised(compiled):
    def broken(**more):
        env = started(compiled, **more)
        env.step(text("pay", amount=1e308))
        return env, lambda: env.step(text("pay", amount=1e308))

    env, step = broken()
    output = step()
    assert (output["done"], output["reward"], output["metadata"]["cause"]) == (True, 0.0, "error")
    assert "no valid reward could be computed" in output["metadata"]["failure"]
    assert env.get_metrics()["failed"] is True
    env.close()
    env, step = broken(env_config={"raise_failures": True})
    with pytest.raises(RuntimeError):
        step()
    env.close()


def test_a_text_in_the_place_of_an_error_message_leaks_nothing_from_make(compiled, canary):
    """SkyRL prints all arguments of a constructor that raises TypeError."""
    with pytest.raises(TypeError) as caught:
        skyrl_gym.make(EnvSpec("lab", compiled), env_config={}, extras=extras(), surplus=1)
    assert "train/0" in str(caught.value)
    assert canary not in str(caught.value)


def test_metrics_are_numbers_whose_means_are_rates(registered):
    name = registered.environment.name

    def played(*said):
        env = started(registered)
        for one in said:
            env.step(one)
        metrics = env.get_metrics()
        env.close()
        return metrics

    metrics = [played(text("pay", amount=3.0), text("finish")), played("nothing", text("echo", text="x"))]
    assert all(isinstance(value, int | float) for one in metrics for value in one.values())
    mean = aggregate_for_environment(name, metrics)
    assert mean["return"] == 3.0
    assert mean["cause_submitted"] == mean["terminated"] == 0.5
    assert (mean["truncated"], mean["failed"], mean["errors"], mean["turns"]) == (0.0, 0.0, 0.5, 2.0)
    assert {f"cause_{cause}" for cause in Cause} <= set(mean)


def test_an_environment_that_is_dropped_frees_its_episode(compiled, environment):
    """The trainer closes only after success."""
    env = started(compiled)
    env.step(text("draw"))
    assert len(compiled.live) == 1
    del env
    gc.collect()
    if compiled.waits:
        for _ in range(200):
            if not compiled.live:
                break
            asyncio.run(asyncio.sleep(0.005))
    assert not compiled.live
    assert len(environment.closed) == 1


def test_a_second_init_starts_anew_and_frees_the_episode_before(compiled, environment):
    env = started(compiled, seed=5)
    first = env.step(text("draw"))["observations"]
    env.init([])
    assert env.turns == 0
    assert len(compiled.live) == 1
    assert len(environment.closed) == 1
    assert env.step(text("draw"))["observations"] == first
    env.close()


def test_rows_of_a_group_play_the_same_episode(compiled):
    """A group is one row, copied; every copy gets an environment of its own."""
    row = extras("train/1", 8, max_turns=9)
    drawn = []
    for _ in range(4):
        env = skyrl_gym.make(EnvSpec("lab", compiled), env_config={}, extras=copy.deepcopy(row))
        env.init([])
        drawn.append([env.step(text("draw"))["observations"][0]["content"] for _ in range(3)])
        env.close()
    assert drawn[1:] == drawn[:1] * 3


def test_a_copy_goes_on_by_itself(compiled, environment):
    """A copy of an environment with a ToolGroup would step the original."""
    env = started(compiled, seed=1)
    env.step(text("pay", amount=1.0))
    copied = copy.deepcopy(env)
    copied.step(text("echo", text="only here"))
    assert copied.turns == 2
    assert env.turns == 1
    (mine,) = (episode for episode in compiled.live if episode.state.words == [])
    assert mine.total == 1.0
    assert env.step(text("draw"))["observations"] == copied.step(text("draw"))["observations"]
    copied.close()
    assert len(compiled.live) == 1
    env.close()
    assert len(environment.closed) == 2


def test_a_copy_of_what_is_no_plain_data_is_refused_in_words(environment):
    class Unplain(type(environment)):
        def start(self, task, rng) -> SimpleNamespace:
            return SimpleNamespace(is_done=False, count=0.0, words=[], lock=threading.Lock())

    env = started(ADAPTER.compile(Unplain()))
    with pytest.raises(SnapshotError, match="not plain data"):
        copy.deepcopy(env)
    env.close()


def test_a_pool_of_threads_plays_many_environments_of_any_kind(compiled):
    """The trainer's pool calls init, step and close of one environment from different threads."""
    with ThreadPoolExecutor(32, thread_name_prefix="skyrl-gym-env-") as pool:
        envs = [make(compiled, task=f"train/{n % 5}", seed=n) for n in range(200)]
        list(pool.map(lambda env: env.init([]), envs))
        for _ in range(3):
            outputs = list(pool.map(lambda env: env.step(text("draw")), envs))
        assert len(compiled.live) == 200
        list(pool.map(lambda env: env.close(), envs))
    assert len({output["observations"][0]["content"] for output in outputs}) == 200
    assert not compiled.live
