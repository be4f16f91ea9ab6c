"""What is read out of a recorded connection is what was put into it, whatever the pieces are."""

from __future__ import annotations

import asyncio
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.facts import FACTS_FILE, Probe, read_facts
from bench.features import _SHOWN
from bench.relay import start_relay
from bench.stacks import ROOT
from bench.stone.places import code_of, probe_of
from bench.stone.transport import TABLE, WHERE, read_recorded, rounded, script
from bench.stone.wire import UnreadableStreamError, count_messages, read_heads
from canonical.adapter import AdapterFacts, Feature
from canonical.stone import LoopOwner

BODIES = st.lists(st.binary(max_size=40), max_size=4)
ADAPTERS = sorted(path.parent for path in (ROOT / "adapters").glob("*/adapter.toml"))


def counted(body: bytes, first: bytes = b"POST /call HTTP/1.1") -> bytes:
    return b"%s\r\nContent-Length: %d\r\n\r\n%s" % (first, len(body), body)


def chunked(body: bytes) -> bytes:
    pieces = [body[place : place + 7] for place in range(0, len(body), 7)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%s0\r\n\r\n" % chunks


def frame(opcode: int, body: bytes, *, mask: bytes = b"") -> bytes:
    size = len(body)
    flag = 0x80 if mask else 0
    head = bytes([0x80 | opcode])
    if size < 126:
        return head + bytes([flag | size]) + mask + body
    if size < 1 << 16:
        return head + bytes([flag | 126]) + size.to_bytes(2, "big") + mask + body
    return head + bytes([flag | 127]) + size.to_bytes(8, "big") + mask + body


@given(bodies=BODIES, wraps=st.sampled_from([counted, chunked]))
def test_requests_and_answers_are_found_with_their_sizes_whatever_their_bodies(bodies, wraps):
    whole = [wraps(body) for body in bodies]
    heads, rest = read_heads(b"".join(whole))
    assert [head.size for head in heads] == [len(one) for one in whole]
    assert rest == b""


@given(
    sizes=st.lists(st.sampled_from([0, 5, 125, 126, 70_000]), max_size=4),
    kinds=st.lists(st.sampled_from([0x1, 0x2, 0x8, 0x9, 0xA]), min_size=4, max_size=4),
    is_masked=st.booleans(),
)
def test_messages_are_counted_and_pings_are_not(sizes, kinds, is_masked):
    mask = b"abcd" if is_masked else b""
    frames = b"".join(frame(kind, b"x" * size, mask=mask) for kind, size in zip(kinds, sizes, strict=False))
    assert count_messages(frames) == sum(kind in {1, 2} for kind, _ in zip(kinds, sizes, strict=False))


@pytest.mark.parametrize("stream", [b"POST / HTTP/1.1\r\nContent", b"\x81\x05hello\r\n\r\n"])
def test_what_is_no_http_is_refused(stream):
    with pytest.raises(UnreadableStreamError):
        read_heads(stream)


def test_frames_that_end_in_the_middle_are_refused():
    for cut in (1, 4):
        with pytest.raises(UnreadableStreamError):
            count_messages(frame(1, b"hello")[:cut])


def test_keepalives_and_their_answers_do_not_count():
    calls = [counted(b"one"), counted(b"", b"POST /session/ping HTTP/1.1"), counted(b"two")]
    answers = [chunked(b"first"), chunked(b"pong"), chunked(b"second")]
    recorded = read_recorded([(b"".join(calls), b"".join(answers)), (calls[1], answers[1])])
    assert (recorded.asked, recorded.answered, recorded.connections) == (2, 2, 1)
    assert recorded.bytes_asked == len(calls[0] + calls[2])
    assert recorded.bytes_answered == len(answers[0] + answers[2])


def test_a_websocket_counts_its_handshake_and_its_messages():
    up = b"GET /ws HTTP/1.1\r\nUpgrade: websocket\r\n\r\n" + frame(1, b"{}", mask=b"abcd") * 2
    down = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n" + frame(1, b"{}") + frame(9, b"")
    recorded = read_recorded([(up, down)])
    assert recorded.is_websocket
    assert (recorded.asked, recorded.answered) == (3, 2)


def test_a_relay_keeps_who_said_what_on_each_connection():
    async def echo(reader, writer):
        writer.write((await reader.readline()).upper())
        await writer.drain()
        writer.close()

    async def talk():
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, start_relay(f"http://127.0.0.1:{port}", is_recording=True) as relay:
            _, _, place = relay.url.rpartition(":")
            reader, writer = await asyncio.open_connection("127.0.0.1", int(place))
            writer.write(b"hello\n")
            await reader.read()
            writer.close()
            return relay.conversations()

    assert asyncio.run(talk()) == [(b"hello\n", b"HELLO\n")]


@given(size=st.integers(0, 10**7))
def test_bytes_are_rounded_to_two_digits(size):
    number = int(rounded(size).removeprefix("about ").replace(",", ""))
    assert abs(number - size) * 20 <= size or size < 10
    assert len(str(number).rstrip("0")) <= 2


def test_the_episode_has_three_wrong_guesses_and_the_right_one():
    task, calls = script()
    words = [call.arguments["word"] for call in calls]
    assert len(words) == len(set(words)) == 4
    assert task.startswith("train/")


@pytest.mark.parametrize("folder", ADAPTERS, ids=lambda folder: folder.name)
def test_every_owner_of_the_loop_is_spoken_of_and_the_trainer_always_can(folder):
    loops = AdapterFacts.read(folder / "adapter.toml").stone.loops
    assert set(loops) == set(LoopOwner)
    assert loops[LoopOwner.TRAINER].symbols
    assert all(bool(one.symbols) or not one.shown_by for one in loops.values())


def test_what_runs_in_process_has_nothing_on_the_wire_and_what_is_served_has():
    facts = read_facts(ROOT / "reports" / "published" / "rosetta" / FACTS_FILE)
    for subject in facts.subjects:
        kind = AdapterFacts.read(ROOT / "adapters" / subject.framework / "adapter.toml").kind
        mine = {fact.row: fact.value for fact in facts.of(TABLE) if fact.framework == subject.framework}
        assert (mine["bytes of an episode"] == "none") == (kind == "in_process")


def test_where_an_environment_runs_is_said_of_stepping_and_of_the_frameworks_own_rollouts():
    facts = read_facts(ROOT / "reports" / "published" / "rosetta" / FACTS_FILE)
    mine = {fact.framework: fact for fact in facts.of(TABLE) if fact.row == WHERE}
    assert set(mine) == {subject.framework for subject in facts.subjects}
    for name, fact in mine.items():
        kind = AdapterFacts.read(ROOT / "adapters" / name / "adapter.toml").kind
        assert fact.data["places"][0] == kind
        elsewhere = [one for one in fact.evidence if "other processes ran beside it" in one.seen]
        assert ("server" in fact.data["places"]) == (kind == "server" or bool(elsewhere))


def test_the_kind_of_an_end_is_said_to_be_the_compiled_environments_word():
    facts = read_facts(ROOT / "reports" / "published" / "rosetta" / FACTS_FILE)
    heard = [fact.value for fact in facts.of("loop") if re.search(r"(solved|budget)$", fact.value)]
    assert len(heard) >= 2 * len(facts.subjects)
    assert [value for value in heard if "what the compiled environment calls" not in value] == []


def test_what_is_installed_beside_a_trainer_is_what_a_fresh_installation_has():
    facts = read_facts(ROOT / "reports" / "published" / "rosetta" / FACTS_FILE)
    for subject in facts.subjects:
        mine = {(fact.table, fact.row): fact for fact in facts.of_framework(subject.framework)}
        assert mine["local", "distributions"].value == str(mine[TABLE, "installed beside the trainer"].data)


def test_an_installation_is_told_with_the_versions_that_it_was_held_to():
    facts = read_facts(ROOT / "reports" / "published" / "rosetta" / FACTS_FILE)
    sent = [
        probe.sent for fact in facts.of("local") for probe in fact.evidence
        if isinstance(probe, Probe) and probe.name == "install"
    ]  # fmt: skip
    assert sent
    assert [one for one in sent if not (ROOT / one.split("--constraint ")[1].split()[0]).is_file()] == []


def test_every_probe_of_the_tables_gathered_here_names_the_function_that_ran_where_it_stands():
    facts = read_facts(ROOT / "reports" / "published" / "rosetta" / FACTS_FILE)
    probes = {
        one for table in (TABLE, "loop", "bad-input", "local", "scaling") for fact in facts.of(table)
        for one in fact.evidence if isinstance(one, Probe)
    }  # fmt: skip
    assert [one for one in probes if code_of(ROOT / one.file, one.function or "").name != one.function] == []


@pytest.mark.parametrize("feature", Feature)
def test_the_probe_of_a_feature_is_the_method_that_ran(feature):
    shown = "_Probes._shown" if feature in _SHOWN else f"_Probes._{feature}"
    assert probe_of(feature).name == shown
