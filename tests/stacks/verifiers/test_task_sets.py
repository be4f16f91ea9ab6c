"""Task sets, rolled out by Verifiers itself, with a scripted model behind an endpoint."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path

import pytest

from adapters.verifiers.compiler import Target, targets
from canonical.episode import Episode
from canonical.tool import ToolCall

if Target.TASK_SET not in targets():
    pytest.skip("this release has no task sets", allow_module_level=True)

import verifiers.v1 as vf

from adapters.verifiers.taskset_target import EpisodeHarness, EpisodeState

PACKAGE = """
from adapters.verifiers.tasks import EpisodeEnv, EpisodeHarness, EpisodeTaskset
__all__ = ["EpisodeEnv", "EpisodeHarness", "EpisodeTaskset"]
"""
KEY = "VERIFIERS_TEST_KEY"
ROOT = Path(__file__).resolve().parents[3]
BROKEN = str(Path(__file__).parent / "broken" / "environment.py")


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return the id of a task set, as a user's package of two lines gives it."""
    (tmp_path / "rosetta_tasks").mkdir()
    (tmp_path / "rosetta_tasks" / "__init__.py").write_text(PACKAGE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    yield "rosetta_tasks"
    sys.modules.pop("rosetta_tasks", None)


async def roll_out(package, endpoint, environment, *, take=1, agent=None, concurrently=False, **taskset):
    config = vf.resolve_env_config(
        {"taskset": {"id": package, "environment": environment, **taskset}, "agent": agent or {}}
    )
    env = vf.load_environment(config)
    context = vf.ModelContext(
        model="scripted", client=vf.EvalClientConfig(base_url=endpoint.url, api_key_var=KEY)
    )
    async with env.serving():
        tasks = list(env.taskset.take(take)) if hasattr(env.taskset, "take") else list(env.taskset)[:take]
        runs = [env.run_episode(task, context) for task in tasks]
        episodes = await asyncio.gather(*runs) if concurrently else [await run for run in runs]
    return [episode.traces[0] for episode in episodes]


def answer_of(environment, task):
    return environment.tasks().get(task).secret["answer"]


def test_a_rollout_pays_the_return_of_the_episode_and_asks_the_model_no_more(model, package, wordle):
    script = [
        ToolCall("guess", {"word": "crane"}),
        "no call",
        ToolCall("guess", {"word": answer_of(wordle, "train/0000")}),
        "never asked",
    ]

    async def main():
        async with model(script) as endpoint:
            (trace,) = await roll_out(package, endpoint, "wordle")
        return trace, endpoint

    trace, endpoint = asyncio.run(main())
    assert trace.ok, trace.errors
    assert (trace.reward, trace.stop_condition) == (1.0, "episode_over")
    assert trace.metrics == {"solved": 1.0, "truncated": 0.0, "turns": 3.0}
    assert [result.get("error") for result in trace.info["results"]] == [None, "unparsable", None]
    assert [node.message.role for node in trace.nodes] == [
        "user", "assistant", "tool", "assistant", "user", "assistant", "tool",
    ]  # fmt: skip
    assert len(endpoint.requests) == 3
    offered = json.loads(endpoint.requests[0])["tools"][0]["function"]
    assert offered["parameters"] == wordle.tools[0].spec.parameters
    assert len(EpisodeHarness.live) == 0


def test_two_calls_in_one_message_are_both_carried_out(model, package, wordle):
    answer = ToolCall("guess", {"word": answer_of(wordle, "train/0000")})

    async def main():
        async with model([[answer, ToolCall("guess", {"word": "crane"})]]) as endpoint:
            (trace,) = await roll_out(package, endpoint, "wordle")
        return trace

    trace = asyncio.run(main())
    assert trace.reward == 1.0
    assert [result.get("error") for result in trace.info["results"]] == [None, "episode_over"]


def test_the_turn_budget_of_the_episode_ends_the_rollout(model, package, wordle):
    script = [ToolCall("guess", {"word": "crane"}), *[ToolCall("guess", {"word": "qqqqq"})] * 20]

    async def main():
        async with model(script) as endpoint:
            (trace,) = await roll_out(package, endpoint, "wordle")
        return trace, len(endpoint.requests)

    trace, asked = asyncio.run(main())
    episode = Episode.open(wordle, "train/0000")
    total = [episode.step(call) for call in script][-1].total
    assert asked == wordle.max_turns
    assert (trace.reward, trace.info["episode"]["cause"]) == (total, "budget")
    assert trace.metrics["truncated"] == 1.0


@pytest.mark.parametrize(
    ("agent", "cause", "stop"),
    [
        ({"max_turns": 2}, "budget", "max_turns"),
        ({"timeout": {"rollout": 3.0}}, "timeout", "agent_timeout"),
    ],
)
def test_a_rollout_that_is_stopped_from_outside_is_truncated_and_scored(model, package, agent, cause, stop):
    script = [
        ToolCall("put", {"value": 2.5}),
        ToolCall("put", {"value": 3.5}),
        ToolCall("wait", {"seconds": 60}),
    ]

    async def main():
        async with model(script) as endpoint:
            (trace,) = await roll_out(package, endpoint, BROKEN, agent=agent)
        return trace

    trace = asyncio.run(main())
    assert trace.info["episode"]["cause"] == cause
    assert trace.info["episode"]["total"] == 3.5
    assert len(EpisodeHarness.live) == 0
    if cause == "timeout" and not hasattr(trace, "record_timeout"):
        # 0.3.1 takes a time limit for a failure, which is not scored.
        assert not trace.ok
        return
    assert trace.ok, trace.errors
    assert (trace.reward, trace.stop_condition) == (3.5, stop)


def test_what_cannot_be_scored_or_started_fails_its_trace_and_says_nothing_secret(model, package, canary):

    async def main():
        async with model([ToolCall("put", {"value": 11.0})]) as endpoint:
            unscorable = await roll_out(package, endpoint, BROKEN)
            unstartable = await roll_out(package, endpoint, BROKEN, split="test")
        return unscorable + unstartable

    traces = asyncio.run(main())
    assert [trace.ok for trace in traces] == [False, False]
    assert all(trace.errors for trace in traces)
    assert canary not in "".join(json.dumps(trace.to_record()) for trace in traces)
    assert len(EpisodeHarness.live) == 0


def test_a_model_that_fails_leaves_no_episode_behind(model, package):
    async def main():
        async with model([]) as endpoint:
            return await roll_out(package, endpoint, "wordle")

    (trace,) = asyncio.run(main())
    assert not trace.ok
    assert trace.info["episode"]["cause"] == "error"
    assert len(EpisodeHarness.live) == 0


def test_a_cancelled_rollout_leaves_no_episode_behind(model, package):

    async def main():
        async with model([ToolCall("wait", {"seconds": 60})]) as endpoint:
            running = asyncio.create_task(roll_out(package, endpoint, BROKEN))
            await endpoint.asked.wait()
            await asyncio.sleep(0.2)
            assert len(EpisodeHarness.live) == 1
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

    asyncio.run(main())
    assert len(EpisodeHarness.live) == 0


def test_splits_seeds_and_rows_are_those_of_the_environment(model, package, touchstone):
    source = str(ROOT / "bench" / "touchstone")
    config = vf.resolve_env_config(
        {"taskset": {"id": package, "environment": source, "split": "test", "seed": 7}}
    )
    env = vf.load_environment(config)
    rows = list(env.taskset)
    assert [row.data.task for row in rows] == [task.id for task in touchstone.tasks().split("test")]
    assert rows[0].data.system_prompt == "You sit at a table."
    assert len({row.key for row in rows}) == len(rows)
    secrets = [str(task.secret["code"]) for task in touchstone.tasks()]
    text = json.dumps([row.data.model_dump(mode="json") for row in rows])
    assert not [secret for secret in secrets if secret in text]
    assert config.agent.runtime.type == "subprocess"


def test_the_tool_server_tells_the_schemas_and_finds_out_unfinished_episodes(touchstone):
    from adapters.verifiers.taskset_target import EpisodeData, EpisodeTask, EpisodeTaskConfig
    from adapters.verifiers.toolset import EpisodeToolset, _signature

    shown = {name: spec for spec in (tool.spec for tool in touchstone.tools) for name in [spec.name]}
    parameters = _signature(shown["order"]).parameters
    assert list(parameters) == list(shown["order"].parameters["properties"])
    source = str(ROOT / "bench" / "touchstone")
    task = EpisodeTask(
        EpisodeData(prompt="x", environment=source, task="train/00", seed=1), EpisodeTaskConfig(served=True)
    )
    trace = vf.Trace(
        task=vf.TraceTask(type="EpisodeTask", data=task.data),
        agent=vf.AgentInfo(config=vf.AgentConfig(runtime=vf.SubprocessConfig())),
        state=EpisodeState(),
    )

    async def main():
        (server,) = task.toolsets(task.config)
        assert isinstance(server, EpisodeToolset)
        server._inert_state = trace.state
        await server.setup_task(task.data)
        assert await server.call("roll", {"times": 2})
        assert not trace.state.is_over
        await task.finalize(trace, None)
        await task.score(trace)

    asyncio.run(main())
    assert trace.info["episode"]["cause"] == "budget"
    assert trace.reward == trace.info["episode"]["total"] > 0


@pytest.mark.slow
def test_the_tool_server_plays_the_same_episode(model, package, wordle):
    if shutil.which("uv") is None:
        pytest.skip("Verifiers would install uv unasked; put it on the path to run this")
    script = [
        ToolCall("guess", {"word": "crane"}),
        ToolCall("guess", {"word": "zzz"}),
        ToolCall("guess", {"word": answer_of(wordle, "train/0000")}),
        "never asked",
    ]
    agent = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}

    async def main():
        async with model(script) as endpoint:
            (trace,) = await roll_out(package, endpoint, "wordle", agent=agent, task={"served": True})
        return trace, len(endpoint.requests)

    trace, asked = asyncio.run(main())
    assert trace.ok, trace.errors
    assert (trace.reward, trace.stop_condition, asked) == (1.0, "episode_over", 3)
    assert [result.get("error") for result in trace.info["results"]] == [None, "tool_error", None]
