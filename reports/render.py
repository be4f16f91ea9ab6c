"""From a run to the files that people open: pure until `write_report`, which only stores what was rendered."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reports import overview
from reports.measurements import Measurements
from reports.page import markdown, page
from reports.report import report as build_report
from reports.tables import tables

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.records import Run
    from reports.charts import Drawing

PAGE = "index.html"
MARKDOWN = "report.md"


class ReportNotWritten(Exception):  # noqa: N818 - named for what it is
    """A rendered report could not be stored; the records that it was made from are untouched."""

    def __init__(self, folder: Path, cause: OSError) -> None:
        super().__init__(
            f"the report cannot be written to {folder}: {cause.strerror or cause}. The records that were written are kept; "
            "make room or choose another folder, and render the report again."
        )
        self.folder = folder


@dataclass(frozen=True, slots=True)
class RenderedReport:
    """A report as files, not yet written anywhere."""

    files: Mapping[str, bytes]
    """Relative path, with slashes, to content."""
    summary: tuple[str, ...]
    """The ten lines of `summarise`."""


def render_run(run: Run) -> RenderedReport:
    """Render the report of a run: the same records give the same bytes, in every process.

    Figures and tables are named by what they show. The page holds its figures itself; `report.md` shows them from
    `figures/`, in a light and a dark version.

    Raises:
        BadSamples: The samples of a cell are damaged.
    """
    measurements = Measurements(run)
    report = build_report(measurements)
    files: dict[str, bytes] = {PAGE: page(report).encode(), MARKDOWN: markdown(report).encode()}
    for figure in report.figures:
        files |= figure_files(figure.drawing)
    files |= {f"tables/{name}": content for name, content in tables(measurements).items()}
    return RenderedReport(files, _lines(measurements))


def figure_files(drawing: Drawing) -> dict[str, bytes]:
    """Return the files of a figure, as `report.md` shows it."""
    return {
        f"figures/{drawing.name}.svg": drawing.wide.encode(),
        f"figures/{drawing.name}-dark.svg": drawing.dark.encode(),
        f"figures/{drawing.name}.png": drawing.png,
    }


def summarise(run: Run) -> list[str]:
    """Say a run in ten lines of plain text, for a terminal.

    Raises:
        BadSamples: The samples of a cell are damaged.
    """
    return list(_lines(Measurements(run)))


def _lines(measurements: Measurements) -> tuple[str, ...]:
    lines = overview.summary(measurements)
    width = max(len(line.label) for line in lines)
    return tuple(f"{line.label:<{width}}  {line.text}" for line in lines)


def write_report(report: RenderedReport, folder: Path) -> Path:
    """Store a rendered report, each file whole or not at all, over an older one.

    Args:
        report: What `render_run` returned.
        folder: Usually the folder of the run; it is made when it is missing.

    Returns:
        The page.

    Raises:
        ReportNotWritten: The file system refuses.
    """
    try:
        for name, content in report.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_name(path.name + ".part")
            try:
                unfinished.write_bytes(content)
                unfinished.replace(path)
            finally:
                with contextlib.suppress(OSError):
                    unfinished.unlink(missing_ok=True)
    except OSError as refusal:
        raise ReportNotWritten(folder, refusal) from refusal
    return folder / PAGE
