"""Endurance tells what holds out from what mixes sessions, leaks, or tells a secret, and says where."""

from __future__ import annotations

import asyncio
import base64
import html
import json
import random
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.canary.environment import Canary
from bench.endurance import Subject, interleaved, run_endurance
from bench.endurance_records import Endurance
from bench.relay import start_relay
from canonical.catalogue import load_environment
from canonical.episode import Episode
from canonical.spelling import find_secret
from canonical.tool import ToolCall
from reports.endurance import write_endurance

SECRET = str(Canary().tasks().get("test/07").secret["song"])
WRITTEN = [
    lambda text: text.encode(),
    lambda text: text.encode("utf-16-le"),
    lambda text: text[::-1].encode(),
    lambda text: text.upper().encode(),
    lambda text: json.dumps({"a": [text]}).encode(),
    lambda text: json.dumps({"a": [text]}, ensure_ascii=False).encode(),
    lambda text: repr([text]).encode(),
    lambda text: html.escape(text).encode(),
    lambda text: quote(text).encode(),
    lambda text: text.encode().hex().upper().encode(),
    lambda text: base64.b64encode(text.encode()),
    lambda text: base64.urlsafe_b64encode(text.encode()),
    lambda text: base64.b64encode(json.dumps(text).encode()),
]


@settings(max_examples=50)
@given(before=st.binary(max_size=9), after=st.binary(max_size=9), write=st.sampled_from(WRITTEN))
def test_a_secret_is_found_however_it_is_written_and_whatever_stands_beside_it(before, after, write):
    assert find_secret(SECRET, [b"nothing here", before + write(SECRET) + after])


@settings(max_examples=25)
@given(before=st.text(max_size=9), after=st.text(max_size=9))
def test_a_secret_is_found_in_base_64_wherever_in_the_encoded_text_it_begins(before, after):
    whole = f"{before}{SECRET}{after}".encode()
    assert find_secret(SECRET, [base64.b64encode(whole)])
    assert find_secret(SECRET, [base64.urlsafe_b64encode(whole)])


@settings(max_examples=25)
@given(text=st.text(), number=st.integers(0, 11))
def test_no_other_text_and_no_other_secret_is_taken_for_it(text, number):
    tasks = [task for task in Canary().tasks() if task.id != "test/07"]
    assert (
        find_secret(SECRET, [text.encode("utf-8", "surrogatepass"), str(tasks[number].secret).encode()])
        is None
    )


def test_the_canary_tells_its_secret_in_the_end_and_nowhere_before():
    episode = Episode.open(Canary(), "test/07")
    calls = (ToolCall("disturb", {"how": "gently"}), ToolCall("disturb", {"how": "loudly"}), "text")
    said = [str(episode.prompt), *(str(episode.step(call).to_json()) for call in calls)]
    assert find_secret(SECRET, [text.encode() for text in said]) is None
    last = episode.step(ToolCall("listen", {}))
    assert last.cause is not None
    assert find_secret(SECRET, [json.dumps(last.to_json()).encode()])


def test_a_relay_keeps_both_sides_spoils_offers_to_compress_and_cuts_without_a_word():
    lost = []

    async def serve(reader, writer):
        try:
            while line := await reader.readline():
                writer.write(b"answer to " + line)
        except ConnectionError:
            pass
        lost.append(True)
        writer.close()

    async def main():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with start_relay(f"http://127.0.0.1:{port}", is_recording=True) as relay:
            place = relay.url.rpartition(":")[2]
            reader, writer = await asyncio.open_connection("127.0.0.1", int(place))
            writer.write(b"GET /\r\naccept-encoding: gzip\r\n")
            assert await reader.readline() == b"answer to GET /\r\n"
            assert await reader.readline() == b"answer to Xccept-encoding: gzip\r\n"
            await relay.cut()
            assert await reader.read() == b""
            with pytest.raises(OSError):
                await asyncio.open_connection("127.0.0.1", int(place))
            await relay.listen()
            assert relay.url.endswith(f":{place}")
            again, writer_again = await asyncio.open_connection("127.0.0.1", int(place))
            writer_again.write(b"again\n")
            assert await again.readline() == b"answer to again\n"
            assert b"GET /\r\nXccept-encoding: gzip\r\n" in relay.said()
            assert b"answer to again\n" in relay.said()
            writer.close()
            writer_again.close()
        server.close()
        await server.wait_closed()

    asyncio.run(asyncio.wait_for(main(), 20))
    assert lost == [True, True]


def test_interleaved_sessions_have_tasks_of_their_own_and_keep_the_order_of_each():
    wordle = load_environment("wordle")
    scenario = interleaved(wordle, 64, random.Random(1))
    assert len({task for task, _ in scenario.sessions.values()}) == 64
    for name in scenario.sessions:
        mine = [
            operation.kind for group in scenario.rounds for operation in group if operation.session == name
        ]
        assert mine[0] == "open"
        assert mine[-1] == "close"
        assert mine.count("step") == len(mine) - 2 >= wordle.max_turns
    assert max(map(len, scenario.rounds)) > 1
    order = [operation.session for group in scenario.rounds for operation in group]
    assert order != sorted(order)


def endure(kind: str, *, adapter: str = "tests.miniatures.line_server", served: bool = True) -> Endurance:
    subject = Subject(
        Path(sys.executable), f"{adapter}:{kind}", "server" if served else "in_process", "miniature"
    )
    return asyncio.run(run_endurance(subject, source="wordle", sessions=8, cycles=160, patience_s=0.5))


@pytest.mark.slow
def test_a_framework_that_holds_out_passes_and_its_table_says_so():
    for result in (
        endure("LineServer"),
        endure("Honest", adapter="tests.miniatures.liars", served=False),
    ):
        assert result.passed, result.findings
        assert result.isolation.steps > 64
        assert result.secrecy.told == 4
        assert json.loads(json.dumps(result.to_json()))["passed"] is True
        table = write_endurance([result.to_json()])
        assert "miniature: passed" in table
        given_up = sum(result.given_up.values())
        assert f"{given_up:,} of them opened and given up (80 closed, 80 dropped" in table
        assert "nothing is said of secrets of wordle 1" in table
    assert {one.way for one in result.cycles} == {"closed", "dropped"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("SessionsMixed", ["differs at step"]),
        ("DroppedSessionsStay", ["80 sessions dropped: 160 sessions are still open", "8 sessions killed: "]),
        (
            "DescriptorsStay",
            ["80 sessions closed: 80 more descriptors", "80 sessions dropped: 80 more descriptors"],
        ),
        ("MemoryStays", ["80 sessions closed: memory grew by", "80 sessions dropped: memory grew by"]),
        ("SecretInHeader", ["the secret of task train/00 is there, in base 64"]),
        ("SecretInLog", ["the secret of task train/01 is there, as it is"]),
    ],
)
def test_a_framework_that_is_wrong_in_one_way_is_caught_with_words_for_it(kind, words):
    result = endure(kind)
    assert not result.passed
    for word in words:
        assert any(word in finding for finding in result.findings), result.findings
    assert "FOUND" in write_endurance([result.to_json()])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("SessionsMixedUp", "differs at step"),
        ("CloseLeaksASession", "sessions are still open"),
        ("AnswerInState", "the secret of task"),
    ],
)
def test_a_framework_in_process_that_is_wrong_in_one_way_is_caught(kind, word):
    result = endure(kind, adapter="tests.miniatures.liars", served=False)
    assert any(word in finding for finding in result.findings), result.findings
