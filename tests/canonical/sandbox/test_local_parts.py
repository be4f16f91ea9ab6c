"""Parts of the local sandbox that need none: frames, the filter of system calls, kept output."""

from __future__ import annotations

import errno
import struct
import tempfile
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canonical.sandbox.local import seccomp
from canonical.sandbox.local.inside import frames
from canonical.sandbox.local.inside.processes import Output
from canonical.sandbox.local.self_test import decoy

FRAMES = st.tuples(
    st.integers(0, 2**32 - 1), st.integers(0, 255), st.lists(st.binary(max_size=50), max_size=6)
)
ALLOWED, KILLED = "allowed", "killed"
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


@given(st.lists(FRAMES, max_size=5), st.lists(st.integers(1, 40), min_size=1))
def test_frames_arrive_as_they_were_sent_however_the_stream_is_cut(
    sent: list[tuple[int, int, list[bytes]]], cuts: list[int]
) -> None:
    stream = b"".join(frames.pack(*frame) for frame in sent)
    inbox, got, at = frames.Inbox(10_000), [], 0
    while at < len(stream):
        size = cuts[at % len(cuts)]
        got += inbox.feed(stream[at : at + size])
        at += size
    assert got == sent


@given(st.binary(max_size=300))
def test_bytes_that_are_no_frames_raise_frame_error_and_nothing_else(data: bytes) -> None:
    inbox = frames.Inbox(200)
    try:
        for call, kind, fields in inbox.feed(data):
            assert frames.pack(call, kind, fields) in data
    except frames.FrameError:
        pass


def test_a_frame_that_is_too_long_is_refused_before_it_has_arrived() -> None:
    with pytest.raises(frames.FrameError, match="longer than 100"):
        frames.Inbox(100).feed((101).to_bytes(4, "big"))


@given(st.binary(max_size=30))
def test_a_field_is_a_whole_number_or_refused(field: bytes) -> None:
    try:
        assert frames.number(frames.whole(field)).lstrip(b"-") == field.lstrip(b"-0") or not field.strip(
            b"-0"
        )
    except frames.FrameError:
        assert not field.removeprefix(b"-").isdigit() or len(field) > 20


