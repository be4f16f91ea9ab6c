"""The page of published runs: their latency and ceiling figures, in a form that a strict content security policy lets through.

It stands apart from the other pages because drawing takes seconds, and what draws takes one to load.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
from markupsafe import Markup

from bench.facts import Facts
from reports import ceilings, latency, overview
from reports.charts import INKS, Drawing, Shape
from reports.document import Figure, Section, SummaryLine
from reports.measurements import Measurements
from reports.stone.inputs import Inputs, PublishedRun
from reports.stone.pages import MEASURED, Pages, environment
from reports.stone.table import Table

DRAWN_BY = f"Matplotlib {mpl.__version__}"
"""What draws the figures. Another release may draw the same numbers with other bytes."""


@dataclass(frozen=True, slots=True)
class ShownFigure:
    """A figure on a page.

    Attributes:
        name: Its id.
        title: The section of the report that it is from.
        wide: The drawing for a desk.
        narrow: The drawing for a telephone.
        caption: What is drawn.
        alternative: What it says, in words.
    """

    name: str
    title: str
    wide: Markup
    narrow: Markup
    caption: str
    alternative: str


@dataclass(frozen=True, slots=True)
class ShownRun:
    """A published run on a page.

    Attributes:
        folder: Its folder under `reports/published`.
        framework: Folder name of the adapter.
        title: What was run.
        about: When, and by which commit.
        summary: What it found, in lines.
        figures: Its figures.
    """

    folder: str
    framework: str
    title: str
    about: str
    summary: tuple[SummaryLine, ...]
    figures: tuple[ShownFigure, ...]


def show_run(published: PublishedRun) -> ShownRun:
    """Return the latency and ceiling figures of a run with what it found.

    Raises:
        BadSamples: The samples of a cell are damaged.
    """
    measurements = Measurements(published.run)
    sections = (
        latency.one_session(measurements),
        ceilings.ceiling(measurements),
        latency.over_sessions(measurements),
    )
    return ShownRun(
        published.folder,
        published.run.header.adapter,
        overview.title(measurements),
        overview.subtitle(measurements),
        overview.summary(measurements),
        tuple(
            _shown(published.folder, section, block)
            for section in sections
            if section is not None
            for block in section.blocks
            if isinstance(block, Figure)
        ),
    )


def _shown(folder: str, section: Section, figure: Figure) -> ShownFigure:
    prefix = re.sub(r"\W+", "-", folder)
    return ShownFigure(
        f"{prefix}-{figure.drawing.name}",
        section.title,
        _embedded(figure.drawing, "wide", prefix),
        _embedded(figure.drawing, "narrow", prefix),
        figure.caption,
        figure.alternative,
    )


def _embedded(drawing: Drawing, shape: Shape, prefix: str) -> Markup:
    """Return a drawing whose ids no other run's has, without a style sheet and without style attributes."""
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", drawing.inline(shape))
    return Markup(without_styles(svg))  # noqa: S704 - drawn by this project, with every text escaped by matplotlib


def without_styles(svg: str) -> str:
    """Write what a drawing says in styles as attributes of the same names, which a content security policy does not forbid."""
    sheet = re.compile(r"<defs>\s*<style[^>]*>\*\{(?P<rules>[^}]*)\}</style>\s*</defs>\s*")
    found = sheet.search(svg)
    if found is not None:
        inherited = _as_attributes(found["rules"])
        svg = sheet.sub("", svg, count=1).replace("<svg ", f"<svg {inherited} ", 1)
    return re.sub(r'style="([^"]*)"', lambda style: _as_attributes(style[1]), svg)


def _as_attributes(style: str) -> str:
    pairs = (part.partition(":") for part in style.split(";") if part.strip())
    return " ".join(f'{name.strip()}="{value.strip()}"' for name, _, value in pairs)


def render_measured(facts: Facts, tables: Sequence[Table], inputs: Inputs, root: str) -> dict[str, str]:
    """Return the page of the published runs with the colours of its figures, by path.

    Args:
        facts: The facts.
        tables: The tables made of them.
        inputs: With the published runs.
        root: As for the rest of the site.

    Raises:
        BadSamples: The samples of a cell are damaged.
    """
    titles = {subject.framework: subject.title for subject in facts.subjects}
    order = list(titles)
    runs = sorted(
        (run for run in inputs.runs if run.framework in titles),
        key=lambda run: (order.index(run.framework), run.folder),
    )
    page = Pages(facts, tables, inputs, root).render(
        "measured.html.j2",
        MEASURED,
        "Latencies and ceilings",
        runs=[show_run(run) for run in runs],
        titles=titles,
        without=[title for name, title in titles.items() if all(run.framework != name for run in runs)],
        drawn_by=DRAWN_BY,
    )
    return {
        MEASURED: page,
        "figures.css": environment().get_template("site/figures.css.j2").render(inks=INKS),
    }
