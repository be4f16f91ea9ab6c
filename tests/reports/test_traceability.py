from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.records import Ceiling, End, Run, Verdict
from reports import notation
from reports.render import RenderedReport, render_run, summarise

MakeRun = Callable[..., Run]
ReadPage = Callable[[Run], Any]


def latencies(run: Run, cell: str, phase: str, *, warmup: bool = False) -> list[float]:
    """Read latencies straight from the file, failed operations as infinite ones, ascending."""
    rows = run.samples(cell).to_pylist()
    chosen = [row for row in rows if row["phase"] == phase and row["warmup"] == warmup]
    return sorted(row["ns"] if row["status"] == "ok" else math.inf for row in chosen)


def order_statistic(values: list[float], q: float) -> float:
    """The smallest observed value that at least the share q of the operations does not exceed."""
    return next(value for rank, value in enumerate(values, start=1) if rank / len(values) >= q - 1e-12)


def read_table(report: RenderedReport, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(report.files[f"tables/{name}"].decode())))


@pytest.mark.parametrize("phase", ["connect", "reset", "step", "close"])
def test_the_latencies_on_the_page_are_order_statistics_of_the_samples(
    whole_run: Run, whole_page: Any, phase: str
) -> None:
    """Every quantile of the table at one session can be found among the raw samples."""
    values = latencies(whole_run, "latency-1", phase)
    row = dict(
        zip(
            whole_page.table("Phases at one session").columns,
            whole_page.table("Phases at one session").row(phase),
            strict=True,
        )
    )
    assert row["n"][0] == f"{len(values):,}"
    assert row["Failed"][0] == "0"
    for name, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        assert row[name][0].split(" ")[1] in row[name][1]
        assert row[name][0] == notation.duration(order_statistic(values, q))


@pytest.mark.slow
def test_failed_operations_stay_in_the_population_and_are_counted(
    make_run: MakeRun, read_page: ReadPage
) -> None:
    """With three failed steps in a hundred the p99 is infinite, and the page says how many failed."""
    run = make_run(failing_share=0.03, ladder=(8,), pairs=False, ratio=None)
    values = latencies(run, "latency-1", "step")
    failures = sum(math.isinf(value) for value in values)
    assert failures > 20
    table = read_page(run).table("Phases at one session")
    row = dict(zip(table.columns, table.row("step"), strict=True))
    assert (row["n"][0], row["Failed"][0], row["p99"][0]) == (f"{len(values):,}", f"{failures}", "∞")
    assert row["p50"][0] == notation.duration(order_statistic(values, 0.5))


@pytest.mark.slow
def test_failed_operations_are_listed_with_their_text_and_count(
    make_run: MakeRun, read_page: ReadPage
) -> None:
    """The first thing to ask of a failure is what it said, and how often."""
    run = make_run(failing_share=0.03, ladder=(8,))
    failures = sum(math.isinf(value) for value in latencies(run, "latency-1", "step"))
    table = read_page(run).table("Failed operations")
    assert [text for text, _ in table.row("step")] == [
        "step",
        "timeout",
        "no answer in 60 s",
        f"{failures}",
        "1",
    ]


@pytest.mark.slow
def test_too_few_operations_give_words_instead_of_a_number(make_run: MakeRun, read_page: ReadPage) -> None:
    """Below the n that an interval needs there is no quantile, and the page says how many it would take."""
    page = read_page(make_run(single_sessions=20, ladder=(8,), pairs=False, ratio=None))
    table = page.table("Phases at one session")
    row = dict(zip(table.columns, table.row("connect"), strict=True))
    assert row["p50"][0] != "n too small"
    assert row["p95"] == ("n too small", "59 needed")
    assert row["p99"] == ("n too small", "299 needed")


def test_warmup_operations_are_in_a_table_of_their_own(whole_run: Run, whole_page: Any) -> None:
    """Warm-up is kept and shown, and is part of no other number."""
    values = latencies(whole_run, "latency-1", "step", warmup=True)
    row = dict(
        zip(
            whole_page.table("Warm-up operations at one session").columns,
            whole_page.table("Warm-up operations at one session").row("step"),
            strict=True,
        )
    )
    assert (row["n"][0], row["Largest"][0]) == ("50", notation.duration(values[-1]))