@given(st.lists(st.binary(max_size=400), max_size=12), st.integers(0, 100).map(lambda half: 2 * half))
def test_kept_output_is_head_and_tail_and_the_rest_is_counted(pieces: list[bytes], cap: int) -> None:
    output = Output(cap)
    for piece in pieces:
        output.add(piece)
    whole = b"".join(pieces)
    if len(whole) <= cap:
        assert output.kept() == whole
        assert output.dropped() == 0
    else:
        assert output.kept() == whole[: cap // 2] + (whole[-cap // 2 :] if cap else b"")
        assert output.dropped() == len(whole) - cap


def verdict(program: bytes, architecture: int, number: int, *arguments: int) -> str | int:
    """Run a filter as the kernel does, and return what becomes of a call: allowed, killed, or the number of an error."""
    words = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("<IIQ6Q", number, architecture, 0, *words)
    steps = [struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)]
    at = held = 0
    while True:
        code, if_true, if_false, value = steps[at]
        at += 1
        if code == 0x20:
            (held,) = struct.unpack_from("<I", data, value)
        elif code == 0x06:
            kind = value & 0xFFFF0000
            return ALLOWED if kind == 0x7FFF0000 else KILLED if kind == 0x80000000 else value & 0xFFFF
        else:
            holds = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
            at += if_true if holds else if_false


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_listed_call_is_refused_and_ordinary_ones_are_not(machine: str) -> None:
    program, column = seccomp.assemble(machine), ["x86_64", "aarch64"].index(machine)
    assert len(program) // 8 <= 4096
    own = ARCHITECTURES[machine]
    listed: set[int | None] = set()
    for table, error in ((seccomp._REFUSED, errno.EPERM), (seccomp._ABSENT, errno.ENOSYS)):
        for name, numbers in table.items():
            if (number := numbers[column]) is not None:
                assert verdict(program, own, number) == error, name
                listed.add(number)
    special = {
        table[machine] for table in (seccomp._CLONE, seccomp._SOCKET, seccomp._SOCKETPAIR, seccomp._IOCTL)
    }
    special.add(seccomp._PRLIMIT[machine])
    special |= {table[machine] for table in seccomp._SCHEDULING.values()}
    special |= {table[machine] for table, _ in seccomp._PRIORITIES.values()}
    for number in set(range(500)) - listed - special:
        assert verdict(program, own, number) == ALLOWED, number


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_calls_with_dangerous_arguments_are_refused(machine: str) -> None:
    program, own = seccomp.assemble(machine), ARCHITECTURES[machine]

    def judged(table: dict[str, int], *arguments: int) -> str | int:
        return verdict(program, own, table[machine], *arguments)

    # SIGCHLD, and the flags of a thread.
    assert judged(seccomp._CLONE, 17) == ALLOWED
    assert judged(seccomp._CLONE, 0x3D0F00) == ALLOWED
    # CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
    for flag in (0x80, 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert judged(seccomp._CLONE, flag | 17) == errno.EPERM
    for table in (seccomp._SOCKET, seccomp._SOCKETPAIR):
        assert judged(table, 1, 1, 0) == ALLOWED
        # AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_ALG, AF_VSOCK, and one that lies in the upper half.
        for family in (2, 10, 16, 17, 38, 40):
            assert judged(table, family, 1, 0) == errno.EPERM
    assert judged(seccomp._IOCTL, 0, 0x5401) == ALLOWED
    for request in (0x5412, 0x541C, 0x5412 | 1 << 32):
        assert judged(seccomp._IOCTL, 0, request) == errno.EPERM
    assert judged(seccomp._PRLIMIT, 0, 7) == ALLOWED
    assert judged(seccomp._PRLIMIT, 1, 7) == errno.EPERM
    for table in seccomp._SCHEDULING.values():
        assert [judged(table, pid) for pid in (0, 1, 2)] == [ALLOWED, errno.EPERM, ALLOWED]
    # One process, a group of them, all of a user.
    setpriority, ioprio_set = (table for table, _ in seccomp._PRIORITIES.values())
    assert [judged(setpriority, which, 0) for which in (0, 1, 2)] == [ALLOWED, errno.EPERM, errno.EPERM]
    assert [judged(ioprio_set, which, 0) for which in (1, 2, 3)] == [ALLOWED, errno.EPERM, errno.EPERM]
    assert [judged(setpriority, 0, who) for who in (1, 5)] == [errno.EPERM, ALLOWED]
    assert [judged(ioprio_set, 1, who) for who in (1, 5)] == [errno.EPERM, ALLOWED]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_calls_of_other_architectures_end_the_process(machine: str) -> None:
    program = seccomp.assemble(machine)
    # uname() on the one and read() on the other.
    for architecture in (0x40000003, 0xC000003E, 0xC00000B7, 0x40000028):
        expected = ALLOWED if architecture == ARCHITECTURES[machine] else KILLED
        assert verdict(program, architecture, 63) == expected
    # The 32-bit pointers of x32.
    assert verdict(program, ARCHITECTURES[machine], 0x40000000 | 59) == KILLED


def test_the_file_of_a_self_test_that_was_killed_is_gone_after_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of a process that still lives stays, and so does what is no such file."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead, alive, folder = (tmp_path / f"rosetta-self-test-{name}" for name in ("dead", "alive", "folder"))
    dead.write_text("left")
    folder.mkdir()
    with alive.open("w") as held:
        flock(held, LOCK_EX)
        with decoy() as lent:
            assert lent.read_text() == "a secret of the host"
            assert set(tmp_path.iterdir()) == {alive, folder, lent}
        assert set(tmp_path.iterdir()) == {alive, folder}
