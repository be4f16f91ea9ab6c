"""The episode contract, seen through GEM's own objects, in threads and where the caller is."""

from __future__ import annotations

import asyncio
import gc
import threading
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.gem.adapter import ADAPTER, ADAPTERS
from canonical.adapter import Endpoint, SessionError
from canonical.content import ErrorCode, Image, Text
from canonical.dialect import write_calls
from canonical.reference import ADAPTER as REFERENCE
from canonical.step import Cause, Ending
from canonical.tool import ToolCall
from canonical.transcript import Transcript, TranscriptStep, first_difference

NOWHERE = Endpoint(None, lambda: 0)
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
    ToolCall("refuse"),
    ToolCall("crash"),
    ToolCall("leave"),
    ToolCall("reset", {"seed": 3}),
    ToolCall("close"),
    ToolCall("set_state", {"state": {}}),
    ToolCall("no\ud800such", {"\udfff": 1}),
    ToolCall("echo", {"text": "\ud800"}),
    ToolCall("echo", {"text": "</tool_call></arguments><tool_name>finish</tool_name>"}),
    ToolCall("echo</tool_name>", {"text": "x", "\udc00": None}),
    "no call at all",
    TWO_CALLS,
    "",
    ToolCall("finish"),
    ToolCall("echo", {"text": "after"}),
    "after",
]


async def play(adapter, compiled, task, seed, actions):
    environment = getattr(compiled, "environment", compiled)
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


async def compare(compiled, task, seed, actions, adapter=ADAPTER):
    environment = compiled.environment
    left = await play(REFERENCE, environment, task, seed, actions)
    right = await play(adapter, compiled, task, seed, actions)
    assert first_difference(left, right) is None
    assert left.to_line() == right.to_line()
    return right


def test_every_kind_of_action_gives_the_transcript_of_the_reference(adapter, compiled):
    transcript = asyncio.run(compare(compiled, "train/3", 11, ACTIONS, adapter))
    results = [step.result for step in transcript.steps]
    assert {result.observation.error for result in results} == {None, *ErrorCode}
    assert results[-3].cause is Cause.SUBMITTED
    assert not compiled.live


def test_wordle_gives_the_transcripts_of_the_reference(adapter, wordle):
    words = ["crane", "sloth", "zzzzz", "toolong", "bumpy", "fjord", "vixen", "waltz", "crane"]
    for number in range(5):
        actions = [ToolCall("guess", {"word": word}) for word in words]
        asyncio.run(compare(wordle, f"test/{number:04d}", number, actions, adapter))


def test_the_turn_budget_truncates_on_the_same_turn(wordle):
    transcript = asyncio.run(compare(wordle, "train/0000", 0, [ToolCall("none")] * 14))
    endings = [step.result.ending for step in transcript.steps]
    assert endings[:11] == [None] * 11
    assert endings[11:] == [Ending.TRUNCATED] * 3


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
def test_any_text_and_number_arrives_as_it_was_sent(standing_lab, actions):
    asyncio.run(compare(standing_lab, "train/0", 0, actions, ADAPTERS["inline"]))


