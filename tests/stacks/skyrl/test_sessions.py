"""The episode contract, seen through SkyRL's registry and the loop of its generator."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.skyrl.adapter import ADAPTER, DIRECT
from canonical.adapter import Endpoint, SessionError
from canonical.catalogue import load_environment
from canonical.content import ErrorCode, Image, Text
from canonical.dialect import TextForm, write_calls
from canonical.reference import ADAPTER as REFERENCE
from canonical.step import Cause, Ending, StepResult
from canonical.tool import ToolCall
from canonical.transcript import Transcript, TranscriptStep, first_difference

HERE = Endpoint(None, lambda: 0)
TEXTS = st.text(st.characters(categories=["L", "N", "P", "S", "Z", "C"]), max_size=30)
TWO_CALLS = write_calls([ToolCall("echo", {"text": "one"}), ToolCall("pay", {"amount": -2.5})])
ACTIONS = [
    ToolCall("echo", {"text": "hello"}),
    ToolCall("describe", {"number": 2**80, "share": 0.1 + 0.2, "tags": ["ä", "\u2028"]}),
    ToolCall("describe", {"number": 3}),
    ToolCall("describe", {"number": "x", "mode": "c"}),
    ToolCall("draw"),
    ToolCall("pay", {"amount": 0.1}),
    ToolCall("draw"),
    ToolCall("show"),
    ToolCall("list", {"lines": 0}),
    ToolCall("list", {"lines": 1}),
    ToolCall("list", {"lines": 3}),
    ToolCall("refuse"),
    ToolCall("crash"),
    ToolCall("leave"),
    ToolCall("init", {"prompt": []}),
    ToolCall("close"),
    ToolCall("get_metrics"),
    ToolCall("no\ud800such", {"\udfff": 1}),
    ToolCall("echo", {"text": "\ud800"}),
    ToolCall("echo", {"text": "</tool_call> <tools> "}),
    ToolCall("echo", {"text": "x", "\udc00": None}),
    "no call at all",
    TWO_CALLS,
    "",
    ToolCall("finish"),
    ToolCall("echo", {"text": "after"}),
    "after",
]


async def play(adapter, compiled, task, seed, actions):
    environment = getattr(compiled, "environment", compiled)
    async with adapter.connect(compiled, HERE) as session:
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


async def compare(compiled, task, seed, actions, adapter=ADAPTER):
    environment = compiled.environment
    left = await play(REFERENCE, environment, task, seed, actions)
    right = await play(adapter, compiled, task, seed, actions)
    assert first_difference(left, right) is None
    assert left.to_line() == right.to_line()
    return right


@pytest.mark.parametrize("adapter", [ADAPTER, DIRECT], ids=["pool", "direct"])
def test_every_kind_of_action_gives_the_transcript_of_the_reference(compiled, adapter):
    transcript = asyncio.run(compare(compiled, "train/3", 11, ACTIONS, adapter))
    results = [step.result for step in transcript.steps]
    assert {result.observation.error for result in results} == {None, *ErrorCode}
    assert results[-3].cause is Cause.SUBMITTED
    assert not compiled.live


def test_wordle_gives_the_transcripts_of_the_reference(wordle):
    compiled = ADAPTER.compile(wordle)
    words = ["crane", "sloth", "zzzzz", "toolong", "bumpy", "fjord", "vixen", "waltz", "crane"]
    for number in range(5):
        actions = [ToolCall("guess", {"word": word}) for word in words]
        asyncio.run(compare(compiled, f"test/{number:04d}", number, actions))


def test_the_turn_budget_truncates_on_the_same_turn_and_pays_for_what_was_reached(wordle):
    compiled = ADAPTER.compile(wordle)
    actions = [ToolCall("guess", {"word": "crane"}), *[ToolCall("none")] * 13]
    transcript = asyncio.run(compare(compiled, "train/0003", 0, actions))
    results = [step.result for step in transcript.steps]
    assert [result.ending for result in results] == [None] * 11 + [Ending.TRUNCATED] * 3
    assert [result.reward for result in results] == [0.0] * 11 + [results[-1].total] + [0.0] * 2
    assert results[-1].total > 0


@st.composite
def exchanges(draw):
    text, name, key = draw(TEXTS), draw(TEXTS), draw(TEXTS)
    number, share = draw(st.integers()), draw(st.floats(allow_nan=False, allow_infinity=False))
    return [
        ToolCall("echo", {"text": text}),
        ToolCall(name, {key: text}),
        ToolCall("describe", {"number": number, "share": share, "tags": [text]}),
        text,
    ]


@given(actions=exchanges())
@settings(max_examples=60, deadline=None)
def test_any_text_and_number_arrives_as_it_was_sent(standing, actions):
    asyncio.run(compare(standing, "train/0", 0, actions, DIRECT))


@pytest.mark.parametrize("form", TextForm)
def test_every_form_of_a_written_call_is_read(compiled, form):
    actions = [
        write_calls([ToolCall("echo", {"text": "\u201cx\u201d </tool_call>"}), ToolCall("draw")], form)
    ]
    transcript = asyncio.run(compare(compiled, "train/0", 0, actions))
    assert len(transcript.steps[0].result.observation.blocks) == 2


def test_long_arguments_arrive_whole(compiled):
    text = "wörter " * 100_000
    transcript = asyncio.run(compare(compiled, "train/0", 0, [ToolCall("echo", {"text": text})]))
    assert transcript.steps[0].result.observation.text == text


def test_images_arrive_byte_for_byte(compiled, lone):
    transcript = asyncio.run(compare(compiled, "train/0", 0, [ToolCall("show")]))
    blocks = transcript.steps[0].result.observation.blocks
    assert blocks == (Text("before"), Image(bytes(range(256)), "image/png"), Text(lone))


def test_a_call_that_json_cannot_carry_is_an_error_in_words(compiled):
    async def main():
        async with ADAPTER.connect(compiled, HERE) as session:
            await session.open("train/0", 0)
            with pytest.raises(SessionError, match="cannot be written as text"):
                await session.step(ToolCall("pay", {"amount": float("nan")}))
            return await session.step(ToolCall("echo", {"text": "still"}))

    assert asyncio.run(main()).observation.text == "still"


def test_a_step_before_an_episode_is_refused_and_the_session_goes_on(compiled):
    async def main():
        async with ADAPTER.connect(compiled, HERE) as session:
            with pytest.raises(SessionError, match="open an episode"):
                await session.step(ToolCall("draw"))
            with pytest.raises(SessionError, match="open an episode"):
                await session.public_state()
            await session.open("train/0", 0)
            return await session.step(ToolCall("echo", {"text": "x"}))

    assert asyncio.run(main()).observation.text == "x"


def test_an_unknown_task_is_refused_and_the_episode_before_goes_on(compiled):
    async def main():
        async with ADAPTER.connect(compiled, HERE) as session:
            await session.open("train/0", 0)
            for task in ("train/99", "nowhere", "odd/\ud800"):
                with pytest.raises(SessionError, match="there is no task"):
                    await session.open(task, 0)
            return await session.step(ToolCall("echo", {"text": "still"}))

    assert asyncio.run(main()).observation.text == "still"


def test_an_environment_that_fails_to_start_tells_no_secret(compiled, canary, caplog):
    async def main():
        async with ADAPTER.connect(compiled, HERE) as session:
            with pytest.raises(SessionError) as caught:
                await session.open("train/broken", 0)
            await session.open("train/0", 0)
            return str(caught.value)

    text = asyncio.run(main())
    assert "could not start task train/broken" in text
    assert canary not in text + caplog.text
    assert "Lab.start" in caplog.text


def test_a_reward_that_cannot_be_computed_is_an_error_and_never_zero(compiled):
    async def main():
        async with ADAPTER.connect(compiled, HERE) as session:
            await session.open("train/0", 0)
            text = '{"name": "pay", "arguments": {"amount": 1e308}}'
            await session.step(text)
            with pytest.raises(SessionError, match="no valid reward"):
                await session.step(ToolCall("pay", {"amount": 1e308}))
            return await session.step(ToolCall("echo", {"text": "x"}))

    result = asyncio.run(main())
    assert result.observation.error is ErrorCode.EPISODE_OVER
    assert result.cause is Cause.ERROR


def test_sixty_four_interleaved_sessions_have_generators_and_states_of_their_own(compiled):
    actions = [
        ToolCall("draw"),
        ToolCall("echo", {"text": "x"}),
        ToolCall("draw"),
        ToolCall("pay", {"amount": 1.5}),
    ] * 3
    environment = compiled.environment

    async def main():
        cases = [(f"train/{n % 5}", n % 7, actions) for n in range(64)]
        alone = [await play(REFERENCE, environment, *case) for case in cases]
        return alone, await asyncio.gather(*(play(ADAPTER, compiled, *case) for case in cases))

    alone, together = asyncio.run(main())
    assert [transcript.to_line() for transcript in together] == [transcript.to_line() for transcript in alone]
    assert not compiled.live


def test_open_sessions_are_counted_and_freed(compiled, lab):
    async def main():
        async with ADAPTER.serve(compiled) as endpoint:
            assert endpoint.url is None
            sessions = [ADAPTER.connect(compiled, endpoint) for _ in range(64)]
            live = [await session.__aenter__() for session in sessions]
            assert endpoint.open_sessions() == 0
            await asyncio.gather(*(session.open("train/0", n) for n, session in enumerate(live)))
            assert endpoint.open_sessions() == 64
            await asyncio.gather(*(session.open("train/1", n) for n, session in enumerate(live[:8])))
            assert endpoint.open_sessions() == 64
            await asyncio.gather(*(session.__aexit__(None, None, None) for session in sessions))
            return endpoint.open_sessions()

    assert asyncio.run(main()) == 0
    assert len(lab.closed) == 72


def test_a_tool_that_blocks_holds_up_no_other_session(compiled, lab):
    async def main():
        async with ADAPTER.connect(compiled, HERE) as first, ADAPTER.connect(compiled, HERE) as second:
            await first.open("train/0", 0)
            await second.open("train/1", 0)
            blocked = asyncio.create_task(first.step(ToolCall("block")))
            await asyncio.to_thread(lab.entered.acquire)
            assert (
                await second.step(ToolCall("echo", {"text": "meanwhile"}))
            ).observation.text == "meanwhile"
            assert not blocked.done()
            lab.gate.set()
            return await blocked

    assert asyncio.run(main()).observation.text == "through"


def test_closing_twice_is_harmless_and_frees_once(compiled, lab):
    async def main():
        async with ADAPTER.connect(compiled, HERE) as session:
            await session.open("train/0", 0)
            await session.close()
            await session.close()
            for request in (
                session.step(ToolCall("draw")),
                session.open("train/0", 0),
                session.public_state(),
            ):
                with pytest.raises(SessionError, match="cannot be used any more: it is closed"):
                    await request

    asyncio.run(main())
    assert not compiled.live
    assert len(lab.closed) == 1


def becomes(compiled, live):
    deadline = time.monotonic() + 10
    while len(compiled.live) != live and time.monotonic() < deadline:
        time.sleep(0.002)
    return len(compiled.live) == live


def test_closing_during_a_step_frees_when_the_step_is_over(compiled, lab):
    async def main():
        async with ADAPTER.connect(compiled, HERE) as session:
            await session.open("train/0", 0)
            blocked = asyncio.create_task(session.step(ToolCall("block")))
            await asyncio.to_thread(lab.entered.acquire)
            await session.close()
            assert len(compiled.live) == 1
            assert not lab.closed
            lab.gate.set()
            return await blocked

    assert isinstance(asyncio.run(main()), StepResult)
    assert becomes(compiled, 0)
    assert len(lab.closed) == 1


def test_an_abandoned_step_loses_the_session_and_frees_its_episode(compiled, lab):
    async def main():
        async with ADAPTER.connect(compiled, HERE) as session:
            await session.open("train/0", 0)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await session.step(ToolCall("block"))
            with pytest.raises(SessionError, match="abandoned"):
                await session.step(ToolCall("draw"))

    asyncio.run(main())
    assert len(compiled.live) == 1
    lab.gate.set()
    assert becomes(compiled, 0)
    assert len(lab.closed) == 1


def usage():
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096, threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))


def test_two_thousand_aborted_episodes_leave_nothing_behind(compiled, lab):
    async def main(count):
        async def abort(number):
            async with ADAPTER.connect(compiled, HERE) as session:
                await session.open(f"train/{number % 5}", number)
                if number % 2:
                    await session.step(ToolCall("echo", {"text": "x" * 1000}))

        for start in range(0, count, 50):
            await asyncio.gather(*(abort(start + n) for n in range(50)))

    asyncio.run(main(500))
    lab.closed.clear()
    before = usage()
    asyncio.run(main(2000))
    assert len(lab.closed) == 2000
    lab.closed.clear()
    after = usage()
    assert not compiled.live
    assert after[1:] == before[1:]
    assert after[0] - before[0] < 8 * 1024 * 1024


def test_the_state_shows_the_episode_and_no_secret(compiled, canary):
    async def main():
        async with ADAPTER.connect(compiled, HERE) as session:
            await session.open("test/0", 5)
            await session.step(ToolCall("pay", {"amount": 2.0}))
            await session.step(ToolCall("crash"))
            await session.step(ToolCall("finish"))
            return await session.public_state()

    shown = asyncio.run(main())
    assert canary not in json.dumps(shown)
    assert shown["init"]["task"] == "test/0"
    assert shown["step"]["metadata"]["cause"] == "submitted"
    assert shown["metrics"]["return"] == 4.0
    assert shown["spec"]["kwargs"]["extras"]["extra_info"] == {"task": "test/0", "seed": 5}


def test_an_address_is_refused_in_words(compiled):
    async def main(*target):
        async with ADAPTER.connect(*target):
            pass

    for target in ((None, HERE), (compiled, Endpoint("http://127.0.0.1:1", lambda: 0))):
        with pytest.raises(SessionError, match="in the trainer's own process"):
            asyncio.run(main(*target))


def test_touchstone_gives_the_transcripts_of_the_reference():
    import bench.touchstone

    environment = load_environment(str(Path(bench.touchstone.__file__).parent))
    compiled = ADAPTER.compile(environment)
    task = next(iter(environment.tasks()))
    actions = [*environment.oracle(task), ToolCall("draw"), ToolCall("wait")]
    for number in range(3):
        asyncio.run(compare(compiled, task.id, number, actions))
