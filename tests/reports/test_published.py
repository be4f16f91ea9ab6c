"""Published reports are what their records say: rendering them again gives the same files."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import pytest

from bench.records import Conformance, read_run
from reports.render import render_run

PUBLISHED = sorted(
    path.parent
    for path in (Path(__file__).resolve().parents[2] / "reports" / "published").glob("*/records.jsonl")
)


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.name)
def test_a_published_report_equals_a_new_rendering(folder: Path) -> None:
    rendered = render_run(read_run(folder)).files
    # Figures depend on the release of matplotlib, which they name; text and tables do not.
    drawn = f"Matplotlib v{mpl.__version__}"
    same = all(drawn in path.read_text(encoding="utf-8") for path in folder.glob("figures/*.svg"))
    compared = {name for name in rendered if same or name.endswith((".md", ".csv"))}
    assert compared
    assert sorted(name for name in compared if (folder / name).read_bytes() != rendered[name]) == []


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.name)
def test_only_whole_runs_of_conforming_environments_at_a_commit_are_published(folder: Path) -> None:
    run = read_run(folder)
    assert not run.partial
    assert run.header.commit is not None
    assert run.header.dirty is False
    assert [record.status for record in run.of(Conformance)] == ["passed"]