def test_the_ladder_on_the_page_is_made_of_the_samples(whole_run: Run, whole_page: Any) -> None:
    """Each row of the ladder is one number of sessions, and its p99 is found among its samples."""
    table = whole_page.table("Latency over sessions")
    for sessions, cell in (("64", "held-64-03"), ("512", "held-512-06"), ("1,024", "held-1024-07")):
        row = dict(zip(table.columns, table.row(sessions), strict=True))
        values = latencies(whole_run, cell, "step")
        shown = float(row["step p99"][0].split(" ")[0])
        assert shown == pytest.approx(order_statistic(values, 0.99) / 1e9, rel=0.005)
        assert row["n (step)"][0] == f"{len(values):,}"
    assert table.row("8")[table.columns.index("step p99")] == ("n too small", "299 needed")


def test_the_ceiling_is_a_bracket_with_its_criterion_and_what_ended_it(
    whole_run: Run, whole_page: Any
) -> None:
    """No ceiling is printed without the rule that it was found by."""
    slo, success = whole_run.of(Ceiling)
    table = whole_page.table("What the search found")
    first, second = table.rows
    assert [text for text, _ in first[:3]] == ["ceiling (SLO)", f"{slo.lower:,}", f"{slo.upper:,}"]
    assert first[1][1] == "confirmed in fresh servers, the verdicts do not tell in how many"
    assert first[3][1] == "step_p99"
    assert [text for text, _ in second[:3]] == [
        "size (success alone)",
        f"at least {success.lower:,}",
        "none seen",
    ]
    per_core = table.columns.index("Per core sessions") if "Per core sessions" in table.columns else 4
    assert first[per_core][0] == f"{slo.lower // 2:,}"


def test_a_result_is_shown_with_how_often_it_passed_again_in_fresh_servers(
    whole_run: Run, tmp_path: Path, read_page: ReadPage
) -> None:
    """A confirmation that failed first is not hidden behind the one that passed, wherever the result is told."""
    ladder = [verdict for verdict in whole_run.of(Verdict) if verdict.passed and verdict.sessions <= 512]
    last = ladder[-1]
    slow = [
        criterion.model_copy(update={"passed": "step" not in criterion.name}) for criterion in last.criteria
    ]
    broken = last.model_copy(update={"passed": False, "criteria": tuple(slow)})
    found = next(one for one in whole_run.of(Ceiling) if one.criterion == "slo").model_copy(
        update={
            "lower": 512,
            "upper": None,
            "stopped_by": "limit",
            "censored": True,
            "trials": len(ladder) + 2,
        }
    )
    plan = {"start": 8, "cap": 512, "tolerance": 0.25, "trials": 1, "confirmations": 1}
    others = tuple(record for record in whole_run.records if not isinstance(record, Verdict | Ceiling))
    run = replace(
        whole_run,
        folder=tmp_path,
        header=whole_run.header.model_copy(update={"plan": plan}),
        records=(*others, *ladder, broken, last, found),
    )
    report = render_run(run)
    words = "passed again in 1 of 2 fresh servers"
    assert [words in line for line in report.summary if line.startswith("Ceiling (SLO)")] == [True]
    assert read_page(run).table("What the search found").rows[0][1] == ("at least 512", words)
    assert f"({words})" in report.files["report.md"].decode()
    (row,) = read_table(report, "ceilings.csv")
    assert (row["confirming_passed"], row["confirming_trials"]) == ("1", "2")


def test_the_throughput_of_the_summary_is_of_a_trial_whose_generator_kept_up(whole_run: Run) -> None:
    """A rate that a saturated generator set says nothing about the system, and is not its headline."""

    def told(*, saturated_from: int) -> str:
        records = tuple(
            record.model_copy(update={"generator": record.generator.model_copy(update={"saturated": True})})
            if isinstance(record, End) and record.generator and (record.opened or 0) >= saturated_from
            else record
            for record in whole_run.records
        )
        lines = summarise(replace(whole_run, records=records))
        return next(line for line in lines if line.startswith("Throughput")).partition("  ")[2].strip()

    assert told(saturated_from=9_999) == "highest seen 853 steps/s, in one trial at 1,024 sessions"
    assert told(saturated_from=600) == (
        "highest seen 427 steps/s, in one trial at 512 sessions; 3 trials with a saturated load generator left out"
    )
    assert told(saturated_from=8) == "not told: the load generator was saturated in all of 10 trials"


