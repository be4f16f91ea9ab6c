"""A harness of OpenEnv owns the loop: it asks the model, makes the calls, and stops where the episode says so."""

from __future__ import annotations

import pytest
from openenv.core.env_server.mcp_types import Tool
from openenv.core.generic_client import GenericEnvClient

from canonical.episode import Episode
from canonical.tool import ToolCall

harness = pytest.importorskip("openenv.core.harness", reason="this release has no harnesses")
llm = pytest.importorskip("openenv.core.llm_client")

TASK = "train/0003"


def test_a_harness_plays_an_episode_until_its_end(standing_wordle):
    environment = standing_wordle.environment
    answer = environment.tasks().get(TASK).secret["answer"]
    words = ["crane", answer, "never"]
    episode = Episode.open(environment, environment.tasks().get(TASK), seed=0)
    expected = [episode.step(ToolCall("guess", {"word": word})) for word in words[:2]]

    def model(messages, tools, sampling):
        assert [tool.name for tool in tools] == ["guess"]
        said = sum(message["role"] == "assistant" for message in messages)
        call = llm.ToolCall(id=f"call{said}", name="guess", args={"word": words[said]})
        return harness.ModelStepResult(response=llm.LLMResponse(content="", tool_calls=[call]))

    session = harness.StepEnvSessionAdapter(
        GenericEnvClient(base_url=standing_wordle.url).sync(),
        tool_specs=[
            Tool(name=tool.name, description=tool.spec.description, input_schema=dict(tool.spec.parameters))
            for tool in environment.tools
        ],
        action_builder=lambda name, arguments: {
            "type": "call_tool",
            "tool_name": name,
            "arguments": arguments,
        },
        initial_messages_builder=lambda result, _task: result.observation["prompt"],
        reset_kwargs={"task": TASK, "seed": 0},
    )
    try:
        rollout = harness.MCPHarnessAdapter().run_white_box(model, session)
        verdict = session.verify(rollout.messages)
    finally:
        session.close()
    assert rollout.done
    seen = [entry.result.data["observation"]["result"] for entry in rollout.tool_trace]
    assert seen == [result.observation.text for result in expected]
    assert (verdict.env_reward, verdict.done) == (expected[-1].reward, True)
    assert standing_wordle.becomes(0)
