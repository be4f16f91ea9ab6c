"""Environments of releases before 0.4, rolled out by Verifiers itself."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading

import pytest

from adapters.verifiers.compiler import Target, targets
from canonical.adapter import SessionError
from canonical.episode import Episode
from canonical.tool import ToolCall

if Target.ENVIRONMENT not in targets():
    pytest.skip("this release has no environments", allow_module_level=True)

import verifiers as vf

from adapters.verifiers.environment_session import SilentClient
from adapters.verifiers.environment_target import compile_environment, types

KEY = "VERIFIERS_TEST_KEY"
ID = "adapters.verifiers.tasks"


class Scripted(SilentClient):
    """Be a model that answers by a script, in this process."""

    def __init__(self, script):
        super().__init__()
        self.script, self.asked = list(script), 0

    async def get_native_response(self, prompt, *_, **__):
        turn = sum(message.role == "assistant" for message in prompt)
        self.asked += 1
        if turn >= len(self.script):
            raise vf.ModelError("the script is over")
        said = self.script[turn]
        actions = said if isinstance(said, list) else [said]
        calls = [
            types.ToolCall(id=f"c{turn}_{index}", name=call.name, arguments=json.dumps(dict(call.arguments)))
            for index, call in enumerate(actions)
            if isinstance(call, ToolCall)
        ]
        return types.Response(
            id="r",
            created=0,
            model="m",
            usage=None,
            message=types.ResponseMessage(
                content=said if isinstance(said, str) else None,
                tool_calls=calls or None,
                finish_reason="tool_calls" if calls else "stop",
                is_truncated=False,
            ),
        )


def roll_out(compiled, client, task="train/0000", seed=0):
    columns = ["episode", "trajectory"] if compiled.environment.name == "wordle" else ["episode"]
    row = compiled.row(task, seed)
    return asyncio.run(compiled.run_rollout(row, client, "m", {}, state_columns=columns[:1]))


def answer_of(environment, task):
    return environment.tasks().get(task).secret["answer"]


def test_it_is_an_environment_of_the_framework_loaded_by_its_id(wordle):
    env = vf.load_environment(ID, environment="wordle", split="validation", eval_split="test")
    assert isinstance(env, vf.StatefulToolEnv)
    rows, evaluation = env.get_dataset(), env.get_eval_dataset()
    assert len(rows) == len(wordle.tasks().split("validation"))
    assert len(evaluation) == len(wordle.tasks().split("test"))
    row = rows[0]
    assert row["prompt"][0]["content"] == Episode.open(wordle, "validation/0000").prompt[0].text
    assert json.loads(row["info"]) == {"task_id": "validation/0000", "seed": 0}
    assert [tool.parameters for tool in env.tool_defs] == [wordle.tools[0].spec.parameters]


def test_no_row_holds_a_secret(touchstone):
    compiled = compile_environment(touchstone, split="test", seed=7)
    text = json.dumps(compiled.get_dataset().to_list())
    assert "test/12" in text
    assert not [task.id for task in touchstone.tasks() if str(task.secret["code"]) in text]


def test_a_rollout_pays_the_return_of_the_episode_and_asks_the_model_no_more(wordle):
    compiled = compile_environment(wordle)
    client = Scripted(
        [
            ToolCall("guess", {"word": "crane"}),
            "no call",
            ToolCall("guess", {"word": answer_of(wordle, "train/0000")}),
            "never asked",
        ]
    )
    output = roll_out(compiled, client)
    assert (output["reward"], output["stop_condition"], client.asked) == (1.0, "episode_over", 3)
    assert output["error"] is None
    assert output["metrics"] | {"solved": 1.0, "turns": 3.0} == output["metrics"]
    assert output["metrics"]["guess_calls"] == 2
    assert output["episode"]["cause"] == "solved"
    assert len(compiled.live) == 0


def test_a_rollout_over_http_gives_the_same(model, wordle):
    script = [
        ToolCall("guess", {"word": "crane"}),
        ToolCall("guess", {"word": answer_of(wordle, "train/0000")}),
    ]

    async def main():
        async with model(script) as endpoint:
            client = types.ClientConfig(
                client_type="openai_chat_completions",
                api_base_url=endpoint.url,
                api_key_var=KEY,
                max_retries=0,
                connect_timeout=60.0,
            )
            results = await compile_environment(wordle, eval_split="train").evaluate(
                client, "m", num_examples=1, state_columns=["episode"], on_progress=lambda *_: None
            )
            return results["outputs"], endpoint.requests

    (output,), requests = asyncio.run(main())
    assert output["reward"] == 1.0
    assert len(requests) == 2
    offered = json.loads(requests[0])["tools"][0]["function"]["parameters"]
    assert offered == wordle.tools[0].spec.parameters


def test_the_turn_budget_of_the_episode_ends_the_rollout(wordle):
    script = [ToolCall("guess", {"word": "crane"}), *[ToolCall("guess", {"word": "qqqqq"})] * 20]
    client = Scripted(script)
    output = roll_out(compile_environment(wordle), client)
    episode = Episode.open(wordle, "train/0000")
    total = [episode.step(call) for call in script][-1].total
    assert client.asked == wordle.max_turns
    assert (output["reward"], output["episode"]["cause"]) == (total, "budget")
    assert output["metrics"]["truncated"] == 1.0


def test_two_calls_in_one_message_are_both_carried_out_and_bad_json_is_explained(wordle):
    compiled = compile_environment(wordle)

    async def main():
        state = await compiled.init_state(compiled.row("train/0000", 0), SilentClient(), "m", {})
        await compiled.setup_state(state)
        calls = [
            types.ToolCall(id="a", name="guess", arguments='{"word": '),
            types.ToolCall(id="b", name="guess", arguments="[1]"),
            types.ToolCall(id="c", name="guess", arguments='{"word": "crane"}'),
        ]
        said = types.ResponseMessage(
            content=None, tool_calls=calls, finish_reason="tool_calls", is_truncated=False
        )
        response = types.Response(id="r", created=0, model="m", usage=None, message=said)
        await compiled.add_model_response(state, await compiled.get_prompt_messages(state), response)
        messages = await compiled.get_prompt_messages(state)
        called = await compiled.call_tool(
            "guess", compiled.update_tool_args("guess", {"word": "sloth"}, messages, state), "d"
        )
        await compiled.cleanup(state)
        return state, messages, called

    state, messages, called = asyncio.run(main())
    results = state["trajectory"][0]["extras"]["results"]
    assert [result.get("error") for result in results] == ["unparsable", "unparsable", None]
    assert [message.tool_call_id for message in messages[-3:]] == ["a", "b", "c"]
    assert called.content.startswith("S L O T H")
    assert state["episode"]["turn"] == 4


def test_a_rollout_that_is_stopped_from_outside_is_truncated_and_scored(broken):
    script = [
        ToolCall("put", {"value": 3.5}),
        ToolCall("put", {"value": 2.5}),
        ToolCall("wait", {"seconds": 60}),
    ]
    limited = roll_out(compile_environment(broken, max_turns=2), Scripted(script), "train/0")
    late = roll_out(compile_environment(broken, timeout_seconds=3.0), Scripted(script), "train/0")
    failed = roll_out(compile_environment(broken), Scripted(script[:1]), "train/0")
    # Verifiers checks its limit before the last call is carried out; therefore it is off by default.
    assert (limited["reward"], limited["episode"]["cause"]) == (3.5, "budget")
    assert (late["reward"], late["episode"]["cause"]) == (2.5, "timeout")
    assert failed["episode"]["cause"] == "error"
    assert failed["error"] is not None


def test_what_cannot_be_scored_or_started_is_an_error_of_its_rollout_alone(broken, canary):
    compiled = compile_environment(broken)
    rows = [
        compiled.row(task, 0) | {"example_id": n} for n, task in enumerate(["train/0", "test/unstartable"])
    ]
    script = [ToolCall("put", {"value": 11.0})]

    async def main():
        results = await compiled.generate(
            rows, Scripted(script), "m", state_columns=["episode"], on_progress=lambda *_: None
        )
        return results["outputs"]

    outputs = asyncio.run(main())
    assert len(outputs) == 2
    assert all(output["error"] for output in outputs)
    assert {output["reward"] for output in outputs} == {0.0}
    assert canary not in json.dumps(outputs, default=str)
    assert len(compiled.live) == 0


def test_a_cancelled_rollout_leaves_no_episode_behind(broken):
    compiled = compile_environment(broken)

    async def main():
        client = Scripted([ToolCall("wait", {"seconds": 60})])
        running = asyncio.create_task(compiled.run_rollout(compiled.row("train/0", 0), client, "m", {}))
        await asyncio.sleep(0.5)
        assert len(compiled.live) == 1
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    assert len(compiled.live) == 0


def test_the_process_keeps_its_signal_handlers(wordle):
    kept = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    compile_environment(wordle)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == kept
    failures = []

    def make():
        try:
            compile_environment(wordle)
        except RuntimeError as error:
            failures.append(str(error))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    assert "main thread" in failures[0]


def test_the_client_of_a_session_is_never_asked():
    with pytest.raises(SessionError, match="no model"):
        asyncio.run(SilentClient().get_native_response())
    assert "verifiers" in sys.modules
