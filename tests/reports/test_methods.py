"""What a report says of bursts, open arrivals, the executor and the cross-check: each under its own name, none as a ceiling."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.ceiling import Trial, evaluate
from bench.records import (
    Burst,
    Ceiling,
    Cell,
    CrossCheck,
    End,
    Probe,
    Run,
    RunWriter,
    ServerReading,
    read_run,
    samples_table,
)
from bench.samples import Phase, SampleColumns
from bench.stats import population
from reports.render import MARKDOWN, render_run, summarise
from tests.reports.conftest import HELD, SECOND, SERVER, header

MS = 1_000_000
OPEN = {**HELD, "think_ns": 100 * MS, "arrival": "open:20:constant"}
LATE_NS = 2 * SECOND


def cell(name: str, workload: dict[str, object], sessions: int, engine: str = "locust") -> Cell:
    return Cell(
        id=name, adapter="imaginary", subject="compiled", workload=workload, sessions=sessions, repetition=0,
        engine=engine, server=SERVER, order=0,
    )  # fmt: skip


def arriving() -> SampleColumns:
    """100 sessions of five steps; every service time is the same, and the last steps of all come two seconds late."""
    columns = SampleColumns()
    for session in range(100):
        arrived = session * SECOND // 20
        columns.append(session, 0, Phase.CONNECT, False, arrived, arrived, 2 * MS)
        columns.append(session, 1, Phase.RESET, False, arrived + 2 * MS, arrived + 2 * MS, MS)
        for turn in range(5):
            meant = arrived + 100 * MS + turn * 1_100 * MS
            sent = meant + (LATE_NS if turn == 4 else 0)
            columns.append(session, 2 + turn, Phase.STEP, False, meant, sent, SECOND)
        columns.append(session, 7, Phase.CLOSE, False, sent + SECOND, sent + SECOND, MS)
    return columns


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("open") / "run"
    with RunWriter(folder, header()) as writer:
        writer.write(cell("open-00100-00", OPEN, 100))
        writer.write_samples("open-00100-00", arriving())
        table = samples_table(arriving())
        writer.write(
            # 7.5 s in the system, 20 sessions per second, over 5 s of arrivals and the last one's stay.
            End(
                cell="open-00100-00",
                status="ok",
                opened=100,
                succeeded=96,
                peak_open=70,
                mean_open=60.2,
                server_before=ServerReading(rss_bytes=1024 * 1024),
                server_peak=ServerReading(rss_bytes=8 * 1024 * 1024),
            )
        )
        writer.write(
            evaluate(
                Trial(
                    cell="open-00100-00",
                    sessions=100,
                    succeeded=100,
                    peak_open=100,
                    is_held=False,
                    wait_ns=SECOND,
                    connect=population(table, Phase.CONNECT, response=True),
                    reset=population(table, Phase.RESET, response=True),
                    step=population(table, Phase.STEP, response=True),
                    generator=None,
                )
            )
        )
    return read_run(folder)


def test_open_arrivals_show_service_and_response_time_and_name_them(opened: Run) -> None:
    text = render_run(opened).files[MARKDOWN].decode()
    section = text.partition("## Open arrivals")[2].partition("\n## ")[0]
    rows = {line.split("|")[1].strip(): line for line in section.splitlines() if line.startswith("|")}
    assert "1.00 s" in rows["step"]
    assert "3.00 s" not in rows["step"]
    assert "3.00 s" in rows["step, response"]
    assert "open loop at 20 arrivals/s, equally spaced" in section
    assert "| `open-00100-00` | **failed** |" in section
    assert "| 60.2 | 60.2 | agrees |" in section
    assert not re.search(r"\bheld open\b|ceiling", section, re.IGNORECASE)


def test_who_arrived_who_was_served_and_who_was_there_together_are_three_numbers(opened: Run) -> None:
    text = render_run(opened).files[MARKDOWN].decode()
    section = text.partition("## Open arrivals")[2].partition("\n## ")[0]
    # 100 came within 4.95 s; the last one ended 12.4 s after the first had come.
    row = next(line for line in section.splitlines() if line.startswith("| `open-00100-00` | 100 |"))
    assert [entry.strip("* ") for entry in row.split("|")[2:-1]] == ["100", "4.95 s", "96", "4", "70", "7.70"]
    server = text.partition("server's own side")[2]
    # 7 MiB more, for 70 sessions that were there at once.
    assert re.search(r"\| 100 \| 70 \| 1 \| 8\.00 MiB \| 102 KiB \|", server)
    (line,) = [line for line in summarise(opened) if line.startswith("Server")]
    assert "102 KiB per session" in line
    assert "at 70 sessions" in line


def test_open_arrivals_are_no_rung_of_a_ladder_and_lead_the_summary(opened: Run) -> None:
    text = render_run(opened).files[MARKDOWN].decode()
    assert "No cell with more than one session came to its end" in text
    (line,) = [line for line in summarise(opened) if line.startswith("Open arrivals")]
    assert "100 sessions arrived, 96 served without a fault" in line
    assert "response p99 3.00 s" in line
    assert "service p99 1.00 s" in line
    assert line.endswith("; failed: p99 of step above its limit")
    assert len(summarise(opened)) == 10


def burst(sessions: int, share: float, **numbers: float) -> Burst:
    return Burst(
        method="openenv-scaling",
        sessions=sessions,
        repetitions=3,
        mean_success=share,
        passed=share >= 0.95,
        wall_s=numbers.get("wall_s", 4.0),
        peak_open=int(numbers.get("peak_open", sessions)),
        server_open=int(numbers.get("server_open", 300)),
        mean_open=numbers.get("mean_open", 140.0),
        executing=sessions / numbers.get("wall_s", 4.0),
        tool_ns=SECOND,
    )


@pytest.fixture(scope="module")
def bursting(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("burst") / "run"
    with RunWriter(folder, header()) as writer:
        writer.write(
            Probe(tool_kind="sync", tool_ns=SECOND, points=((1, 1), (2, 2), (4, 4), (8, 6)), width=6, most=8)
        )
        writer.write(
            CrossCheck(
                sessions=32,
                phase=Phase.STEP,
                client_ns=1_003 * MS,
                client_low_ns=1_002 * MS,
                client_high_ns=1_004 * MS,
                client_n=96,
                locust_ns=1_002 * MS,
                locust_low_ns=1_001 * MS,
                locust_high_ns=1_003 * MS,
                locust_n=96,
                agrees=True,
                tolerance=0.05,
            )
        )
        for one in (burst(128, 1.0), burst(512, 0.97), burst(2_048, 0.61)):
            writer.write(one)
        writer.write(
            Ceiling(
                adapter="imaginary",
                subject="compiled",
                workload=HELD,
                criterion="slo",
                lower=256,
                upper=288,
                stopped_by="step_p99",
                censored=False,
                confirmed=True,
                trials=9,
                configured_caps={},
            )
        )
    return read_run(folder)


def test_the_burst_is_named_by_its_method_and_never_called_a_ceiling(bursting: Run) -> None:
    text = render_run(bursting).files[MARKDOWN].decode()
    section = text.partition("## The published method beside ours")[2].partition("\n## ")[0]
    assert "openenv-scaling" in section
    assert "ceiling" not in section.lower()
    for number in ("512", "256", "140", "300", "97"):
        assert number in section
    (line,) = [line for line in summarise(bursting) if line.startswith("Burst method")]
    assert (
        "a burst of 512 passed (2,048 failed), of which 140 on average and 300 at most open together" in line
    )


def test_the_executor_and_the_cross_check_stand_beside_the_ceiling(bursting: Run) -> None:
    text = render_run(bursting).files[MARKDOWN].decode()
    section = text.partition("## Concurrency ceiling")[2].partition("\n## ")[0]
    assert "6: of 8 steps of a tool that blocks its thread for 1.00 s" in section
    assert "both agree at 32 sessions: median of step 1.00 s by locust (n 96)" in section


@pytest.mark.slow
def test_a_run_without_them_says_nothing_of_them(whole_run: Run) -> None:
    text = render_run(whole_run).files[MARKDOWN].decode()
    for words in ("Open arrivals", "published method beside", "Width of the executor", "Cross-check of"):
        assert words not in text


def test_records_of_the_methods_read_back_as_they_were_written(bursting: Run, tmp_path: Path) -> None:
    with RunWriter(tmp_path / "again", header()) as writer:
        for record in bursting.records:
            writer.write(record)
    assert read_run(tmp_path / "again").records == bursting.records
