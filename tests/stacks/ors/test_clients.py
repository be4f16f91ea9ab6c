"""The official synchronous client of the installed distribution, used as its users use it."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path

import pytest

from adapters.ors.adapter import OrsAdapter
from adapters.ors.framework import HAS_OPENREWARD, Environment, Message
from canonical.adapter import Endpoint
from canonical.content import JSON
from canonical.episode import Episode
from canonical.tool import ToolCall


def test_the_framework_is_the_real_one_and_not_a_folder_of_this_project():
    for name in ("openreward", "ors"):
        spec = find_spec(name)
        assert spec is None or "site-packages" in Path(spec.origin).parts
    assert find_spec("openreward" if HAS_OPENREWARD else "ors") is not None
    assert Environment.__module__.partition(".")[0] in {"openreward", "ors"}


def test_splits_and_tasks_are_listed_by_public_rows(standing_wordle, official):
    with official(standing_wordle) as env:
        names = [getattr(split, "name", split) for split in env.list_splits()]
        assert names == ["train", "validation", "test"]
        tasks = env.list_tasks("test")
        assert env.num_tasks("test") == len(tasks) == len(standing_wordle.environment.tasks().split("test"))
        assert dict(env.get_task("test", 3).task_spec) == {"id": "test/0003", "index": 3, "inputs": {}}
        assert [task.task_spec["id"] for task in env.get_task_range("test", 2, 4)] == [
            "test/0002",
            "test/0003",
        ]
        assert [task.task_spec["index"] for task in tasks] == list(range(len(tasks)))


def test_a_listed_task_is_played_to_its_end(standing_wordle, official):
    with official(standing_wordle) as env:
        task = env.list_tasks("train")[5]
        answer = standing_wordle.environment.tasks().get(task.task_spec["id"]).secret["answer"]
        with env.session(task) as session:
            assert "hidden five-letter English word" in session.get_prompt()[0].text
            first = session.call_tool("guess", {"word": "crane"})
            last = session.call_tool("guess", {"word": answer})
    assert (first.reward, first.finished) == (0.0, False)
    assert first.blocks[0].text.startswith("C R A N E")
    assert (last.reward, last.finished) == (1.0, True)
    assert last.metadata["cause"] == "solved"
    assert standing_wordle.becomes(0)


def test_split_and_index_choose_the_same_task(standing_wordle, official):
    answer = standing_wordle.environment.tasks().get("validation/0002").secret["answer"]
    with official(standing_wordle) as env, env.session(split="validation", index=2) as session:
        assert session.call_tool("guess", {"word": answer}).reward == 1.0


def test_tools_are_listed_in_order_and_with_the_schemas_that_arguments_are_checked_by(standing_lab, official):
    specs = [tool.spec for tool in standing_lab.environment.tools]
    with official(standing_lab) as env:
        listed = env.list_tools()
        assert [(t.name, t.description, t.input_schema) for t in listed] == [
            (spec.name, spec.description, dict(spec.parameters)) for spec in specs
        ]
        for form in ("openai", "anthropic", "google", "openrouter"):
            assert len(env.list_tools(format=form)) == len(specs)


def test_the_frameworks_own_search_for_tools_finds_the_methods(standing_lab):
    """A method that the framework does not take for a tool would be dropped without a word."""
    compiled = OrsAdapter().compile(standing_lab.environment)
    found = {
        name: compiled.__dict__[name]
        for name in compiled.__dict__
        if compiled._is_tool(compiled.__dict__[name])
    }
    specs = {tool.name: tool.spec for tool in standing_lab.environment.tools}
    # `setup` is a part of every environment of ORS, so a tool of that name has no method.
    assert specs.keys() - found.keys() == {"setup"}
    for name, method in found.items():
        assert method.__doc__ == specs[name].description
        assert method.__annotations__["arguments"].model_json_schema() == dict(specs[name].parameters)


@pytest.mark.parametrize("taken", ["ping", "health", "create_session"])
def test_a_name_that_would_hide_a_path_of_the_server_is_refused(standing_lab, taken):
    from adapters.ors.compiler import compile_environment, make_server

    renamed = type("Renamed", (type(standing_lab.environment),), {"name": taken})()
    with pytest.raises(ValueError, match=f"cannot be called {taken}"):
        make_server(compile_environment(renamed))


def rewards_of(env, calls) -> list[JSON]:
    with env.session(split="train", index=0) as session:
        return [session.call_tool(name, dict(arguments)).reward for name, arguments in calls]


def reference(environment, calls):
    episode = Episode.open(environment, "train/0", seed=0)
    for name, arguments in calls:
        episode.step(ToolCall(name, arguments))
    return episode.total


AFTER_THE_END = [
    ("pay", {"amount": 1.5}),
    ("none", {}),
    ("pay", {"amount": -0.25}),
    ("finish", {}),
    ("pay", {"amount": 8.0}),
    ("none", {}),
]


def test_the_rewards_of_an_episode_sum_to_its_return_whatever_is_called_after_the_end(standing_lab, official):
    with official(standing_lab) as env:
        rewards = rewards_of(env, AFTER_THE_END)
    assert rewards == [1.5, 0.0, -0.25, -0.25, None, None]
    assert sum(reward or 0.0 for reward in rewards) == reference(standing_lab.environment, AFTER_THE_END)


def test_a_trainer_that_keeps_the_last_reward_reads_the_return_of_dense_rewards_if_compiled_so(
    standing_lab, official, serve_standing
):
    with (
        serve_standing(standing_lab.environment, OrsAdapter(reading="last")) as server,
        official(server) as env,
    ):
        rewards = rewards_of(env, AFTER_THE_END)
    kept = [reward for reward in rewards if reward is not None]
    assert rewards == [1.5, 1.5, 1.25, 1.0, None, None]
    assert kept[-1] == reference(standing_lab.environment, AFTER_THE_END)


@pytest.mark.parametrize("reading", ["sum", "last"])
def test_an_environment_that_pays_at_the_end_reads_the_same_for_every_trainer(
    standing_wordle, official, serve_standing, reading
):
    answer = standing_wordle.environment.tasks().get("train/0000").secret["answer"]
    words = ["crane", "qqqqq", answer, "sloth", "zz", answer]
    with (
        serve_standing(standing_wordle.environment, OrsAdapter(reading=reading)) as server,
        official(server) as env,
    ):
        rewards = rewards_of(env, [("guess", {"word": word}) for word in words])
        given_up = rewards_of(env, [("guess", {"word": "crane"})])
    assert rewards == [0.0, 0.0, 1.0, None, None, None]
    kept = [reward for reward in rewards if reward is not None]
    assert sum(kept) == kept[-1] == 1.0
    assert given_up == [0.0]


@pytest.mark.parametrize("reading", ["sum", "last"])
def test_the_session_reads_every_payment_in_both_readings(standing_lab, serve_standing, reading):
    adapter = OrsAdapter(reading=reading)
    environment = standing_lab.environment

    async def main(server):
        async with adapter.connect(None, server.endpoint) as session:
            await session.open("train/0", 0)
            return [await session.step(ToolCall(name, dict(given))) for name, given in AFTER_THE_END]

    with serve_standing(environment, adapter) as server:
        results = asyncio.run(main(server))
    episode = Episode.open(environment, "train/0", seed=0)
    assert results == [episode.step(ToolCall(name, given)) for name, given in AFTER_THE_END]


@pytest.mark.skipif(not HAS_OPENREWARD, reason="a defect of openreward's client alone")
def test_the_address_is_given_where_it_is_not_changed_and_without_a_slash(standing_wordle):
    """A base_url of the client itself gets other hosts; with a slash the keepalive fails and the session dies later."""
    from openreward import AsyncOpenReward

    broken = AsyncOpenReward(api_key="none", base_url=standing_wordle.url)
    assert "sessions.127.0.0.1" in broken.session_base_url

    async def main():
        async with OrsAdapter().connect(None, Endpoint(standing_wordle.url + "/", lambda: 0)) as session:
            await session.open("train/0000", 0)
            # The keepalive goes to this address with `/ping` behind it.
            return session._session.base_url

    assert asyncio.run(main()) == standing_wordle.url
    assert standing_wordle.becomes(0)


@pytest.mark.skipif(Message is None, reason="this release has prompts without roles only")
def test_a_prompt_has_its_roles_where_the_framework_has_them(standing_lab, official):
    with official(standing_lab) as env, env.session(split="odd", index=0) as session:
        messages = session.get_messages()
    assert [message.role for message in messages] == ["system", "user", "user"]
    assert messages[2].blocks[1].text == "?"
