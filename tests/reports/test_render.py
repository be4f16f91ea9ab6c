from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.records import BadSamples, Run, read_run, samples_path
from reports.render import MARKDOWN, PAGE, RenderedReport, ReportNotWritten, render_run, write_report

ROOT = Path(__file__).parents[2]
PROGRAM = """
import hashlib, sys
from pathlib import Path
from bench.records import read_run
from reports.render import render_run
for name, content in sorted(render_run(read_run(Path(sys.argv[1]))).files.items()):
    print(name, hashlib.sha256(content).hexdigest())
"""


def digests(report: RenderedReport) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in report.files.items()}


@pytest.mark.slow
def test_another_process_renders_the_same_bytes(
    whole_run: Run, whole_report: RenderedReport, tmp_path: Path
) -> None:
    """Same records, same report: in another process, folder, time zone, locale and order of hashes."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTHONHASHSEED": "12345",
        "TZ": "Asia/Tokyo",
        "LC_ALL": "C",
        "MPLCONFIGDIR": str(tmp_path / "matplotlib"),
    }
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(whole_run.folder)],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=environment,
        timeout=300,
    )
    assert dict(line.split(" ") for line in answer.stdout.splitlines()) == digests(whole_report)


def test_a_report_does_not_tell_where_it_was_made(whole_run: Run, whole_report: RenderedReport) -> None:
    """No path of a machine is in a file that will be published."""
    for name, content in whole_report.files.items():
        assert str(whole_run.folder).encode() not in content, name
        assert str(ROOT).encode() not in content, name


@pytest.mark.slow
def test_rendering_changes_nothing_in_the_folder_of_the_run(make_run: Callable[..., Run]) -> None:
    """Records are raw material: a report reads them."""
    run = make_run(ladder=(8,))
    before = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
    render_run(run)
    assert {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_the_report_is_stored_beside_the_records(make_run: Callable[..., Run]) -> None:
    """Page, Markdown, figures and tables stand in the folder of the run, and the run still reads."""
    run = make_run(ladder=(8, 16))
    report = render_run(run)
    page = write_report(report, run.folder)
    assert page == run.folder / PAGE
    for name, content in report.files.items():
        assert (run.folder / name).read_bytes() == content
    assert not list(run.folder.rglob("*.part"))
    assert read_run(run.folder) == run
    assert render_run(read_run(run.folder)) == report


def test_markdown_shows_every_figure_from_a_file_of_the_report(whole_report: RenderedReport) -> None:
    """A link of the Markdown file leads to a file that was rendered with it."""
    markdown = whole_report.files[MARKDOWN].decode()
    linked = set(re.findall(r'(?:src|srcset)="([^"]*)"', markdown))
    figures = {name for name in whole_report.files if name.endswith(".svg")}
    assert linked == figures
    assert {name.removesuffix(".png") for name in whole_report.files if name.endswith(".png")} == {
        name.removesuffix(".svg") for name in figures if not name.endswith("-dark.svg")
    }


def test_a_folder_that_cannot_be_written_is_named_in_one_sentence(
    whole_report: RenderedReport, tmp_path: Path
) -> None:
    """No traceback and no half-written file: the sentence says where, why and what to do."""
    in_the_way = tmp_path / "run"
    in_the_way.write_text("a file, not a folder")
    with pytest.raises(
        ReportNotWritten, match=r"cannot be written to .*run: .*render the report again"
    ) as caught:
        write_report(whole_report, in_the_way)
    assert "\n" not in str(caught.value)


def test_damaged_samples_are_refused_and_not_reported_as_absent(make_run: Callable[..., Run]) -> None:
    """A report never passes over a file that it cannot read."""
    run = make_run(ladder=(8,))
    samples_path(run.folder, "latency-1").write_bytes(b"not parquet")
    with pytest.raises(BadSamples):
        render_run(run)


@pytest.mark.slow
def test_a_cell_without_samples_is_listed_and_left_out_of_the_numbers(make_run: Callable[..., Run]) -> None:
    """What has no samples has no latencies, but its end is reported."""
    run = make_run(ladder=(8, 16))
    samples_path(run.folder, "held-16-01").unlink()
    page = render_run(run).files[PAGE].decode()
    assert "held-16-01" in page
    assert 'viewBox="0 0 860' in page
