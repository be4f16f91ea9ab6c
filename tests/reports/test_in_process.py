"""The report of a framework that runs environments in process speaks of no server that is not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.records import Run, Support
from reports import overview
from reports.measurements import Measurements
from reports.render import MARKDOWN, PAGE, render_run
from reports.server import memory_per_session

MakeRun = Callable[..., Run]

WHY = "environments run in the process of the trainer"


def _texts(make_run: MakeRun, **story: Any) -> tuple[str, str]:
    run = make_run(ladder=(), ceiling=False, pairs=False, single_sessions=40, **story)
    files = render_run(run).files
    return files[MARKDOWN].decode(), files[PAGE].decode()


def test_a_report_says_why_no_ceiling_was_searched_and_explains_none(make_run: MakeRun) -> None:
    """Nobody takes a missing server for a part of the run that was left out."""
    features = {"remote": Support(level="absent", note=WHY)}
    markdown, page = _texts(make_run, header={"features": features})
    for text in (markdown, page):
        assert f"There is no server that could hold sessions: {WHY}." in text
        assert "no server to search" in text
        assert "the numbers of sessions below" not in text
        assert "No verdicts" not in text
        assert "The server" not in text
        assert "Latency over the number of sessions" not in text
        assert "Throughput and the load generator" not in text
    assert "## The process of the episodes" in markdown


def test_a_framework_with_a_server_keeps_its_words(make_run: MakeRun) -> None:
    """A run that looked for no ceiling, though there was a server, still says so."""
    markdown, _ = _texts(make_run, header={"features": {"remote": Support(level="native")}})
    assert "This run looked for no ceiling" in markdown
    assert "| not searched |" in markdown.replace("**", "")
    assert "## The server's own side" in markdown
    assert "## Latency over the number of sessions" in markdown
    assert "## Throughput and the load generator" in markdown


def test_the_summary_says_the_memory_that_the_table_has(make_run: MakeRun) -> None:
    """What was read of a process with single sessions is not called unmeasured above its own table."""
    features = {"remote": Support(level="absent", note=WHY)}
    run = make_run(ladder=(), ceiling=False, pairs=False, single_sessions=40, header={"features": features})
    measurements = Measurements(run)
    told = [
        memory_per_session(point) for point in measurements.points if point.condition.subject == "compiled"
    ]
    (line,) = [line for line in overview.summary(measurements) if line.label == "Server"]
    assert any(value is not None for value in told)
    assert "not measured" not in line.text
    assert "per session" in line.text
