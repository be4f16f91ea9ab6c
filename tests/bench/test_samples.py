"""Samples as they are taken inside a stack: standard library only, lossless, safe between threads."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.samples import ERROR_TEXT_LIMIT, PHASES, ROW, STATUSES, Phase, Sample, SampleColumns, Status

never_timed = settings(deadline=None)

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
samples = st.builds(
    Sample,
    session=int32,
    seq=int32,
    phase=st.sampled_from(Phase),
    warmup=st.booleans(),
    intended_ns=int64,
    start_ns=int64,
    ns=int64,
    status=st.sampled_from(Status),
    error=st.none() | st.text(st.characters(codec="utf-8"), max_size=20),
)


def columns_of(taken):
    columns = SampleColumns()
    for sample in taken:
        columns.append(*sample)
    return columns


@never_timed
@given(st.lists(samples, max_size=30))
def test_what_is_appended_reads_back_equal(taken):
    columns = columns_of(taken)
    assert list(columns) == taken
    assert len(columns) == len(taken)
    assert len(columns.rows) == len(taken) * ROW.size


@never_timed
@given(st.lists(samples, max_size=30))
def test_a_dump_loads_equal(taken):
    file = io.BytesIO()
    columns_of(taken).dump(file)
    file.seek(0)
    assert list(SampleColumns.load(file)) == taken


@never_timed
@given(data=st.data(), taken=st.lists(samples, min_size=1, max_size=5))
def test_a_dump_cut_anywhere_is_refused(data, taken):
    file = io.BytesIO()
    columns_of(taken).dump(file)
    content = file.getvalue()
    with pytest.raises(ValueError, match="dump of samples"):
        SampleColumns.load(io.BytesIO(content[: data.draw(st.integers(0, len(content) - 1))]))


def test_a_dump_with_something_behind_it_is_refused():
    file = io.BytesIO()
    columns_of([]).dump(file)
    with pytest.raises(ValueError, match="damaged"):
        SampleColumns.load(io.BytesIO(file.getvalue() + b"\0"))


@pytest.mark.parametrize(
    "row",
    [
        (0, 0, len(PHASES), 0, 0, 0, 0, 0, -1),
        (0, 0, -1, 0, 0, 0, 0, 0, -1),
        (0, 0, 0, 2, 0, 0, 0, 0, -1),
        (0, 0, 0, 0, 0, 0, 0, len(STATUSES), -1),
        (0, 0, 0, 0, 0, 0, 0, 0, 0),
        (0, 0, 0, 0, 0, 0, 0, 0, -2),
    ],
)
def test_a_dump_with_a_code_that_stands_for_nothing_is_refused(row):
    columns = SampleColumns()
    columns.rows += ROW.pack(*row)
    file = io.BytesIO()
    columns.dump(file)
    file.seek(0)
    with pytest.raises(ValueError, match="stands for nothing"):
        SampleColumns.load(file)


def test_plain_words_serve_as_phase_and_status():
    columns = SampleColumns()
    columns.append(0, 0, "step", False, 1, 2, 3, "timeout", "after 5 s")
    assert list(columns) == [Sample(0, 0, Phase.STEP, False, 1, 2, 3, Status.TIMEOUT, "after 5 s")]


def test_unknown_words_and_numbers_that_do_not_fit_are_refused_whole():
    columns = SampleColumns()
    with pytest.raises(KeyError):
        columns.append(0, 0, "lunch", False, 1, 2, 3)
    with pytest.raises(KeyError):
        columns.append(0, 0, "step", False, 1, 2, 3, "fine")
    with pytest.raises(struct.error):
        columns.append(2**31, 0, "step", False, 1, 2, 3)
    assert len(columns) == 0


def test_error_texts_are_kept_once_cut_and_storable():
    columns = SampleColumns()
    for text in ("refused", "refused", "x" * 1_000, "\udcff"):
        columns.append(0, 0, "step", False, 1, 2, 3, "error", text)
    assert columns.errors == ("refused", "x" * ERROR_TEXT_LIMIT, "?")


def test_threads_lose_and_mix_nothing():
    columns = SampleColumns()

    def work(session):
        for seq in range(2_000):
            columns.append(session, seq, "step", False, seq, seq, session, "error", f"{session} at {seq}")

    threads = [threading.Thread(target=work, args=(session,)) for session in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert all(sample.error == f"{sample.session} at {sample.seq}" for sample in columns)
    assert sorted((sample.session, sample.seq) for sample in columns) == [
        (s, q) for s in range(8) for q in range(2_000)
    ]


def test_the_module_needs_the_standard_library_only():
    code = (
        "import sys; sys.path.insert(0, '.'); before = set(sys.modules); import bench.samples;"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before} - {'bench'};"
        "print(sorted(new - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
