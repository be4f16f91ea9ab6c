"""The episode contract, seen through every target that the installed release has."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.verifiers.adapter import ADAPTER, ADAPTERS
from adapters.verifiers.compiler import Target, compile_environment, targets
from adapters.verifiers.session import make_session
from canonical.adapter import Endpoint, Feature, Level, SessionError
from canonical.catalogue import load_environment
from canonical.content import ErrorCode
from canonical.reference import ADAPTER as REFERENCE
from canonical.step import Cause
from canonical.tool import ToolCall
from canonical.transcript import Transcript, TranscriptStep, first_difference

NOWHERE = Endpoint(None, lambda: 0)
TEXTS = st.text(st.characters(categories=["L", "N", "P", "S", "Z", "C"]), max_size=30)
LONE = "lone \ud800 and \udfff, paired \U0001f600, nul \x00"


async def play(side, environment, task, seed, actions):
    adapter, compiled = side
    async with adapter.connect(compiled, NOWHERE) as session:
        opened = await session.open(task, seed)
        steps = tuple([TranscriptStep(action, await session.step(action)) for action in actions])
    return Transcript(
        environment=environment.name,
        version=environment.version,
        task=task,
        seed=seed,
        prompt=opened.prompt,
        tools=opened.tools,
        steps=steps,
    )


async def compare(adapter, environment, task, seed, actions):
    left = await play((REFERENCE, environment), environment, task, seed, actions)
    right = await play((adapter, adapter.compile(environment)), environment, task, seed, actions)
    assert first_difference(left, right) is None
    assert left.to_line() == right.to_line()
    return right


def test_the_framework_is_the_installed_one_and_not_a_folder_of_this_project():
    spec = find_spec("verifiers")
    assert Path(spec.origin).is_relative_to(distribution("verifiers").locate_file(""))
    assert "adapters" not in Path(spec.origin).parts


def test_the_target_is_the_one_that_the_release_documents():
    assert targets()[0] is (
        Target.ENVIRONMENT if find_spec("verifiers.types") is not None else Target.TASK_SET
    )
    assert ADAPTER.target is targets()[0]
    assert set(ADAPTER.features()) == set(Feature)
    notes = [support.note for support in ADAPTER.features().values() if support.level is not Level.NATIVE]
    assert all(notes)


def test_every_kind_of_action_gives_the_transcript_of_the_reference(adapter, touchstone):
    code = touchstone.tasks().get("train/03").secret["code"]
    actions = [
        ToolCall("roll", {"sides": 4, "times": 3}),
        ToolCall("draw", {}),
        ToolCall("fail", {"how": "politely"}),
        ToolCall("fail", {"how": "loudly"}),
        ToolCall("roll", {"sides": "many"}),
        ToolCall("nothing", {}),
        f"no call {LONE}",
        ToolCall("echo", {"text": LONE}),
        ToolCall("answer", {"code": code}),
        ToolCall("roll", {}),
        "after",
    ]
    transcript = asyncio.run(compare(adapter, touchstone, "train/03", 11, actions))
    results = [step.result for step in transcript.steps]
    assert {result.observation.error for result in results} >= {
        None,
        ErrorCode.UNKNOWN_TOOL,
        ErrorCode.TOOL_ERROR,
        ErrorCode.INTERNAL_ERROR,
        ErrorCode.INVALID_ARGUMENTS,
        ErrorCode.UNPARSABLE,
        ErrorCode.EPISODE_OVER,
    }
    assert results[-1].cause is Cause.SOLVED


@given(text=TEXTS, name=TEXTS, key=TEXTS)
@settings(max_examples=30, deadline=None)
def test_any_text_arrives_as_it_was_sent(text, name, key):
    environment = load_environment(str(Path(__file__).parents[3] / "bench" / "touchstone"))
    actions = [ToolCall("echo", {"text": text}), ToolCall(name, {key: text}), text]
    for adapter in ADAPTERS.values():
        asyncio.run(compare(adapter, environment, "train/00", 0, actions))


def test_the_call_that_uses_up_the_budget_is_carried_out_and_scored(adapter, wordle):
    calls = [ToolCall("guess", {"word": "crane"}), *[ToolCall("guess", {"word": "qqqqq"})] * 10]
    transcript = asyncio.run(
        compare(adapter, wordle, "train/0003", 0, [*calls, ToolCall("guess", {"word": "sloth"})])
    )
    last = transcript.steps[-1].result
    assert last.cause is Cause.BUDGET
    assert last.observation.error is None
    assert last.reward == last.total > 0


def test_64_interleaved_rollouts_of_different_tasks_do_not_touch_each_other(adapter, wordle):
    tasks = list(wordle.tasks().split("train"))[:64]
    compiled = adapter.compile(wordle)

    async def one(task):
        actions = [ToolCall("guess", {"word": word}) for word in ("crane", "sloth", task.secret["answer"])]
        return await play((adapter, compiled), wordle, task.id, 0, actions), actions

    async def main():
        for task, (seen, actions) in zip(
            tasks, await asyncio.gather(*(one(task) for task in tasks)), strict=True
        ):
            reference = await play((REFERENCE, wordle), wordle, task.id, 0, actions)
            assert seen.to_line() == reference.to_line()

    asyncio.run(main())
    assert len(compiled.live) == 0


def test_2000_abandoned_rollouts_leave_nothing_behind(adapter, wordle):
    compiled = adapter.compile(wordle)

    def used():
        gc.collect()
        status = dict(
            line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line
        )
        fds = len(list(Path("/proc/self/fd").iterdir()))
        return fds, threading.active_count(), int(status["VmRSS"].split()[0])

    async def cycles(count):
        for number in range(count):
            async with adapter.connect(compiled, NOWHERE) as session:
                await session.open(f"train/{number % 100:04d}", number)
                if number % 3:
                    await session.step(ToolCall("guess", {"word": "crane"}))

    asyncio.run(cycles(300))
    before = used()
    asyncio.run(cycles(2000))
    after = used()
    assert len(compiled.live) == 0
    assert after[:2] == before[:2]
    assert after[2] - before[2] < 16_000  # KiB; one episode a cycle left over would be far more


def test_leaving_the_server_frees_what_sessions_left_open(adapter, touchstone):
    compiled = adapter.compile(touchstone)

    async def main():
        async with adapter.serve(compiled) as endpoint:
            session = adapter._session.make_session(compiled)
            await session.open("train/00", 0)
            counted = endpoint.open_sessions()
        return counted, len(compiled.live)

    assert asyncio.run(main()) == (1, 0)


def test_what_cannot_be_done_is_said(adapter, wordle):
    async def main():
        with pytest.raises(SessionError, match="in process"):
            async with adapter.connect(None, NOWHERE):
                pass
        async with adapter.connect(adapter.compile(wordle), NOWHERE) as session:
            with pytest.raises(SessionError, match="open an episode"):
                await session.step("x")
            with pytest.raises(SessionError, match="open an episode"):
                await session.public_state()
            with pytest.raises(SessionError, match="no task"):
                await session.open("train/none", 0)
            await session.open("train/0000", 0)
            await session.close()
            await session.close()

    asyncio.run(main())


def test_an_episode_that_cannot_start_or_be_scored_is_an_error_without_secrets(
    adapter, broken, canary, caplog
):
    async def main():
        async with adapter.connect(adapter.compile(broken), NOWHERE) as session:
            with pytest.raises(SessionError) as unstartable:
                await session.open("test/unstartable", 0)
            await session.open("train/0", 0)
            with pytest.raises(SessionError, match="no valid reward") as unscorable:
                await session.step(ToolCall("put", {"value": 11.0}))
            return str(unstartable.value) + str(unscorable.value)

    assert canary not in asyncio.run(main()) + caplog.text


def test_nothing_that_a_trainer_can_read_holds_the_secret(adapter, touchstone):
    code = touchstone.tasks().get("train/05").secret["code"]

    async def main():
        async with adapter.connect(adapter.compile(touchstone), NOWHERE) as session:
            await session.open("train/05", 3)
            for action in (ToolCall("roll", {}), ToolCall("fail", {"how": "loudly"}), "text"):
                await session.step(action)
            return json.dumps(await session.public_state())

    shown = asyncio.run(main())
    assert "train/05" in shown
    assert code not in shown


def test_sessions_and_targets_are_made_without_naming_the_release(wordle):
    session = make_session(compile_environment(wordle))

    async def main():
        opened = await session.open("train/0000", 0)
        await session.close()
        return opened

    assert [tool.name for tool in asyncio.run(main()).tools] == ["guess"]
