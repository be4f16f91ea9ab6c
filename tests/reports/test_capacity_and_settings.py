"""The pages of the planner's test, of server settings and of live episodes say what their records say, and no more."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from bench.machine import Pressure
from bench.planner import CHECK_TURNS, cost_of
from bench.records import (
    Cell,
    End,
    Live,
    Prediction,
    Record,
    Rollouts,
    Run,
    RunWriter,
    ServerReading,
    SettingRatio,
    read_run,
)
from reports.capacity import render_capacity
from reports.live import live, live_line
from reports.measurements import Measurements
from reports.render import MARKDOWN, render_run
from reports.settings import render_settings
from tests.reports.conftest import header

SECOND = 1_000_000_000
STEP_S, SESSION_S = 0.0005, 0.002


def write(folder: Path, *records: Record) -> Run:
    with RunWriter(folder, header()) as writer:
        for record in records:
            writer.write(record)
    return read_run(folder)


def held(sessions: int, turns: int, number: int) -> tuple[Cell, End]:
    cell = f"held-{sessions:05d}-{number:02d}"
    cpu_ns = round(sessions * (SESSION_S + turns * STEP_S) * SECOND)
    start = ServerReading(rss_bytes=2**20, fds=10, threads=1, open_sessions=0, cpu_ns=5 * SECOND)
    peak = ServerReading(
        rss_bytes=2**20 + sessions * 1024, fds=10 + sessions, threads=1, open_sessions=sessions
    )
    after = start.model_copy(update={"cpu_ns": 5 * SECOND + cpu_ns})
    return (
        Cell(
            id=cell, adapter="imaginary", subject="compiled", workload={"turns": turns, "tool_ns": SECOND},
            sessions=sessions, repetition=number, engine="locust", server={}, order=number,
        ),
        End(
            cell=cell, status="ok", succeeded=sessions, opened=sessions, peak_open=sessions,
            pressure_before=Pressure(at_ns=0), pressure_after=Pressure(at_ns=3 * SECOND),
            server_before=start, server_peak=peak, server_after=after,
        ),
    )  # fmt: skip


def planned(folder: Path, *predictions: tuple[float, float]) -> Run:
    shapes = [(50, 2), (200, 2), (50, 5), (200, 5), (400, CHECK_TURNS)]
    records: list[Record] = [record for number, shape in enumerate(shapes) for record in held(*shape, number)]
    records += [
        Prediction(
            cell="held-00400-04",
            sessions=400,
            quantity="server_cpu",
            unit="s",
            predicted=predicted,
            measured=measured,
        )
        for predicted, measured in predictions
    ]
    return write(folder, *records)


def test_the_costs_are_those_of_the_cells_and_the_errors_those_of_the_predictions(tmp_path: Path) -> None:
    run = planned(tmp_path, (1.1, 1.0), (0.5, 1.0))
    cost = cost_of(run)
    assert (cost.session_s, cost.step_s) == (pytest.approx(SESSION_S), pytest.approx(STEP_S))
    assert (cost.memory_session, cost.fds_session, cost.threads_session) == (
        pytest.approx(1024),
        pytest.approx(1),
        0,
    )
    # The cell that the model is tried on is not among those that it is made of.
    assert (cost.cells, cost.largest) == (4, 200)
    rendered = render_capacity(run)
    text = rendered.files[MARKDOWN].decode()
    assert "+10.0%" in text
    assert "-50.0%" in text
    assert any(
        "1 of 2 predictions within 15 %; the worst is off by -50.0%" in line for line in rendered.summary
    )
    assert rendered.files == render_capacity(run).files


def test_a_ratio_whose_interval_holds_1_is_called_no_difference(tmp_path: Path) -> None:
    common: dict[str, Any] = {"setting": "gc", "against": "default", "sessions": 400, "pairs": 6}
    run = write(
        tmp_path,
        SettingRatio(value="rare", quantity="server_cpu", ratio=0.8, low=0.7, high=0.9, **common),
        SettingRatio(value="python", quantity="server_cpu", ratio=0.98, low=0.9, high=1.1, **common),
    )
    rendered = render_settings(run)
    less, same = rendered.summary[-2:]
    assert "0.8 [0.7\N{EN DASH}0.9], 6 pairs at 400 sessions" in less
    assert "no difference shown" in same
    assert "not measured" in rendered.files[MARKDOWN].decode()


def alive(sessions: int, *, wrong: int = 0, executor: str = "plain loop") -> Live:
    return Live(
        executor=executor,
        note="`step` of one after the other",
        sessions=sessions,
        batches=1,
        rounds=2,
        steps=2 * sessions,
        wrong=wrong,
        first_wrong="session 0 saw what session 1 did" if wrong else None,
        step_ns=20_000.0,
        step_cpu_ns=10_000.0 * sessions,
        open_ns=5_000.0,
        close_ns=1_000.0,
        bytes_per_session=2048.0,
        threads=1,
    )


def test_live_episodes_are_reported_by_executor_and_wrong_answers_are_shown(tmp_path: Path) -> None:
    rollouts = Rollouts(
        path="default", note="two processes", rollouts=3, concurrency=3, turns=4, succeeded=2,
        first_wrong="rollout 1 differs", wall_ns=8e9, cpu_ns=7e9, bytes_per_rollout=3.1e8, processes=2.0,
    )  # fmt: skip
    run = write(tmp_path, alive(1), alive(10, wrong=3), alive(100_000, executor="pool"), rollouts)
    files = render_run(run).files
    text = files[MARKDOWN].decode()
    rows = list(csv.DictReader(io.StringIO(files["tables/live.csv"].decode())))
    assert [(row["executor"], row["sessions"], row["wrong"]) for row in rows] == [
        ("plain loop", "1", "0"), ("plain loop", "10", "3"), ("pool", "100000", "0"),
    ]  # fmt: skip
    assert [row["path"] for row in csv.DictReader(io.StringIO(files["tables/rollouts.csv"].decode()))] == [
        "default"
    ]
    assert "## Live episodes in one process" in text
    assert "`step` of one after the other" in text
    for shown in (
        "100,000",
        "20.0 µs",
        "session 0 saw what session 1 did",
        "rollout 1 differs",
        "7.00 s",
        "of 3",
    ):
        assert shown in text
    line = live_line(Measurements(run))
    assert line is not None
    assert line.tone == "bad"
    # The plainest executor speaks for the run.
    assert (
        line.text
        == "10 episodes by plain loop: 20.0 µs per step, 50,000 steps/s, 2.00 KiB each; 3 wrong answers"
    )


def test_a_run_without_live_episodes_says_nothing_of_them(tmp_path: Path) -> None:
    measurements = Measurements(write(tmp_path))
    assert live(measurements) is None
    assert live_line(measurements) is None
