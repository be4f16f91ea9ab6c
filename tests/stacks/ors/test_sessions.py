"""The episode contract, seen through the real server of ORS and its own client."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.ors.adapter import ADAPTER
from canonical.adapter import Endpoint, SessionError
from canonical.content import ErrorCode, Image, Message, Text
from canonical.dialect import write_calls
from canonical.reference import ADAPTER as REFERENCE
from canonical.step import Cause, Ending, StepResult
from canonical.tool import ToolCall
from canonical.transcript import Transcript, TranscriptStep, first_difference

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
    ToolCall("setup"),
    ToolCall("reset", {"seed": 3}),
    ToolCall("teardown"),
    ToolCall("get_prompt"),
    ToolCall("_act", {"action": "x"}),
    ToolCall("no\ud800such", {"\udfff": 1}),
    ToolCall("echo", {"text": "\ud800"}),
    ToolCall("echo", {"text": "x", "\udc00": None}),
    "no call at all",
    TWO_CALLS,
    "",
    ToolCall("finish"),
    ToolCall("echo", {"text": "after"}),
    "after",
]


async def play(side, environment, task, seed, actions):
    adapter, compiled, endpoint = side
    async with adapter.connect(compiled, endpoint) as session:
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


def reference(environment):
    return REFERENCE, environment, Endpoint(None, lambda: 0)


def served(server):
    return ADAPTER, None, server.endpoint


async def compare(server, task, seed, actions):
    environment = server.environment
    left = await play(reference(environment), environment, task, seed, actions)
    right = await play(served(server), environment, task, seed, actions)
    assert first_difference(left, right) is None
    assert left.to_line() == right.to_line()
    return right


def test_every_kind_of_action_gives_the_transcript_of_the_reference(lab):
    transcript = asyncio.run(compare(lab, "train/3", 11, ACTIONS))
    results = [step.result for step in transcript.steps]
    assert {result.observation.error for result in results} == {None, *ErrorCode}
    assert results[-3].cause is Cause.SUBMITTED
    assert lab.becomes(0)


def test_no_name_that_a_model_can_write_is_the_channel_of_texts(lab):
    names = ["assistant action", "action_channel", f"assistant action {'0' * 32}"]
    actions = [ToolCall(name, {"text": "crash"}) for name in names]
    steps = asyncio.run(compare(lab, "train/0", 0, actions)).steps
    assert {step.result.observation.error for step in steps} == {ErrorCode.UNKNOWN_TOOL}


def test_wordle_gives_the_transcripts_of_the_reference(wordle):
    words = ["crane", "sloth", "zzzzz", "toolong", "bumpy", "fjord", "vixen", "waltz", "crane"]
    for number in range(5):
        actions = [ToolCall("guess", {"word": word}) for word in words]
        asyncio.run(compare(wordle, f"test/{number:04d}", number, actions))


def test_the_turn_budget_truncates_on_the_same_turn(wordle):
    transcript = asyncio.run(compare(wordle, "train/0000", 0, [ToolCall("none")] * 14))
    endings = [step.result.ending for step in transcript.steps]
    assert endings[:11] == [None] * 11
    assert endings[11:] == [Ending.TRUNCATED] * 3


def test_a_prompt_of_several_messages_keeps_roles_images_and_any_text(lab):
    opened = asyncio.run(compare(lab, "odd/0", 0, [])).prompt
    assert [message.role for message in opened] == ["system", "user", "user"]
    assert opened[1] == Message("user", ())


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
@settings(max_examples=40, deadline=None)
def test_any_text_any_name_and_any_number_arrive_and_come_back(standing_lab, actions):
    asyncio.run(compare(standing_lab, "train/0", 0, actions))


def test_images_and_texts_come_back_byte_for_byte(lab, lone):
    async def main():
        async with ADAPTER.connect(None, lab.endpoint) as session:
            await session.open("train/0", 0)
            return await session.step(ToolCall("show"))

    blocks = asyncio.run(main()).observation.blocks
    assert blocks == (Text("before"), Image(bytes(range(256)), "image/png"), Text(lone))


def test_sixty_four_interleaved_sessions_have_tasks_generators_and_states_of_their_own(lab):
    actions = [
        ToolCall("draw"),
        ToolCall("echo", {"text": "x"}),
        ToolCall("draw"),
        ToolCall("pay", {"amount": 1.5}),
    ] * 3

    async def main():
        cases = [(f"train/{n % 5}", n % 7, actions) for n in range(64)]
        alone = [await play(reference(lab.environment), lab.environment, *case) for case in cases]
        return alone, await asyncio.gather(*(play(served(lab), lab.environment, *case) for case in cases))

    alone, together = asyncio.run(main())
    assert [transcript.to_line() for transcript in together] == [transcript.to_line() for transcript in alone]
    assert lab.becomes(0)


def test_sixty_four_open_sessions_are_counted_and_freed(lab):
    async def main():
        sessions = [ADAPTER.connect(None, lab.endpoint) for _ in range(64)]
        live = await asyncio.gather(*(session.__aenter__() for session in sessions))
        assert lab.endpoint.open_sessions() == 0
        await asyncio.gather(*(session.open("train/0", n) for n, session in enumerate(live)))
        assert lab.endpoint.open_sessions() == 64
        await asyncio.gather(*(session.__aexit__(None, None, None) for session in sessions))

    asyncio.run(main())
    assert lab.becomes(0)
    assert len(lab.environment.closed) == 64


def test_a_tool_that_blocks_holds_up_no_other_session(lab):
    async def main():
        async with (
            ADAPTER.connect(None, lab.endpoint) as first,
            ADAPTER.connect(None, lab.endpoint) as second,
        ):
            await first.open("train/0", 0)
            await second.open("train/1", 0)
            blocked = asyncio.create_task(first.step(ToolCall("block")))
            await asyncio.to_thread(lab.environment.entered.acquire)
            assert (
                await second.step(ToolCall("echo", {"text": "meanwhile"}))
            ).observation.text == "meanwhile"
            assert not blocked.done()
            lab.environment.gate.set()
            return await blocked

    assert asyncio.run(main()).observation.text == "through"


def test_calls_of_one_session_at_once_are_carried_out_one_after_the_other(lab):
    async def main():
        async with ADAPTER.connect(None, lab.endpoint) as session:
            await session.open("train/0", 0)
            drawn = await asyncio.gather(*(session.step(ToolCall("draw")) for _ in range(16)))
            return [result.observation.text for result in drawn]

    async def one_by_one():
        async with ADAPTER.connect(None, lab.endpoint) as session:
            await session.open("train/0", 0)
            return [(await session.step(ToolCall("draw"))).observation.text for _ in range(16)]

    assert set(asyncio.run(main())) == set(asyncio.run(one_by_one()))


def test_opening_again_frees_the_episode_before(lab):
    async def main():
        async with ADAPTER.connect(None, lab.endpoint) as session:
            for number in range(4):
                await session.open(f"train/{number}", 0)
                assert lab.endpoint.open_sessions() == 1
                assert len(lab.environment.closed) == number

    asyncio.run(main())
    assert lab.becomes(0)
    assert len(lab.environment.closed) == 4


def test_closing_twice_is_harmless_and_frees_once(lab):
    async def main():
        async with ADAPTER.connect(None, lab.endpoint) as session:
            await session.open("train/0", 0)
            await session.close()
            await session.close()
            with pytest.raises(SessionError, match="closed"):
                await session.step(ToolCall("draw"))

    asyncio.run(main())
    assert lab.becomes(0)
    assert len(lab.environment.closed) == 1


def test_a_session_that_is_closed_during_a_step_is_freed_after_it(lab):
    async def main():
        sessions = [ADAPTER.connect(None, lab.endpoint) for _ in range(2)]
        live = [await session.__aenter__() for session in sessions]
        blocked = []
        for session in live:
            await session.open("train/0", 0)
            blocked.append(asyncio.create_task(session.step(ToolCall("block"))))
            await asyncio.to_thread(lab.environment.entered.acquire)
        closings = [asyncio.create_task(session.close()) for session in live]
        await asyncio.sleep(0.1)
        assert lab.endpoint.open_sessions() == 2
        lab.environment.gate.set()
        await asyncio.gather(*closings)
        outcomes = await asyncio.gather(*blocked, return_exceptions=True)
        for session in sessions:
            await session.__aexit__(None, None, None)
        return outcomes

    outcomes = asyncio.run(main())
    assert all(isinstance(outcome, SessionError | StepResult) for outcome in outcomes)
    assert lab.becomes(0)
    assert len(lab.environment.closed) == 2


@pytest.mark.parametrize("abandoned", [True, False], ids=["abandoned", "deleted"])
def test_a_session_that_is_given_up_while_it_starts_is_freed(lab, abandoned):
    async def main():
        connection = ADAPTER.connect(None, lab.endpoint)
        session = await connection.__aenter__()
        opening = asyncio.create_task(session.open("train/slow", 0))
        await asyncio.to_thread(lab.environment.entered.acquire)
        if abandoned:
            opening.cancel()
        closing = asyncio.create_task(connection.__aexit__(None, None, None))
        await asyncio.sleep(0.2)
        lab.environment.gate.set()
        await asyncio.gather(opening, closing, return_exceptions=True)

    asyncio.run(main())
    assert lab.becomes(0)
    assert len(lab.environment.closed) == lab.environment.opened


def test_an_unknown_task_is_refused_in_words(lab):
    async def main():
        async with ADAPTER.connect(None, lab.endpoint) as session:
            with pytest.raises(SessionError, match="there is no task"):
                await session.open("train/99", 0)
            await session.open("train/0", 0)
            return await session.step(ToolCall("echo", {"text": "good"}))

    assert asyncio.run(main()).observation.text == "good"
    assert lab.becomes(0)


def test_an_environment_that_fails_to_start_tells_no_secret(lab, canary, caplog, capfd):
    async def main():
        async with ADAPTER.connect(None, lab.endpoint) as session:
            with pytest.raises(SessionError) as caught:
                await session.open("train/broken", 0)
            await session.open("train/0", 0)
            return str(caught.value)

    text = asyncio.run(main())
    printed = capfd.readouterr()
    assert "could not start task train/broken: ValueError" in text
    assert canary not in text + caplog.text + printed.out + printed.err
    assert "Lab.start" in caplog.text


def test_a_reward_that_cannot_be_computed_is_an_error_and_never_zero(lab):
    async def main():
        async with ADAPTER.connect(None, lab.endpoint) as session:
            await session.open("train/0", 0)
            with pytest.raises(SessionError, match="not a finite number"):
                await session.step(ToolCall("pay", {"amount": float("inf")}))
            return await session.step(ToolCall("echo", {"text": "x"}))

    result = asyncio.run(main())
    assert result.observation.error is ErrorCode.EPISODE_OVER
    assert result.cause is Cause.ERROR


def test_a_tool_that_pretends_to_be_cancelled_hangs_nothing_and_tells_no_secret(lab, canary):
    """The server would wait for the end of such a call for ever."""

    async def main():
        async with asyncio.timeout(20), ADAPTER.connect(None, lab.endpoint) as session:
            await session.open("train/0", 0)
            with pytest.raises(SessionError) as caught:
                await session.step(ToolCall("vanish"))
            return str(caught.value), await session.step(ToolCall("echo", {"text": "on"}))

    text, result = asyncio.run(main())
    assert "CancelledError" in text
    assert canary not in text
    assert result.observation.text == "on"


def test_a_server_that_stops_frees_every_episode(environment, serve_standing, raw):
    with serve_standing(environment) as server:
        for _ in range(3):
            # Their clients are gone without a word, as some that were killed.
            gone = raw(server)
            assert gone.create(id="train/0")[0] == 200
            gone.close()
        assert server.becomes(3)
    assert server.endpoint.open_sessions() == 0
    assert len(environment.closed) == 3


def test_a_server_that_is_not_there_is_named():
    async def main():
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        with pytest.raises(SessionError, match=f"127.0.0.1:{port}"):
            async with ADAPTER.connect(None, Endpoint(f"http://127.0.0.1:{port}", lambda: 0)):
                pass
        with pytest.raises(SessionError, match="serve the environment"):
            async with ADAPTER.connect(None, Endpoint(None, lambda: 0)):
                pass

    asyncio.run(main())


@pytest.mark.parametrize("port", ["taken", 70_000])
def test_a_port_that_cannot_be_had_is_an_os_error_in_words(port, environment):
    async def main():
        with socket.create_server(("127.0.0.1", 0)) as taken:
            wanted = taken.getsockname()[1] if port == "taken" else port
            with pytest.raises(OSError, match=f"cannot serve on 127.0.0.1.*{wanted}"):
                async with ADAPTER.serve(ADAPTER.compile(environment), port=wanted):
                    pass

    asyncio.run(main())


def test_what_a_client_can_read_of_an_episode_holds_no_secret(lab, canary):
    async def main():
        async with ADAPTER.connect(None, lab.endpoint) as session:
            await session.open("test/0", 5)
            seen = [await session.public_state()]
            for action in (ToolCall("pay", {"amount": 2.0}), ToolCall("crash"), "text", ToolCall("finish")):
                await session.step(action)
                seen.append(await session.public_state())
            return seen

    seen = asyncio.run(main())
    assert seen[1]["metadata"] == {"total": 2.0, "components": {"count": 2.0}}
    assert seen[-1]["metadata"]["cause"] == "submitted"
    assert canary not in json.dumps(seen)