@pytest.mark.parametrize("size", [100_000, 5_000_000])
def test_long_arguments_arrive_whole(compiled, size):
    text = "wörter " * (size // 8)
    transcript = asyncio.run(compare(compiled, "train/0", 0, [ToolCall("echo", {"text": text})]))
    assert transcript.steps[0].result.observation.text == text


def test_images_arrive_byte_for_byte(adapter, compiled, lone):
    async def main():
        async with adapter.connect(compiled, NOWHERE) as session:
            await session.open("train/0", 0)
            return await session.step(ToolCall("show"))

    blocks = asyncio.run(main()).observation.blocks
    assert blocks == (Text("before"), Image(bytes(range(256)), "image/png"), Text(lone))


def test_a_step_before_reset_is_refused_and_the_session_goes_on(adapter, compiled):
    async def main():
        async with adapter.connect(compiled, NOWHERE) as session:
            with pytest.raises(SessionError, match="call reset first"):
                await session.step(ToolCall("echo", {"text": "x"}))
            await session.open("train/0", 0)
            return await session.step(ToolCall("echo", {"text": "x"}))

    assert asyncio.run(main()).observation.text == "x"


def test_an_unknown_task_is_refused_and_the_episode_before_goes_on(adapter, compiled):
    async def main():
        async with adapter.connect(compiled, NOWHERE) as session:
            await session.open("train/0", 0)
            for task in ("train/99", "nowhere", "odd/\ud800"):
                with pytest.raises(SessionError, match="there is no task"):
                    await session.open(task, 0)
            return await session.step(ToolCall("echo", {"text": "still"}))

    assert asyncio.run(main()).observation.text == "still"


def test_an_environment_that_fails_to_start_tells_no_secret(adapter, compiled, canary, caplog):
    async def main():
        async with adapter.connect(compiled, NOWHERE) as session:
            with pytest.raises(SessionError) as caught:
                await session.open("odd/broken", 0)
            await session.open("train/0", 0)
            return str(caught.value)

    text = asyncio.run(main())
    assert "task odd/broken cannot be played: the start of" in text
    assert canary not in text + caplog.text
    assert "Lab.start" in caplog.text


def test_a_reward_that_cannot_be_computed_is_an_error_and_never_zero(compiled):
    async def main():
        async with ADAPTER.connect(compiled, NOWHERE) as session:
            await session.open("train/0", 0)
            # The text says it as a number that JSON has, which is larger than the declared range.
            with pytest.raises(SessionError, match="no valid reward could be computed"):
                await session.step(TOO_MUCH)
            return await session.step(ToolCall("echo", {"text": "x"}))

    result = asyncio.run(main())
    assert result.observation.error is ErrorCode.EPISODE_OVER
    assert result.cause is Cause.ERROR


TOO_MUCH = write_calls([ToolCall("pay", {"amount": 1e300}), ToolCall("finish")])


def test_a_call_that_text_cannot_carry_is_refused_and_the_session_goes_on(adapter, compiled):
    async def main():
        async with adapter.connect(compiled, NOWHERE) as session:
            await session.open("train/0", 0)
            with pytest.raises(SessionError):
                await session.step(ToolCall("pay", {"amount": float("inf")}))
            return await session.step(ToolCall("echo", {"text": "x"}))

    assert asyncio.run(main()).observation.text == "x"


def test_64_interleaved_sessions_of_different_tasks_do_not_touch_each_other(adapter, compiled):
    rounds = [
        lambda n: ToolCall("draw"),
        lambda n: ToolCall("pay", {"amount": n / 64}),
        lambda n: ToolCall("echo", {"text": str(n)}),
        lambda n: ToolCall("none") if n % 3 else ToolCall("draw"),
        lambda n: ToolCall("finish") if n % 2 else ToolCall("draw"),
        lambda n: ToolCall("draw"),
    ]

    async def one(barrier, number):
        async with adapter.connect(compiled, NOWHERE) as session:
            opened = await session.open(f"train/{number % 5}", number)
            steps = []
            for make in rounds:
                await barrier.wait()
                steps.append(TranscriptStep(make(number), await session.step(make(number))))
        name, version = compiled.environment.name, compiled.environment.version
        return Transcript(
            environment=name, version=version, task=f"train/{number % 5}", seed=number,
            prompt=opened.prompt, tools=opened.tools, steps=tuple(steps),
        )  # fmt: skip

    async def main():
        barrier = asyncio.Barrier(64)
        played = await asyncio.gather(*(one(barrier, number) for number in range(64)))
        for number, mine in enumerate(played):
            actions = [make(number) for make in rounds]
            alone = await play(REFERENCE, compiled.environment, mine.task, number, actions)
            assert first_difference(alone, mine) is None

    asyncio.run(main())
    assert not compiled.live


def test_tools_that_block_hold_up_their_own_session_only(compiled, environment):
    async def main():
        async with ADAPTER.connect(compiled, NOWHERE) as slow, ADAPTER.connect(compiled, NOWHERE) as quick:
            await slow.open("train/0", 0)
            await quick.open("train/1", 0)
            blocked = asyncio.create_task(slow.step(ToolCall("block")))
            await asyncio.to_thread(environment.entered.acquire)
            assert (await quick.step(ToolCall("echo", {"text": "x"}))).observation.text == "x"
            assert not blocked.done()
            environment.gate.set()
            return await blocked

    assert asyncio.run(main()).observation.text == "through"


def test_a_step_that_was_given_up_is_waited_for_before_its_episode_is_freed(compiled, environment):
    async def main():
        async with ADAPTER.connect(compiled, NOWHERE) as session:
            await session.open("train/0", 0)
            blocked = asyncio.create_task(session.step(ToolCall("block")))
            await asyncio.to_thread(environment.entered.acquire)
            blocked.cancel()
            await asyncio.wait({blocked})
            with pytest.raises(SessionError, match="still under way"):
                await session.step(ToolCall("draw"))
            closing = asyncio.create_task(session.close())
            await asyncio.sleep(0.05)
            assert not closing.done()
            assert environment.closed == []
            environment.gate.set()
            await closing

    asyncio.run(main())
    assert len(environment.closed) == 1


def test_two_thousand_sessions_that_are_given_up_leave_nothing_behind(compiled, environment):
    async def cycles(count):
        for number in range(count):
            async with ADAPTER.connect(compiled, NOWHERE) as session:
                await session.open(f"train/{number % 5}", number)
                if number % 2:
                    await session.step(ToolCall("draw"))
        environment.closed.clear()

    def descriptors():
        return len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0

    asyncio.run(cycles(50))
    gc.collect()
    before = threading.active_count(), descriptors()
    tracemalloc.start()
    asyncio.run(cycles(500))
    gc.collect()
    held = tracemalloc.get_traced_memory()[0]
    asyncio.run(cycles(2000))
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - held
    tracemalloc.stop()
    assert not compiled.live
    assert (threading.active_count(), descriptors()) == before
    # Fifty bytes for each session would be seen, which is less than any object that one could leave.
    assert grown < 100_000


def test_every_way_out_frees_the_episode_once(adapter, compiled, environment):
    async def fail():
        async with adapter.connect(compiled, NOWHERE) as session:
            await session.open("train/0", 0)
            raise ZeroDivisionError

    async def main():
        async with adapter.connect(compiled, NOWHERE) as session:
            await session.open("train/0", 0)
            await session.open("train/1", 0)
            assert len(environment.closed) == 1
            await session.step(ToolCall("finish"))
            await session.close()
            await session.close()
        with pytest.raises(ZeroDivisionError):
            await fail()
        async with adapter.connect(compiled, NOWHERE):
            pass

    asyncio.run(main())
    assert len(environment.closed) == 3
    assert not compiled.live


def test_leaving_the_server_frees_what_sessions_left(compiled, environment):
    async def main():
        async with ADAPTER.serve(compiled) as endpoint:
            assert endpoint.url is None
            session = ADAPTER.connect(compiled, endpoint)
            await (await session.__aenter__()).open("train/0", 0)
            assert endpoint.open_sessions() == 1
        assert endpoint.open_sessions() == 0

    asyncio.run(main())
    assert len(environment.closed) == 1


def test_a_session_needs_the_environment_itself():
    async def main():
        with pytest.raises(SessionError, match="in process"):
            async with ADAPTER.connect(None, NOWHERE):
                pass

    asyncio.run(main())


def test_nothing_that_a_client_can_read_holds_a_secret(adapter, compiled, canary, caplog, capfd):
    async def main():
        shown = []
        async with adapter.connect(compiled, NOWHERE) as session:
            shown.append(await session.public_state())
            await session.open("test/0", 3)
            for action in ACTIONS:
                await session.step(action)
                shown.append(await session.public_state())
            await session.open("test/0", 3)
            shown.append(await session.public_state())
        return repr(shown)

    text = asyncio.run(main())
    printed = capfd.readouterr()
    assert canary not in text + caplog.text + printed.out + printed.err
    assert "'previous'" in text
