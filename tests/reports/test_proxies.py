"""The report of proxies shows every count of its records, says what was lost, and is the same for the same records."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.machine import Machine, Pressure
from bench.records import BadRecord, EmptyRun, RunExists
from bench.serving.records import (
    RECORDS_FILE,
    SCHEMA,
    Fault,
    ProxyHeader,
    ProxyRunWriter,
    ProxyTrial,
    read_proxy_run,
)
from reports.proxies import render_proxy_run

QUIET = Pressure(at_ns=1, cpu_some_avg10=0.0, load_1m=0.1)


def header() -> ProxyHeader:
    return ProxyHeader(
        run_id="20260101-000000-proxies", started=datetime(2026, 1, 1, tzinfo=UTC), stack="openenv-0.10.0",
        environment="wordle", replicas=2, turns=2, tool_s=1.0,
        machine=Machine.read(), args_passed=("bench-proxy",), schema=SCHEMA,
    )  # fmt: skip


def trial(variant: str, held: int) -> ProxyTrial:
    return ProxyTrial(
        proxy="envoy", title="Envoy", version="1.2.3", variant=variant, plan={"port": 1}, processes=1, sessions=2_000,
        opened=held, peak_open=held, peak_on_replicas={"r1": held}, succeeded=held,
        errors={"the handshake took longer than 15 s": 2_000 - held} if held < 2_000 else {},
        connect_ns=(5_000_000,) * 400, step_ns=(1_000_000_000,) * 400, step_failures=0,
        counters={"pending_overflow": 0}, most={"pending_overflow": 2_000 - held}, proxy_cpu_s=0.5,
        proxy_rss_idle_bytes=1_000_000, proxy_rss_bytes=1_000_000 + held * 4096,
        pressure_before=QUIET, pressure_after=QUIET, own_cpu_s=0.5,
    )  # fmt: skip


def fault(**changed: object) -> Fault:
    known = {
        "stack": "openenv-0.10.0", "proxy": "envoy", "title": "Envoy", "name": "kill -9 of a replica", "sessions": 60, "opened": 60, "succeeded": 30,
        "lost": {"the connection was closed": 30}, "unaccounted": 0, "held_after": {}, "settled_s": 0.2,
        "fresh_succeeded": 32, "fresh_sessions": 32, "events": ("r1 died with 30 sessions",), "ended_by": "all ended",
        "pressure_before": QUIET, "pressure_after": QUIET, "own_cpu_s": 0.5,
    }  # fmt: skip
    return Fault(**{**known, **changed})


def written(folder: Path, *records: ProxyTrial | Fault) -> str:
    with ProxyRunWriter(folder, header()) as writer:
        for record in records:
            writer.write(record)
    rendered = render_proxy_run(read_proxy_run(folder))
    assert rendered.files == render_proxy_run(read_proxy_run(folder)).files
    return rendered.files["report.md"].decode()


def test_default_and_derived_limits_stand_beside_each_other(tmp_path: Path) -> None:
    text = written(tmp_path, trial("default", 1_024), trial("derived", 2_000))
    assert "1,024 of 2,000 sessions held" in text
    assert "2,000 of 2,000 sessions held" in text
    assert "pending overflow 976" in text
    assert "976 times" in text
    assert "4.00 KiB" in text


def test_sessions_that_nobody_told_and_slots_that_nobody_freed_stand_out(tmp_path: Path) -> None:
    text = written(tmp_path, fault(lost={}, unaccounted=30, held_after={"r2": 7}))
    assert "30 without a word, 7 still held" in text


def test_every_lost_session_is_counted_by_what_it_was_told(tmp_path: Path) -> None:
    text = written(tmp_path, fault())
    assert "30 of 60 sessions lost and told why, 0 without a word" in text
    assert "30 times `the connection was closed`" in text
    assert "r1 died with 30 sessions" in text


def test_a_run_that_was_cut_is_partial(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), ProxyRunWriter(tmp_path, header()):
        raise KeyboardInterrupt
    run = read_proxy_run(tmp_path)
    assert run.partial
    assert "Partial run" in render_proxy_run(run).files["report.md"].decode()


def test_a_folder_is_written_once_and_read_strictly(tmp_path: Path) -> None:
    written(tmp_path, fault())
    with pytest.raises(RunExists):
        ProxyRunWriter(tmp_path, header())
    with pytest.raises(EmptyRun):
        read_proxy_run(tmp_path / "nothing")
    (tmp_path / RECORDS_FILE).write_text('{"kind": "fault"}\n')
    with pytest.raises(BadRecord):
        read_proxy_run(tmp_path)
