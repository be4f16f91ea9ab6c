"""What trainers of GEM read: each loop below is written as one of them drives environments, and adds rewards up as it does."""

from __future__ import annotations

import asyncio
import copy

import gem
import pytest
from gem.wrappers.episode_tracking_wrapper import EpisodeTrackingWrapper
from gem.wrappers.observation_wrapper import ObservationWrapper

from canonical.episode import Episode

WORDS = ["crane", "sloth", "zzzzz", "bumpy", "no call", "fjord", "vixen", "waltz", "quack"]


@pytest.fixture(scope="module")
def script(say):
    return [say("guess", word=word) for word in WORDS]


def return_of(environment, task, seed, actions):
    """Return what the episode itself pays for these actions, and how many of them it takes."""
    episode = Episode.open(environment, task, seed=seed)
    taken = 0
    for action in actions:
        if episode.cause is not None:
            break
        episode.step(action)
        taken += 1
    return episode.total, taken


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_vector_that_resets_by_itself_pays_every_episode_its_return(wordle, script, asynchronous):
    """As oat collects: one vector, `terminated | truncated` ends an episode, its rewards are summed."""
    width, finished, current = 3, [], [[] for _ in range(3)]
    vector = gem.make_vec(
        [wordle.env_id] * width,
        vec_kwargs=[{"seed": 100 + number} for number in range(width)],
        wrappers=[
            lambda env: ObservationWrapper(env, include_action=True, include_chat_template=False),
            EpisodeTrackingWrapper,
        ],
        async_mode=asynchronous,
    )
    _, infos = vector.reset()
    playing = [(info["task"], info["seed"]) for info in infos]
    for _ in range(30):
        actions = [script[len(rewards) % len(script)] for rewards in current]
        observations, rewards, terminated, truncated, infos = vector.step(actions)
        for number in range(width):
            current[number].append(rewards[number])
            if terminated[number] | truncated[number]:
                finished.append((*playing[number], current[number], infos[number]))
                playing[number] = infos[number]["task"], infos[number]["seed"]
                current[number] = []
                assert observations[number].startswith("Find the hidden")
    assert len(finished) >= 6
    for task, seed, rewards, info in finished:
        total, taken = return_of(wordle.environment, task, seed, script)
        assert (sum(rewards), len(rewards)) == (total, taken)
        assert (info["previous"]["total"], info["previous"]["task"]) == (total, task)
        assert (info["prev_ep_cumulative_rewards"], info["prev_ep_step_counter"]) == (total, taken)


def test_a_group_goes_on_from_one_kept_state(wordle, script):
    """As oat makes the groups of GRPO: `get_state` after a reset, `set_state` in as many environments."""
    vector = gem.make_vec([wordle.env_id] * 4)
    vector.envs[0].reset()
    state = vector.envs[0].get_state()
    for env in vector.envs:
        env.set_state(copy.deepcopy(state))
    results = [vector.step([action] * 4) for action in script[:2]]
    assert all(len(set(observations)) == 1 for observations, *_ in results)
    if hasattr(gem.Env, "spawn"):
        # Releases with `spawn` also step a part of a vector.
        observations, rewards, *_ = vector.step({2: script[3]})
        assert (len(observations), len(rewards)) == (1, 1)
        assert [env.get_state()["episode"]["turn"] for env in vector.envs] == [2, 2, 3, 2]


def test_a_group_of_spawned_environments_plays_inside_an_event_loop(compiled, say):
    """As tinker-cookbook does it: copies of a pool's environment, each reset and stepped by a coroutine, numbers logged."""
    pool = gem.make(compiled.env_id, seed=11)
    actions = [say("pay", amount=0.25), say("draw"), "no call", say("finish")]

    async def one(env):
        observation, info = env.reset()
        paid, metrics = 0.0, {}
        for action in actions:
            await asyncio.sleep(0)
            _, reward, terminated, truncated, shown = env.step(action)
            paid += float(reward)
            metrics |= {key: value for key, value in shown.items() if isinstance(value, int | float)}
            if terminated or truncated:
                break
        return info["task"], info["seed"], observation, paid, metrics

    async def main():
        return await asyncio.gather(*(one(pool.spawn(same_state=True)) for _ in range(8)))

    played = asyncio.run(main())
    assert len({row[:3] for row in played}) == 1
    for *_, paid, metrics in played:
        assert paid == metrics["total"] == 0.75
        assert metrics["turn"] == 4


def test_a_group_that_is_reset_by_one_seed_plays_one_episode(wordle, script):
    """As ROLL does it: `make` with a configuration, `reset(seed=)` with the group's seed, `step(action=)`."""
    config = {"split": "validation", "seed": 0}
    group = [gem.make(wordle.env_id, **config) for _ in range(3)]
    for seed in (5, 6):
        started = [env.reset(seed=seed) for env in group]
        assert len({(text, info["task"]) for text, info in started}) == 1
        total, taken = return_of(wordle.environment, started[0][1]["task"], seed, script)
        for env in group:
            rewards = [env.step(action=action)[1] for action in script[:taken]]
            assert sum(rewards) == total


def test_a_solved_game_pays_one_at_its_last_step(wordle, say):
    """Oat counts an episode as a success when its last reward is 1."""
    env = gem.make(wordle.env_id)
    _, info = env.reset(seed=3)
    secret = wordle.environment.tasks().get(info["task"]).secret["answer"]
    env.step(say("guess", word="crane"))
    assert env.step(say("guess", word=secret))[1] == 1


def test_closing_a_wrapper_closes_the_environment(compiled, environment):
    wrapped = EpisodeTrackingWrapper(gem.make(compiled.env_id))
    wrapped.reset()
    wrapped.close()
    assert len(environment.closed) == 1
    assert not compiled.live


def test_a_wrapped_environment_is_copied_by_its_core(compiled):
    wrapped = EpisodeTrackingWrapper(gem.make(compiled.env_id))
    wrapped.reset(seed=1)
    core = wrapped.unwrapped if hasattr(gem.Env, "unwrapped") else wrapped.env
    again = EpisodeTrackingWrapper(core.spawn(same_state=True))
    assert again.get_state() == wrapped.get_state()
    assert copy.deepcopy(wrapped).env.get_state() == wrapped.get_state()