def test_the_word_ceiling_is_kept_for_the_written_criterion(whole_run: Run) -> None:
    """A size by success alone is never called a ceiling."""
    lines = summarise(whole_run)
    assert [line for line in lines if "Ceiling" in line] == [
        line for line in lines if line.startswith("Ceiling (SLO)")
    ]
    (success,) = [line for line in lines if line.startswith("Size (success only)")]
    assert "eiling" not in success


def test_every_verdict_stands_with_value_limit_and_the_failing_criterion(
    whole_run: Run, whole_page: Any
) -> None:
    """Why a number of sessions failed can be read off its row."""
    table = whole_page.table("Verdicts by the written criterion")
    verdicts = whole_run.of(Verdict)
    assert len(table.rows) == len(verdicts)
    (failing,) = [verdict for verdict in verdicts if not verdict.passed]
    row = dict(zip(table.columns, table.row(f"{failing.sessions:,}"), strict=True))
    assert row["Verdict"] == ("failed", "step")
    (step,) = [criterion for criterion in failing.criteria if criterion.name == "step_p99"]
    assert step.value is not None
    assert row["step"] == (notation.duration(step.value), f"≤ {notation.duration(step.limit)}")
    assert row["held at once"][0] == f"{failing.sessions:,} sessions"


@pytest.mark.slow
def test_a_censored_ceiling_reads_as_at_least(make_run: MakeRun, read_page: ReadPage) -> None:
    """What a cap ended is no ceiling of the system."""
    page = read_page(make_run(ladder=(8, 16)))
    assert page.table("What the search found").rows[0][1][0] == "at least 16"
    assert "Concurrency ceiling: at least 16 sessions" in page.section("ceiling")


def test_the_generator_and_littles_law_are_shown_trial_by_trial(whole_page: Any) -> None:
    """A load that was not what it is said to be is visible: the law's product stands beside the count."""
    table = whole_page.table("Throughput and cross-checks")
    assert len(table.rows) == 10
    for text, _ in table.column("Agreement"):
        assert text == "agrees"
    for (law, _), (counted, left_out) in zip(
        table.column("Little's law"), table.column("Counted open"), strict=True
    ):
        lost = int(left_out.split(" ")[0]) if left_out else 0
        assert float(law.replace(",", "")) == pytest.approx(int(counted.replace(",", "")) - lost, rel=0.02)


def test_memory_per_session_is_the_growth_over_the_sessions_open(whole_page: Any) -> None:
    """The known truth of the synthetic server: 33,000 bytes per session."""
    table = next(
        t for t in whole_page.tables if t.caption.startswith("The server at its peak") and len(t.rows) > 1
    )
    assert {text for text, _ in table.column("Memory per session")} == {notation.size(33_000)}
    assert {text for text, _ in table.column("Left: sessions")} == {"0"}
    assert {text for text, _ in table.column("Left: memory")} == {"+2.00 MiB"}


def test_a_ratio_stands_with_its_interval_and_pairs_and_says_no_difference(whole_page: Any) -> None:
    """An interval that holds 1 shows no difference, and the page says so aloud."""
    table = whole_page.table("Ratios of interleaved pairs")
    step, reset = table.rows
    assert step[2] == ("0.152", f"0.147{notation.RANGE}0.158")
    assert step[3][0] == "compiled is faster than hand-written"
    assert (step[4][0], step[5][0]) == ("30", "1,800")
    assert reset[3][0] == "no difference shown"


def test_costs_carry_unit_interval_and_n(whole_page: Any) -> None:
    """What the core itself costs is measured, not claimed."""
    table = whole_page.table("What an episode costs")
    assert [text for text, _ in table.rows[0]][1:3] == ["4.31 µs", "10,000"]
    assert [text for text, _ in table.rows[1]][1:3] == ["2.84 KiB", "500"]


def test_the_summary_has_ten_lines_with_the_numbers_of_the_tables(whole_run: Run, whole_page: Any) -> None:
    """The command line prints what the page begins with."""
    lines = summarise(whole_run)
    assert len(lines) == 10
    text = "\n".join(lines)
    values = latencies(whole_run, "latency-1", "step")
    assert f"p99 {notation.duration(order_statistic(values, 0.99))}" in text
    assert f"n {len(values):,}" in text
    assert "passed: 200 episodes, 1,412 steps, 0 divergences" in text
    for line in lines:
        assert line.split("  ")[-1].strip() in whole_page.text


