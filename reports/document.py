"""What a report consists of, before it is Markdown or HTML: blocks of text, tables and figures.

Every report builds these blocks once, and both templates render the same ones, so the page and the Markdown file
cannot say different things. Text is data here: escaping is the business of the templates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

if TYPE_CHECKING:
    from reports.charts import Drawing

Tone = Literal["plain", "good", "bad", "muted"]
"""How a table cell is meant; never the only carrier of its meaning."""


@dataclass(frozen=True, slots=True)
class Code:
    """Text that is written the way a machine reads it."""

    text: str


@dataclass(frozen=True, slots=True)
class Strong:
    """Text that must not be overlooked."""

    text: str


Span: TypeAlias = str | Code | Strong


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of running text."""

    block: ClassVar[str] = "paragraph"
    spans: tuple[Span, ...]


def paragraph(*spans: Span) -> Paragraph:
    """Make a paragraph of spans."""
    return Paragraph(spans)


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of short statements."""

    block: ClassVar[str] = "bullets"
    items: tuple[tuple[Span, ...], ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """Terms with what holds for them."""

    block: ClassVar[str] = "facts"
    items: tuple[tuple[str, tuple[Span, ...]], ...]


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Text whose line breaks and spaces matter."""

    block: ClassVar[str] = "verbatim"
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str
    unit: str = ""
    """Unit of every cell, where the cells do not carry their own."""
    numeric: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """One field of a table."""

    text: str
    detail: str = ""
    """What belongs to the text but stands back: an interval, a limit."""
    tone: Tone = "plain"
    code: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its caption and the remarks that belong under it."""

    block: ClassVar[str] = "table"
    caption: str
    about: str
    """Under which condition the numbers hold; may be empty."""
    columns: tuple[Column, ...]
    rows: tuple[tuple[Entry, ...], ...]
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"table {self.caption!r}: a row has {len(row)} of {len(self.columns)} columns"
                )


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing with its caption and a text that stands in for it."""

    block: ClassVar[str] = "figure"
    drawing: Drawing
    caption: str
    alternative: str
    """Says in words what the drawing shows, for who cannot see it."""


Block: TypeAlias = Paragraph | Bullets | Facts | Verbatim | Table | Figure


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report with a heading of its own."""

    anchor: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Banner:
    """Something to know before any number is read."""

    tone: Literal["alarm", "warning", "note"]
    title: str
    text: str
    points: tuple[str, ...] = ()
    """Several things of the kind, one by one."""


@dataclass(frozen=True, slots=True)
class SummaryLine:
    """One line of the summary."""

    label: str
    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Report:
    """A whole report."""

    title: str
    subtitle: str
    banners: tuple[Banner, ...]
    summary: tuple[SummaryLine, ...]
    sections: tuple[Section, ...]

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Every figure, in the order of the page."""
        return tuple(
            block for section in self.sections for block in section.blocks if isinstance(block, Figure)
        )
