"""Latencies over releases as a report: a change is what its interval shows, and everything that is missing says why."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.machine import Machine, Pressure
from bench.samples import Phase
from bench.stats import ratio_texts
from bench.versions.cells import Cell, Outcome
from bench.versions.latencies import (
    LATENCY_FILE,
    Latencies,
    LatencyError,
    PhaseLatency,
    RatioToDefault,
    ReleaseLatency,
)
from bench.versions.matrix import Matrix
from reports.document import Report
from reports.page import markdown
from reports.release_latency import FIGURE, latency_banners, latency_section, latency_summary, latency_text
from reports.versions import render_matrix

WHEN = datetime(2026, 11, 30, 4, tzinfo=UTC)


def phase(which: Phase, median: float, ratio: tuple[float, float, float] | None = None) -> PhaseLatency:
    found = None
    if ratio is not None:
        value, low, high = ratio
        found = RatioToDefault(value=value, low=low, high=high, pairs=24)
    return PhaseLatency(
        phase=which, median_ns=median, low_ns=0.9 * median, high_ns=1.1 * median, n=720, ratio=found
    )


def release(
    version: str, *phases: PhaseLatency, package: str = "openenv", reason: str = ""
) -> ReleaseLatency:
    return ReleaseLatency(
        framework="openenv", title="OpenEnv", stack=f"{package}-{version}", package=package, version=version,
        python="3.11", is_default=version == "0.10.0", phases=phases, reason=reason,
    )  # fmt: skip


def latencies(*, busy: bool = False) -> Latencies:
    quiet = Pressure(at_ns=0, busy_s=10.0, steal_s=0.0, cpus=2, load_1m=8.0 if busy else 0.2)
    after = quiet.model_copy(update={"at_ns": 10_000_000_000, "busy_s": 22.0})
    return Latencies(
        environment="wordle", rounds=24, sessions=6, turns=5, seed=0, started=WHEN, seconds=212.0, machine=Machine.read(),
        before=quiet, after=after, own_cpu_s=12.0, commit="c" * 40, dirty=False,
        releases=(
            release("0.8.0", phase(Phase.STEP, 8e5, (1.2, 1.1, 1.3)), phase(Phase.CONNECT, 2e6, (1.1, 0.9, 1.3))),
            release("0.9.0", reason="it needs Python 3.99, which is not here"),
            release("0.10.0", phase(Phase.STEP, 7e5), phase(Phase.CONNECT, 2e6)),
            release("0.3.0", phase(Phase.STEP, 5e5, (0.7, 0.6, 0.8)), package="openenv-core"),
        ),
    )  # fmt: skip


@given(st.floats(0.1, 10), st.floats(1, 3), st.floats(1, 3))
def test_a_ratio_is_a_change_where_its_interval_leaves_out_one_and_nowhere_else(
    value: float, below: float, above: float
) -> None:
    ratio = RatioToDefault(value=value, low=value / below, high=value * above, pairs=24)
    assert ratio.is_change is (ratio.high < 1 or ratio.low > 1)


def test_every_release_has_its_verdict_or_the_reason_why_there_is_none() -> None:
    text = latency_text(latencies()).splitlines()
    assert [line.split()[0] for line in text] == [
        "openenv-0.8.0",
        "openenv-0.9.0",
        "openenv-0.10.0",
        "openenv-core-0.3.0",
    ]
    assert "step 800 µs, ratio 1.2 [1.1, 1.3], slower" in text[0]
    assert "connect 2.00 ms, ratio 1.1 [0.9, 1.3], no change shown" in text[0]
    assert text[1].endswith("it needs Python 3.99, which is not here")
    assert "(default)  step 700 µs" in text[2]
    assert "faster" in text[3]
    assert "connect not measured" in text[3]
    assert latency_summary(latencies()).text == (
        "2 of 3 ratios to the default release leave out 1; the largest: step in openenv-core-0.3.0, 0.7 [0.6, 0.8]"
    )


def test_the_page_shows_the_figure_with_unit_n_interval_machine_and_commit(tmp_path: Path) -> None:
    cell = Cell(
        framework="openenv", title="OpenEnv", stack="openenv-0.10.0", package="openenv", version="0.10.0", python="3.11",
        environment="wordle", key="k", outcome=Outcome.PASSES, played=WHEN,
    )  # fmt: skip
    matrix = Matrix(
        environment="wordle", episodes=3, seed=0, written=WHEN, commit="c" * 40, dirty=False, cells=(cell,)
    )
    files = render_matrix(matrix, latencies()).files
    assert {f"figures/{FIGURE}{end}" for end in (".svg", "-dark.svg", ".png")} <= set(files)
    text = files["report.md"].decode()
    for words in (
        "logarithmic axes in µs or ms",
        "n from 720 to 720",
        "at 95 %",
        "cccccccccccc",
        "one in twenty",
        "openenv-core-0.3.0",
    ):
        assert words in text
    assert (
        'alt="Latency over releases, one picture per framework. OpenEnv: step from 500 µs to 800 µs over 3 releases, '
        in text
    )
    drawn = files[f"figures/{FIGURE}.svg"].decode()
    assert "logarithmic" in drawn
    assert "not measured" in drawn
    assert render_matrix(matrix, latencies()).files == files
    assert not [name for name in render_matrix(matrix).files if name.startswith("figures/")]


def test_a_machine_that_was_not_quiet_is_said_first() -> None:
    assert latency_banners(latencies()) == ()
    (banner,) = latency_banners(latencies(busy=True))
    assert "load average was 8.0" in banner.points[0]
    assert latency_section(latencies()).anchor == "latency"


def test_latencies_are_read_as_they_were_written_and_a_broken_file_says_where(tmp_path: Path) -> None:
    path = tmp_path / LATENCY_FILE
    path.write_text(latencies().to_text(), encoding="utf-8")
    assert Latencies.read(path) == latencies()
    path.write_text('{"releases": []}', encoding="utf-8")
    with pytest.raises(LatencyError, match=r"latency\.json: environment: Field required"):
        Latencies.read(path)
    with pytest.raises(LatencyError, match="No such file"):
        Latencies.read(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        ((0.924, 0.855, 0.99968), ("0.924", "0.855", "0.9997")),
        ((1.05, 1.0000004, 1.1), ("1.05", "1.0000004", "1.1")),
        ((0.97, 0.95, 0.98), ("0.97", "0.95", "0.98")),
        # Where the interval holds 1 nothing is decided by it.
        ((0.99968, 0.9, 1.0004), ("1", "0.9", "1")),
    ],
)
def test_no_end_of_an_interval_that_leaves_out_1_is_written_as_1(
    ends: tuple[float, float, float], told: tuple[str, str, str]
) -> None:
    assert ratio_texts(*ends) == told
    found = latencies().model_copy(update={"releases": (release("0.8.0", phase(Phase.STEP, 8e5, ends)),)})
    assert f"ratio {told[0]} [{told[1]}, {told[2]}]" in latency_text(found)
    assert f"{told[0]} ({told[1]} to {told[2]})" in markdown(
        Report("r", "", (), (), (latency_section(found),))
    )


@given(st.lists(st.floats(1e-3, 1e3) | st.floats(0.99, 1.01), min_size=3, max_size=3))
def test_a_written_interval_leaves_out_1_exactly_when_the_measured_one_does(
    numbers: list[float],
) -> None:
    low, value, high = sorted(numbers)
    _, lower, upper = map(float, ratio_texts(value, low, high))
    assert (lower <= 1 <= upper) == (low <= 1 <= high)
