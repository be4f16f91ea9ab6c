"""The paper, the inks and the two shapes of a figure, and how it becomes bytes."""

from __future__ import annotations

import io
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from matplotlib.axes import Axes


Shape = Literal["wide", "narrow"]

WIDTHS: Final[Mapping[Shape, int]] = {"wide": 860, "narrow": 358}
"""Width of a drawing in CSS pixels: of a page's column on a desk, and on a telephone 390 pixels wide."""


class Ink(NamedTuple):
    """One colour of a figure, on light and on dark paper."""

    light: str
    dark: str


INKS: Final[Mapping[str, Ink]] = {
    "paper": Ink("#fdfdfc", "#15181c"),
    "ink": Ink("#1c2127", "#e4e7eb"),
    "quiet": Ink("#5b6570", "#9aa5b1"),
    "rule": Ink("#d8dde2", "#333a42"),
    "compiled": Ink("#0a62a9", "#63b3f5"),
    "compiled-soft": Ink("#8fbce0", "#2f5f88"),
    "baseline": Ink("#b8560b", "#f3a25c"),
    "baseline-soft": Ink("#e6bd97", "#7d5027"),
    "limit": Ink("#8d2a7c", "#e48ad2"),
    "fail": Ink("#c2281c", "#ff8a7a"),
    "bracket": Ink("#c9a227", "#b8952b"),
}
"""Every colour that a figure may use; a page defines `--fig-<name>` for each."""

DPI = 72
"""Points are CSS pixels in these figures, so that sizes can be read as they will be seen."""
_PNG_SCALE = 2
_SETTINGS: Final[Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial"],
    "font.size": 12,
    "axes.edgecolor": INKS["quiet"].light,
    "axes.facecolor": "none",
    "axes.labelcolor": INKS["quiet"].light,
    "axes.labelsize": 12,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INKS["ink"].light,
    "figure.dpi": DPI,
    "figure.facecolor": INKS["paper"].light,
    "grid.color": INKS["rule"].light,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "lines.solid_capstyle": "round",
    "path.simplify": False,
    "savefig.facecolor": INKS["paper"].light,
    "svg.fonttype": "none",
    "text.color": INKS["ink"].light,
    # Names from records are drawn as they are, dollar signs included.
    "text.parse_math": False,
    "xtick.color": INKS["quiet"].light,
    "xtick.labelsize": 11,
    "ytick.color": INKS["quiet"].light,
    "ytick.labelsize": 11,
}


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure, drawn."""

    name: str
    """Also the name of its files."""
    wide: str
    """SVG on light paper."""
    narrow: str
    paint: Callable[[Shape], Figure]
    """Paints the figure again."""

    @property
    def png(self) -> bytes:
        """The wide figure as PNG; drawn when it is asked for, because pages show the SVG."""
        buffer = io.BytesIO()
        with _settings(self.name):
            self.paint("wide").savefig(
                buffer, format="png", dpi=DPI * _PNG_SCALE, metadata={"Software": None}
            )
        return buffer.getvalue()

    @property
    def dark(self) -> str:
        """The wide SVG on dark paper."""
        return _recolour(self.wide, lambda _, ink: ink.dark)

    def inline(self, shape: Shape) -> str:
        """Return the SVG element for a page: colours as custom properties, ids of its own, nothing but the drawing."""
        svg = self.wide if shape == "wide" else self.narrow
        svg = svg[svg.index("<svg") :]
        svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
        prefix = f"{self.name}-{shape}-"
        svg = re.sub(r'\bid="', f'id="{prefix}', svg)
        svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}", svg)
        svg = _recolour(svg, lambda name, ink: f"var(--fig-{name}, {ink.light})")
        # The page sizes the drawing; hidden from assistive technology because the page gives the alternative text.
        return re.sub(
            r'<svg ([^>]*?)width="[^"]*" height="[^"]*"', r'<svg aria-hidden="true" \1', svg, count=1
        )


def _recolour(svg: str, choose: Callable[[str, Ink], str]) -> str:
    for name, ink in INKS.items():
        svg = svg.replace(ink.light, choose(name, ink))
    return svg


def draw(name: str, paint: Callable[[Shape], Figure]) -> Drawing:
    """Paint a figure in both shapes, with the settings of all reports and nobody else's."""
    with _settings(name):
        return Drawing(name, _svg(paint("wide")), _svg(paint("narrow")), paint)


@contextmanager
def _settings(name: str) -> Iterator[None]:
    # From the defaults, so that nobody's own matplotlibrc shows in a report.
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        mpl.rcParams["svg.hashsalt"] = name
        yield


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    # One unit of the drawing is one CSS pixel, not one point.
    svg = re.sub(r'width="(\d+)pt" height="(\d+)pt"', r'width="\1" height="\2"', buffer.getvalue(), count=1)
    # Trailing spaces of path data would be "fixed" by every editor that touches a committed file.
    return re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE)


def canvas(shape: Shape, height: float) -> Figure:
    """Make an empty figure of a height in CSS pixels."""
    return Figure(figsize=(WIDTHS[shape] / DPI, height / DPI))


def place(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Add axes by their place in CSS pixels, counted from the upper left corner."""
    full_width, full_height = figure.get_size_inches() * DPI
    return figure.add_axes(
        (left / full_width, 1 - (top + height) / full_height, width / full_width, height / full_height)
    )


def panel_title(axes: Axes, title: str) -> None:
    """Write a title above the left end of the axes."""
    axes.annotate(
        title, (0, 1), xycoords="axes fraction", xytext=(0, 8), textcoords="offset points", weight="bold"
    )


def ink(name: str) -> str:
    """Return the colour to paint with; it stands for the ink on every paper."""
    return INKS[name].light