@pytest.mark.parametrize(
    "story",
    [
        {},
        {
            "conformance": None,
            "single_sessions": 0,
            "ladder": (),
            "pairs": False,
            "ratio": None,
            "costs": False,
        },
    ],
)
def test_the_summary_always_has_ten_lines(make_run: MakeRun, story: dict[str, Any]) -> None:
    """Nothing vanishes from the summary: what is missing is named."""
    lines = summarise(make_run(**story))
    assert len(lines) == 10
    assert all(line.strip() and "\n" not in line for line in lines)


def test_the_csv_of_phases_holds_exact_nanoseconds(whole_run: Run, whole_report: RenderedReport) -> None:
    """Who computes with the tables gets the samples' own numbers, not rounded ones."""
    rows = read_table(whole_report, "phases.csv")
    assert {(row["phase"], row["kind"]) for row in rows} == {
        (phase, kind) for phase in ("connect", "reset", "step", "close") for kind in ("service", "warmup")
    }
    for row in rows:
        values = latencies(whole_run, "latency-1", row["phase"], warmup=row["kind"] == "warmup")
        assert int(row["n"]) == len(values)
        if row["p99_state"] == "measured":
            assert float(row["p99_ns"]) == order_statistic(values, 0.99)
        else:
            assert (row["p99_ns"], row["p99_state"]) == ("", "too_few")


def test_the_raw_quantiles_cover_every_point_and_phase(whole_run: Run, whole_report: RenderedReport) -> None:
    """The distribution of everything that was measured can be redrawn from one table."""
    rows = read_table(whole_report, "quantiles.csv")
    assert {int(row["sessions"]) for row in rows} == {1, 8, 16, 32, 64, 128, 256, 512, 640, 768, 1024}
    for row in rows:
        if row["sessions"] == "256" and row["state"] == "measured":
            q = float(row["quantile"].removeprefix("p")) / 100
            assert float(row["value_ns"]) == order_statistic(
                latencies(whole_run, "held-256-05", row["phase"]), q
            )
            assert float(row["low_ns"]) <= float(row["value_ns"]) <= float(row["high_ns"] or math.inf)


def test_no_csv_field_is_nan_or_infinite(make_run: MakeRun) -> None:
    """An infinite quantile is an empty field whose state says why."""
    report = render_run(make_run(failing_share=0.03, ladder=(8, 16), pairs=False))
    for name, content in report.files.items():
        if name.endswith(".csv"):
            assert not {"nan", "inf", "-inf", "None"} & {
                field for row in csv.reader(io.StringIO(content.decode())) for field in row
            }
    (step,) = [
        row for row in read_table(report, "phases.csv") if (row["phase"], row["kind"]) == ("step", "service")
    ]
    assert (step["p99_ns"], step["p99_state"]) == ("", "failed")
    assert step["p50_state"] == "measured"


def test_the_csv_of_verdicts_and_ceilings_equals_the_records(
    whole_run: Run, whole_report: RenderedReport
) -> None:
    """Every criterion of every trial is one row, value and limit unrounded."""
    rows = read_table(whole_report, "verdicts.csv")
    expected = [
        (verdict.cell, criterion.name, criterion.value, criterion.limit)
        for verdict in whole_run.of(Verdict)
        for criterion in verdict.criteria
    ]
    shown = [(row["cell"], row["criterion"], float(row["value"]), float(row["limit"])) for row in rows]
    assert sorted(shown) == sorted(expected)  # type: ignore[type-var]
    ceilings = read_table(whole_report, "ceilings.csv")
    assert [(row["criterion"], int(row["lower"]), row["upper"]) for row in ceilings] == [
        (c.criterion, c.lower, str(c.upper or "")) for c in whole_run.of(Ceiling)
    ]


def test_provenance_names_the_commit_plan_seeds_and_every_cell(whole_run: Run, whole_page: Any) -> None:
    """Where each number comes from is written on the page itself."""
    section = whole_page.section("provenance")
    header = whole_run.header
    for fact in (
        header.commit,
        header.environment.sha256,
        header.constraints_sha256,
        "bench imaginary --plan quick",
        '"pairs": 30',
    ):
        assert fact is not None
        assert fact in section
    assert [text for text, _ in whole_page.table("Every cell").column("Cell")][:3] == [
        "latency-1",
        "pairs-compiled",
        "pairs-baseline",
    ]
    assert len(whole_page.table("Every cell").rows) == 13
