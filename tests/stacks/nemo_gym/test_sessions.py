"""The episode contract, seen through NeMo Gym's real server and its own client."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.nemo_gym.adapter import ADAPTER, NeMoGymAdapter
from canonical.adapter import Endpoint, SessionError
from canonical.content import ErrorCode, Image, Text
from canonical.dialect import write_calls
from canonical.reference import ADAPTER as REFERENCE
from canonical.step import Cause, Ending
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
    ToolCall("seed_session", {"task": "train/1"}),
    ToolCall("verify", {"reward": 1.0}),
    ToolCall("aggregate_metrics", {"verify_responses": []}),
    ToolCall("docs"),
    ToolCall(""),
    ToolCall("."),
    ToolCall(".."),
    ToolCall("../verify"),
    ToolCall("a/b?c=d#e%2F"),
    ToolCall("a\r\nb\n"),
    ToolCall("n" * 100_000),
    ToolCall("no\ud800such", {"\udfff": 1}),
    ToolCall("echo", {"text": "\ud800"}),
    ToolCall("echo", {"text": "x", "\udc00": None}),
    "no call at all",
    "lone \ud800",
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
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_and_number_arrives_as_it_was_sent(standing_lab, actions):
    asyncio.run(compare(standing_lab, "train/0", 0, actions))


@pytest.mark.parametrize("size", [100_000, 5_000_000])
def test_long_arguments_arrive_whole(lab, size):
    text = "wörter " * (size // 8)
    transcript = asyncio.run(compare(lab, "train/0", 0, [ToolCall("echo", {"text": text})]))
    assert transcript.steps[0].result.observation.text == text


def test_images_arrive_byte_for_byte(lab, lone):
    async def main():
        async with ADAPTER.connect(None, lab.endpoint) as session:
            await session.open("train/0", 0)
            return await session.step(ToolCall("show"))

    blocks = asyncio.run(main()).observation.blocks
    assert blocks == (Text("before"), Image(bytes(range(256)), "image/png"), Text(lone))


def test_a_step_before_the_seed_is_refused_and_the_session_goes_on(lab):
    async def main():
        async with ADAPTER.connect(None, lab.endpoint) as session:
            with pytest.raises(SessionError, match="post a row to /seed_session first"):
                await session.step(ToolCall("echo", {"text": "x"}))
            await session.open("train/0", 0)
            return await session.step(ToolCall("echo", {"text": "x"}))

    assert asyncio.run(main()).observation.text == "x"


def test_a_task_that_is_not_there_and_one_that_cannot_start_are_refused_in_words(lab, canary):
    async def main():
        async with ADAPTER.connect(None, lab.endpoint) as session:
            with pytest.raises(SessionError, match="there is no task 'train/none'"):
                await session.open("train/none", 0)
            with pytest.raises(SessionError, match=r"the start of .* failed with ValueError") as failed:
                await session.open("train/broken", 0)
            assert canary not in str(failed.value)
            await session.open("train/0", 0)
            return await session.step(ToolCall("echo", {"text": "x"}))

    assert asyncio.run(main()).observation.text == "x"
    assert lab.becomes(0)


def test_sixty_four_interleaved_sessions_keep_apart(lab):
    async def main():
        async def one(number):
            async with ADAPTER.connect(None, lab.endpoint) as session:
                await session.open(f"train/{number % 5}", number)
                seen = []
                for turn in range(6):
                    said = await session.step(ToolCall("echo", {"text": f"{number}.{turn}"}))
                    drawn = await session.step(ToolCall("draw"))
                    seen.append((said.observation.text, drawn.observation.text))
                    await asyncio.sleep(0)
                return seen

        return await asyncio.gather(*map(one, range(64)))

    played = asyncio.run(main())
    for number, seen in enumerate(played):
        assert [said for said, _ in seen] == [f"{number}.{turn}" for turn in range(6)]
    assert len({drawn for seen in played for _, drawn in seen}) == 64 * 6
    assert lab.becomes(0)
    assert len(lab.environment.closed) == 64


def test_a_tool_that_blocks_holds_up_its_own_session_only(lab):
    async def main():
        async with (
            ADAPTER.connect(None, lab.endpoint) as first,
            ADAPTER.connect(None, lab.endpoint) as second,
        ):
            await first.open("train/0", 0)
            await second.open("train/1", 0)
            blocked = asyncio.create_task(first.step(ToolCall("block")))
            await asyncio.to_thread(lab.environment.entered.acquire)
            said = await second.step(ToolCall("echo", {"text": "meanwhile"}))
            assert said.observation.text == "meanwhile"
            assert not blocked.done()
            lab.environment.gate.set()
            return await blocked

    assert asyncio.run(main()).observation.text == "through"


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
            with pytest.raises(SessionError, match="cannot be used any more"):
                await session.step(ToolCall("draw"))

    asyncio.run(main())
    assert lab.becomes(0)
    assert len(lab.environment.closed) == 1


def test_a_server_that_stops_frees_every_episode(environment):
    async def main():
        async with ADAPTER.serve(ADAPTER.compile(environment)) as endpoint:
            sessions = [ADAPTER.connect(None, endpoint) for _ in range(3)]
            for session in sessions:
                await (await session.__aenter__()).open("train/0", 0)
            assert endpoint.open_sessions() == 3
        assert endpoint.open_sessions() == 0
        return sessions

    sessions = asyncio.run(main())
    assert len(environment.closed) == 3
    assert len(sessions) == 3


def test_a_server_that_is_gone_is_noticed_though_the_client_would_try_for_ever(environment):
    async def main():
        serving = ADAPTER.serve(ADAPTER.compile(environment))
        endpoint = await serving.__aenter__()
        async with ADAPTER.connect(None, endpoint) as session:
            await session.open("train/0", 0)
            await serving.__aexit__(None, None, None)
            with pytest.raises(SessionError, match="no server answers"):
                await session.step(ToolCall("draw"))
            with pytest.raises(SessionError, match="cannot be used any more"):
                await session.step(ToolCall("draw"))

    asyncio.run(main())


def test_an_overdue_answer_loses_the_session_with_a_clear_word(lab):
    impatient = NeMoGymAdapter(receive_timeout=0.3)

    async def main():
        async with impatient.connect(None, lab.endpoint) as session:
            await session.open("train/0", 0)
            with pytest.raises(SessionError, match=r"did not answer within 0\.3 s"):
                await session.step(ToolCall("block"))
            with pytest.raises(SessionError, match=r"cannot be used any more: the server did not answer"):
                await session.step(ToolCall("draw"))
            lab.environment.gate.set()

    asyncio.run(main())


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


def _resident():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def _usage():
    return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
@pytest.mark.parametrize("way", ["closed", "abandoned"])
def test_two_thousand_sessions_leave_nothing_behind(make_lab, way):
    """Abandoned ones, of which nothing tells the server, are freed when their time is up."""
    environment = make_lab()
    adapter = ADAPTER if way == "closed" else NeMoGymAdapter(session_ttl=0.2)

    async def cycle(endpoint):
        context = adapter.connect(None, endpoint)
        session = await context.__aenter__()
        await session.open("train/0", 0)
        if way == "abandoned":
            # From here on nothing of this session reaches the server, as when the client's process has died.
            session._lost = "abandoned"
        await context.__aexit__(None, None, None)

    async def main():
        async with adapter.serve(adapter.compile(environment)) as endpoint:
            for _ in range(200):
                await cycle(endpoint)
            before, memory = _usage(), _resident()
            for _ in range(2000):
                await cycle(endpoint)
            if way == "abandoned":
                await asyncio.sleep(0.3)
                await cycle(endpoint)
                assert endpoint.open_sessions() == 1
            else:
                assert endpoint.open_sessions() == 0
            after = _usage()
            assert after[0] <= before[0] + 2
            assert after[1] <= before[1] + 2
            assert _resident() - memory < 8 * 1024 * 1024

    asyncio.run(main())
    assert len(environment.closed) == (2201 if way == "abandoned" else 2200)


def test_what_a_client_can_read_holds_no_secret(lab, canary):
    async def main():
        async with ADAPTER.connect(None, lab.endpoint) as session:
            await session.open("test/0", 5)
            await session.step(ToolCall("pay", {"amount": 2.0}))
            await session.step(ToolCall("finish"))
            return await session.public_state()

    shown = asyncio.run(main())
    assert shown["seeded"]["task"] == "test/0"
    assert list(shown["cookies"][0]) == ["session_id"]
    assert shown["result"]["total"] == 4.0
    assert canary not in json.dumps(shown)
