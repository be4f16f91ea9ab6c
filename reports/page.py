"""A report as text: Markdown for repositories, and one HTML page that needs nothing from anywhere else."""

from __future__ import annotations

import html
import re
from functools import lru_cache
from typing import TYPE_CHECKING

import jinja2
from markupsafe import Markup

from reports.charts import INKS
from reports.document import Code, Strong

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reports.charts import Drawing
    from reports.document import Report, Span

_SPECIAL = re.compile(r"([\\`*<\[\]|~])|(?<!\w)(_)|(_)(?!\w)|(&)(?=#?\w+;)")


def page(report: Report) -> str:
    """Render a report as one self-contained HTML page."""
    return _environment().get_template("page.html.j2").render(report=report, inks=INKS)


def markdown(report: Report) -> str:
    """Render a report as Markdown that shows its figures from `figures/`."""
    text = _environment().get_template("report.md.j2").render(report=report)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("reports", "templates"),
        autoescape=jinja2.select_autoescape(enabled_extensions=("html.j2",), default=False),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["spans"] = _html_spans
    environment.filters["svg"] = _svg
    environment.filters["md"] = _markdown_text
    environment.filters["md_spans"] = _markdown_spans
    environment.filters["md_code"] = _markdown_code
    environment.filters["attribute"] = lambda text: html.escape(_one_line(text), quote=True)
    return environment


def _html_spans(spans: Sequence[Span]) -> Markup:
    parts = []
    for span in spans:
        match span:
            case Code():
                parts.append(Markup("<code>{}</code>").format(span.text))
            case Strong():
                parts.append(Markup("<strong>{}</strong>").format(span.text))
            case str():
                parts.append(Markup("{}").format(span))
    return Markup("").join(parts)


def _svg(drawing: Drawing, shape: str) -> Markup:
    # Drawn by this project, with every text escaped by matplotlib.
    return Markup(drawing.inline("narrow" if shape == "narrow" else "wide"))  # noqa: S704


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _markdown_text(text: str) -> str:
    """Escape what Markdown would take for markup; names with underscores inside words are left readable."""
    return _SPECIAL.sub(lambda found: f"\\{found.group()}", _one_line(text))


def _markdown_code(text: str) -> str:
    """Write a code span around any text, backticks included; a pipe would end a table's cell."""
    text = _one_line(text).replace("|", "\\|")
    fence = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    padding = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{padding}{text}{padding}{fence}"


def _markdown_spans(spans: Sequence[Span]) -> str:
    parts = []
    for span in spans:
        match span:
            case Code():
                parts.append(_markdown_code(span.text))
            case Strong():
                # Emphasis does not close before a space.
                text = span.text.rstrip()
                parts.append(f"**{_markdown_text(text)}**{span.text[len(text) :]}")
            case str():
                inner = _markdown_text(span)
                parts.append(
                    f"{' ' if span[:1].isspace() else ''}{inner}{' ' if span[-1:].isspace() and inner else ''}"
                )
    return "".join(parts)
