"""The benchmark of sandboxes: what it records, what it finds left, and what its report says of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.machine import Machine, Pressure
from bench.records import BadRecord, EmptyRun, MissingHeader, Note, RunExists
from bench.sandbox_records import (
    RECORDS_FILE,
    Circumstances,
    Left,
    Rung,
    SandboxHeader,
    SandboxRun,
    SandboxRunWriter,
    Throughput,
    Timing,
    read_sandbox_run,
)
from bench.sandboxes import SANDBOX_PLANS, SandboxPlan, run_sandbox_benchmark
from canonical.sandbox.protocol import CommandFailedError, Exec
from reports.sandboxes import memory_per_sandbox, own_memory_per_sandbox, render_sandbox_run
from tests.canonical.sandbox.hosted import Hosted, HostedSandbox

TINY = SandboxPlan(
    name="tiny", warmup=1, opens=3, calls=4, live=3, tried=2, sessions=(2,), seconds=0.05, settle_s=0.0
)


def header() -> SandboxHeader:
    return SandboxHeader(
        run_id="r", started=datetime(2026, 1, 2, tzinfo=UTC), backend="b", tool="t 1", enforced=("network",), missing={},
        ordinary_user=True, machine=Machine.read(), args_passed=("bench-sandbox",), plan={"name": "tiny"},
    )  # fmt: skip


def rung(live: int, available: int | None = None, pss: int | None = None) -> Rung:
    return Rung(
        asked=live,
        live=live,
        answering=1,
        tried=1,
        open_s=0.1,
        available_bytes=available,
        pss_bytes=pss,
        ns=(5,),
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SandboxRun:
    folder = tmp_path_factory.mktemp("run")
    heard: list[str] = []
    asyncio.run(
        run_sandbox_benchmark(
            Hosted(), TINY, folder, arguments=("x",), on_progress=lambda one: heard.append(one.part)
        )
    )
    assert {"session start and end", "calls", "live sandboxes"} < set(heard)
    return read_sandbox_run(folder)


@pytest.mark.slow
def test_every_part_is_recorded_with_every_number_that_was_taken(run: SandboxRun) -> None:
    assert not run.partial
    assert {one.action: len(one.ns) for one in run.of(Timing)} == {
        "open": 3, "close": 3, "read": 4, "true": 4, "bash": 4, "python": 4,
    }  # fmt: skip
    assert [(one.asked, one.live, one.answering) for one in run.of(Rung)] == [(1, 1, 1), (2, 2, 2), (3, 3, 2)]
    (flat_out,) = run.of(Throughput)
    assert flat_out.sessions == 2
    assert len(flat_out.ns) >= 2
    assert len(run.of(Circumstances)) == 6
    (left,) = run.of(Left)
    assert (left.processes, left.mounts, left.files) == ((), (), ())


@pytest.mark.slow
def test_the_same_records_give_the_same_report(run: SandboxRun) -> None:
    first, second = render_sandbox_run(run), render_sandbox_run(read_sandbox_run(run.folder))
    assert first.files == second.files
    assert set(first.files) == {"index.html", "report.md"}
    text = first.files["report.md"].decode()
    assert "Latency of one call at a time" in text
    assert "p99: n too small (299 needed)" in "\n".join(first.summary)
    assert "nan" not in text.lower().replace("tenant", "")


class Lingering(HostedSandbox):
    """Leave the files behind."""

    async def close(self) -> None:
        self.closed = True


@pytest.mark.slow
def test_what_a_backend_leaves_behind_is_found(tmp_path: Path) -> None:
    backend = Hosted()
    backend.sandbox = Lingering
    asyncio.run(run_sandbox_benchmark(backend, TINY, tmp_path))
    (left,) = read_sandbox_run(tmp_path).of(Left)
    assert len(left.files) == len(backend.opened)
    assert any(
        line.startswith("Left afterwards") and ", 0 files" not in line
        for line in render_sandbox_run(read_sandbox_run(tmp_path)).summary
    )
    for sandbox in backend.opened:
        sandbox.closed = False
        asyncio.run(HostedSandbox.close(sandbox))


class Failing(HostedSandbox):
    """Fail every other command."""

    count = 0

    async def exec(self, argv: Sequence[str], **options: Any) -> Exec:
        Failing.count += 1
        if Failing.count % 2:
            raise CommandFailedError("not this time")
        return await super().exec(argv, **options)


@pytest.mark.slow
def test_calls_that_fail_are_counted_and_have_no_time(tmp_path: Path) -> None:
    backend = Hosted()
    backend.sandbox = Failing
    with pytest.raises(CommandFailedError):
        asyncio.run(run_sandbox_benchmark(backend, TINY, tmp_path))
    run = read_sandbox_run(tmp_path)
    assert run.partial
    commands = [one for one in run.of(Timing) if one.action in {"true", "bash", "python"}]
    assert all(len(one.ns) + one.failures == 4 for one in commands)
    assert sum(one.failures for one in commands) == 6
    assert {one.first_error for one in commands if one.failures} == {"CommandFailedError: not this time"}
    assert "**Partial run.**" in render_sandbox_run(run).files["report.md"].decode()


@given(st.integers(1, 1 << 30), st.integers(1 << 33, 1 << 40))
def test_memory_of_one_sandbox_is_the_slope_of_what_is_available(each: int, free: int) -> None:
    rungs = [rung(live, available=max(0, free - each * live), pss=each * live) for live in (1, 2, 4, 8)]
    assert memory_per_sandbox(rungs) == pytest.approx(each, rel=1e-3)
    assert own_memory_per_sandbox(rungs) == each


def test_memory_is_not_guessed() -> None:
    assert memory_per_sandbox([rung(1, available=5), rung(2, available=4)]) is None
    assert memory_per_sandbox([rung(1), rung(2), rung(4)]) is None
    assert own_memory_per_sandbox([rung(1)]) is None


def test_a_run_is_read_strictly_and_never_overwritten(tmp_path: Path) -> None:
    with pytest.raises(EmptyRun):
        read_sandbox_run(tmp_path)
    with SandboxRunWriter(tmp_path, header()) as writer:
        writer.write(Note(text="something"))
    assert [note.text for note in read_sandbox_run(tmp_path).of(Note)] == ["something"]
    with pytest.raises(RunExists):
        SandboxRunWriter(tmp_path, header())
    file = tmp_path / RECORDS_FILE
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-1]) + b'{"kind": "no')
    assert read_sandbox_run(tmp_path).partial
    for damaged, error in (
        (lines[1:], MissingHeader),
        ([lines[0], lines[0]], BadRecord),
        ([*lines, lines[1]], BadRecord),
        ([lines[0].replace(b'"schema":1', b'"schema":2')], BadRecord),
        ([lines[0], b'{"kind":"timing"}\n'], BadRecord),
    ):
        file.write_bytes(b"".join(damaged))
        with pytest.raises(error):
            read_sandbox_run(tmp_path)


def test_what_others_did_to_the_machine_is_said_first(tmp_path: Path) -> None:
    before = Pressure(at_ns=0, busy_s=0.0, steal_s=0.0, cpus=2, load_1m=6.0)
    after = before.model_copy(update={"at_ns": 10**10, "busy_s": 19.0})
    with SandboxRunWriter(tmp_path, header()) as writer:
        writer.write(Circumstances(part="calls", before=before, after=after, own_cpu_s=1.0))
    text = render_sandbox_run(read_sandbox_run(tmp_path)).files["report.md"].decode()
    assert "**The machine was not quiet.**" in text
    assert "Other processes used 90% of the machine's CPU time" in text


def test_the_quick_plan_has_an_interval_for_the_99th_percentile_and_512_live() -> None:
    quick = SANDBOX_PLANS["quick"]
    assert min(quick.opens, quick.calls) >= 299
    assert quick.live == 512
    assert quick.sessions == (1, 8, 64)
    assert os.sep not in quick.name
