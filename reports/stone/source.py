"""Source as HTML: highlighted by Pygments, line by line, with the lines marked that facts name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from bench.facts import Code, Facts
from reports.stone.inputs import SourceFile

TABLE = "code"
"""The table whose facts name places in hand-written environments."""

_PLAIN = re.compile(r'<span class="t-(?:n|ne|nb|bp|nn|o|p|w|fm|vm|py)">([^<]*)</span>')
"""What looks like any other text, and would be most of the page."""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of source.

    Attributes:
        number: Its number, from 1.
        html: Its text, highlighted.
        parts: The rows of the table that name it.
        begins: The rows whose place begins here.
    """

    number: int
    html: Markup
    parts: tuple[str, ...]
    begins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pane:
    """The hand-written environment of one framework.

    Attributes:
        framework: Folder name of the adapter.
        title: What the framework is called.
        release: Label of the release.
        path: The file that facts are about, relative to the checkout; empty where there is none.
        lines: Its lines.
        counts: What the table counts of it: name of the row, value.
        others: Further files of it, with their lines.
    """

    framework: str
    title: str
    release: str
    path: str
    lines: tuple[SourceLine, ...]
    counts: tuple[tuple[str, str], ...]
    others: tuple[tuple[str, tuple[SourceLine, ...]], ...]


def panes(facts: Facts, handwritten: Mapping[str, Sequence[SourceFile]]) -> tuple[Pane, ...]:
    """Return one pane for each framework, in the order of the columns."""
    return tuple(
        _pane(
            facts, subject.framework, subject.title, subject.release, handwritten.get(subject.framework, ())
        )
        for subject in facts.subjects
    )


def _pane(facts: Facts, framework: str, title: str, release: str, files: Sequence[SourceFile]) -> Pane:
    said = [fact for fact in facts.of(TABLE) if fact.framework == framework]
    places = {
        fact.row: place
        for fact in said
        for place in fact.evidence
        if isinstance(place, Code) and fact.data is None
    }
    named = {place.file for fact in said for place in fact.evidence if isinstance(place, Code)}
    main = next((file for file in files if file.path in named), files[0] if files else None)
    if main is None:
        return Pane(framework, title, release, "", (), (), ())
    return Pane(
        framework,
        title,
        release,
        main.path,
        _lines(main, {row: place for row, place in places.items() if place.file == main.path}),
        tuple((fact.row, fact.value) for fact in said if fact.data is not None),
        tuple((file.path, _lines(file, {})) for file in files if file is not main),
    )


def _lines(file: SourceFile, places: Mapping[str, Code]) -> tuple[SourceLine, ...]:
    texts = file.text.split("\n")
    # A place that has moved since the facts were gathered is not marked.
    true = {
        row: place
        for row, place in places.items()
        if place.first <= len(texts) and texts[place.first - 1].strip() == place.text
    }
    return tuple(
        SourceLine(
            number,
            html,
            tuple(row for row, place in true.items() if place.first <= number <= place.last),
            tuple(row for row, place in true.items() if place.first == number),
        )
        for number, html in enumerate(highlighted(file.text), start=1)
    )


def highlighted(text: str) -> list[Markup]:
    """Return the lines of Python source as HTML that stands by itself, with the classes of Pygments."""
    whole: str = highlight(text, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True, classprefix="t-"))
    # Pygments closes its marks at every line, and none stands in another.
    lines = _PLAIN.sub(r"\1", whole).removesuffix("\n").split("\n")
    return [Markup(line) for line in lines]  # noqa: S704 - escaped by Pygments
