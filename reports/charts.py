"""Figures, drawn with matplotlib: the same numbers give the same bytes, in every process.

Text stays text in the SVG, so a page can set it in its own typeface and a reader can select it. Each figure is drawn
twice, for a wide and for a narrow page, because scaling one drawing down makes its text unreadable. Colours are
chosen for both light and dark paper and to be told apart with any kind of colour vision; shape and line style carry
the same distinctions. The standalone file has its light colours fixed; inside a page they are CSS custom properties.
"""

from __future__ import annotations

import io
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from reports import notation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

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

_DPI = 72
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
    "figure.dpi": _DPI,
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
    png: bytes

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
            r'<svg ([^>]*?)height="[^"]*" ([^>]*?)width="[^"]*"',
            r'<svg aria-hidden="true" \1\2',
            svg,
            count=1,
        )


def _recolour(svg: str, choose: Callable[[str, Ink], str]) -> str:
    for name, ink in INKS.items():
        svg = svg.replace(ink.light, choose(name, ink))
    return svg


def _draw(name: str, paint: Callable[[Shape], Figure]) -> Drawing:
    # From the defaults, so that nobody's own matplotlibrc shows in a report.
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        mpl.rcParams["svg.hashsalt"] = name
        figure = paint("wide")
        wide = _svg(figure)
        png = io.BytesIO()
        figure.savefig(png, format="png", dpi=_DPI * _PNG_SCALE, metadata={"Software": None})
        return Drawing(name, wide, _svg(paint("narrow")), png.getvalue())


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    # Trailing spaces of path data would be "fixed" by every editor that touches a committed file.
    return re.sub(r"[ \t]+$", "", buffer.getvalue(), flags=re.MULTILINE)


def _canvas(shape: Shape, height: float) -> Figure:
    return Figure(figsize=(WIDTHS[shape] / _DPI, height / _DPI))


def _place(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Add axes by their place in CSS pixels, counted from the upper left corner."""
    full_width, full_height = figure.get_size_inches() * _DPI
    return figure.add_axes(
        (left / full_width, 1 - (top + height) / full_height, width / full_width, height / full_height)
    )


def _panel_title(axes: Axes, title: str) -> None:
    axes.annotate(
        title, (0, 1), xycoords="axes fraction", xytext=(0, 8), textcoords="offset points", weight="bold"
    )


def _ink(name: str) -> str:
    return INKS[name].light


class Row(NamedTuple):
    """One population of the figure of distributions."""

    label: str
    detail: str
    """What tells it from the other rows of its label; may be empty."""
    subject: str
    """`compiled` or `baseline`: the colour."""
    ok_ns: NDArray[np.generic]
    """Latencies of what succeeded, ascending."""
    n: int
    """Operations, failed ones included."""
    failures: int
    marks: tuple[tuple[str, float, float, float], ...]
    """Name, value, low and high of each quantile that has enough samples; infinite where failures reach it."""


def distributions(name: str, rows: Sequence[Row]) -> Drawing:
    """Draw how the latencies of several populations are distributed, on one logarithmic axis.

    Args:
        name: Of the drawing.
        rows: From top to bottom; each has at least one latency.
    """
    return _draw(name, lambda shape: _distributions(shape, rows))


def _distributions(shape: Shape, rows: Sequence[Row]) -> Figure:
    narrow = shape == "narrow"
    pitch, top, bottom = (78, 30, 46) if narrow else (58, 30, 46)
    left, right = (12, 12) if narrow else (150, 178)
    height = top + pitch * len(rows) + bottom
    figure = _canvas(shape, height)
    axes = _place(figure, left, top, WIDTHS[shape] - left - right, pitch * len(rows))
    low = min(float(row.ok_ns[0]) for row in rows)
    high = max(float(row.ok_ns[-1]) for row in rows)
    low, high = _time_axis(axes, "x", max(low, 1.0), max(high, 1.0))
    axes.set_ylim(len(rows), 0)
    axes.yaxis.set_visible(False)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=True, axis="x", which="major")
    axes.set_axisbelow(True)
    axes.set_xlabel("service time, from sent to done (logarithmic)")
    for position, row in enumerate(rows):
        ground = position + (0.66 if narrow else 0.60)
        _ridge(axes, row, ground, 0.34 if narrow else 0.50, (low, high))
        _quantile_marks(axes, row, ground + (0.17 if narrow else 0.18), high)
        _row_texts(axes, row, position, ground, narrow=narrow)
    _mark_legend(figure, axes, top, narrow=narrow)
    return figure


def _ridge(axes: Axes, row: Row, ground: float, tallest: float, limits: tuple[float, float]) -> None:
    values = np.maximum(np.asarray(row.ok_ns, dtype=np.float64), 1.0)
    axes.plot(limits, (ground, ground), color=_ink("rule"), linewidth=0.8, zorder=1)
    if values.size < 30:
        # Too few for a shape: each one is shown.
        _ticks(axes, values, ground, tallest * 0.45, ink=row.subject, width=1.0)
        return
    edges = np.geomspace(*limits, max(24, round(40 * math.log10(limits[1] / limits[0]))) + 1)
    counts, _ = np.histogram(values, edges)
    heights = ground - tallest * counts / counts.max()
    soft = _ink(f"{row.subject}-soft")
    axes.stairs(heights, edges, baseline=ground, fill=True, color=soft, linewidth=0, zorder=2)
    # An operation that happened once must be seen, even where 1 of 100,000 is no height at all.
    rare = (counts > 0) & (counts < 0.02 * counts.max())
    centres = np.sqrt(edges[:-1] * edges[1:])
    _ticks(axes, centres[rare], ground, 0.055, ink=f"{row.subject}-soft", width=1.2)


def _ticks(
    axes: Axes, at: NDArray[np.float64], ground: float, height: float, *, ink: str, width: float
) -> None:
    """Draw short upright lines as one path, which is a tenth of the size of as many paths."""
    across = np.repeat(at, 3)
    up = np.tile((ground, ground - height, np.nan), at.size)
    axes.plot(across, up, color=_ink(ink), linewidth=width, solid_capstyle="butt", zorder=2)


_MARKERS: Final = {"p50": "o", "p95": "s", "p99": "D"}


def _quantile_marks(axes: Axes, row: Row, y: float, edge: float) -> None:
    colour = _ink(row.subject)
    finite = [mark for mark in row.marks if math.isfinite(mark[1])]
    if finite:
        axes.plot((finite[0][1], finite[-1][1]), (y, y), color=colour, linewidth=0.8, zorder=3)
    for label, value, low, high in finite:
        axes.plot((low, min(high, edge)), (y, y), color=colour, linewidth=3.2, alpha=0.45, zorder=3)
        axes.plot(
            (value,),
            (y,),
            marker=_MARKERS[label],
            markersize=5.4,
            color=colour,
            zorder=4,
            linestyle="none",
            markeredgecolor=_ink("paper"),
            markeredgewidth=0.8,
        )


def _row_texts(axes: Axes, row: Row, position: int, ground: float, *, narrow: bool) -> None:
    shown = {label: value for label, value, _, _ in row.marks}
    numbers = (
        " · ".join(f"{label} {notation.duration(shown[label])}" for label in ("p50", "p99") if label in shown)
        or "n too small for quantiles"
    )
    amount = f"n {row.n:,}" + (f", {row.failures:,} failed" if row.failures else "")
    detail = f"{row.detail}, {amount}" if row.detail else amount
    along = axes.get_yaxis_transform()
    if narrow:
        axes.text(0, position + 0.14, row.label, transform=along, weight="bold", va="center", fontsize=11.5)
        axes.annotate(
            detail,
            (0, position + 0.14),
            xycoords=along,
            xytext=(8.2 * len(row.label) + 5, 0),
            textcoords="offset points",
            va="center",
            fontsize=10,
            color=_ink("quiet"),
        )
        axes.text(1, position + 0.14, numbers, transform=along, ha="right", va="center", fontsize=10.5)
        return
    axes.text(-0.018, ground - 0.26, row.label, transform=along, ha="right", va="center", weight="bold")
    axes.text(
        -0.018,
        ground + 0.05,
        detail,
        transform=along,
        ha="right",
        va="center",
        fontsize=11,
        color=_ink("quiet"),
    )
    axes.text(1.018, ground - 0.12, numbers, transform=along, va="center", fontsize=11)


def _mark_legend(figure: Figure, axes: Axes, top: float, *, narrow: bool) -> None:
    handles = [
        Line2D(
            [],
            [],
            color=_ink("rule"),
            marker=marker,
            markersize=6.5,
            linewidth=3.2,
            label=label,
            markerfacecolor=_ink("quiet"),
            markeredgewidth=0,
        )
        for label, marker in _MARKERS.items()
    ]
    height = figure.get_size_inches()[1] * _DPI
    figure.legend(
        handles=handles,
        loc="center left",
        ncols=3,
        fontsize=11,
        handlelength=1.6,
        columnspacing=1.2,
        bbox_to_anchor=(0.0 if narrow else axes.get_position().x0 - 0.01, 1 - (top * 0.42) / height),
        labelcolor=_ink("quiet"),
        borderpad=0,
    )


class Step(NamedTuple):
    """One number of sessions in the figure of a ladder."""

    sessions: int
    p50: tuple[float, float, float] | None
    """Value, low and high; absent when there are too few operations."""
    p99: tuple[float, float, float] | None
    largest: float
    """Stands in for a p99 that has too few operations; infinite when an operation failed."""
    verdict: Literal["pass", "fail", "mixed"] | None
    """Of all trials at this number of sessions; absent when it was not judged."""


class Bracket(NamedTuple):
    """Where a ceiling lies."""

    lower: int
    upper: int | None
    label: str


def ladder(
    name: str,
    steps: Sequence[Step],
    *,
    subject: str,
    limit_ns: float | None = None,
    tool_ns: float | None = None,
    bracket: Bracket | None = None,
) -> Drawing:
    """Draw the latency of a step over the number of sessions held, with the line that it must stay below.

    Args:
        name: Of the drawing.
        steps: Ascending in sessions.
        subject: `compiled` or `baseline`: the colour.
        limit_ns: Limit of the p99.
        tool_ns: How long the tool itself works.
        bracket: The ceiling that was found.
    """
    return _draw(
        name,
        lambda shape: _ladder(shape, steps, subject, limit_ns=limit_ns, tool_ns=tool_ns, bracket=bracket),
    )


def _ladder(
    shape: Shape,
    steps: Sequence[Step],
    subject: str,
    *,
    limit_ns: float | None,
    tool_ns: float | None,
    bracket: Bracket | None,
) -> Figure:
    narrow = shape == "narrow"
    left, right, top, plot, bottom = (58, 14, 62, 250, 50) if narrow else (76, 30, 44, 330, 52)
    figure = _canvas(shape, top + plot + bottom)
    axes = _place(figure, left, top, WIDTHS[shape] - left - right, plot)
    finite = [
        t for step in steps for t in (*(step.p50 or ()), *(step.p99 or ()), step.largest) if math.isfinite(t)
    ]
    finite += [t for t in (limit_ns, tool_ns) if t]
    finite = finite or [1e6]
    _, roof = _time_axis(axes, "y", max(min(finite), 1.0), max(finite))
    _sessions_axis(axes, [step.sessions for step in steps], bracket, narrow=narrow)
    axes.grid(visible=True, axis="y", which="major")
    axes.set_axisbelow(True)
    axes.set_xlabel("sessions held open at the same time (logarithmic)")
    axes.set_ylabel("step" if narrow else "service time of a step (logarithmic)")
    _reference_line(axes, limit_ns, "limit", "p99 limit", (0, (5, 3)), above=True)
    _reference_line(axes, tool_ns, "quiet", "the tool itself", (0, (1, 2)), above=False)
    if bracket is not None:
        _bracket(axes, bracket, shape)
    _medians(axes, steps, subject)
    _tails(axes, steps, subject, roof)
    _ladder_legend(figure, steps, subject, left, narrow=narrow)
    return figure


def _medians(axes: Axes, steps: Sequence[Step], subject: str) -> None:
    known = [(step.sessions, *step.p50) for step in steps if step.p50 and math.isfinite(step.p50[0])]
    if known:
        at, values, _, _ = zip(*known, strict=True)
        axes.plot(
            at, values, color=_ink(f"{subject}-soft"), linewidth=1.8, marker="o", markersize=4, zorder=3
        )


def _tails(axes: Axes, steps: Sequence[Step], subject: str, roof: float) -> None:
    tails = [
        (step.sessions, *(step.p99 or (step.largest,) * 3), step.p99 is not None, step.verdict)
        for step in steps
    ]
    finite = [tail for tail in tails if math.isfinite(tail[1])]
    if finite:
        axes.plot(
            [tail[0] for tail in finite],
            [tail[1] for tail in finite],
            color=_ink(subject),
            linewidth=1.8,
            zorder=4,
        )
    for sessions, value, low, high, enough, verdict in tails:
        shown = value if math.isfinite(value) else roof
        if enough and math.isfinite(low):
            axes.plot(
                (sessions, sessions),
                (low, high if math.isfinite(high) else roof),
                color=_ink(subject),
                linewidth=3.4,
                alpha=0.35,
                zorder=4,
            )
        axes.plot(
            (sessions,),
            (shown,),
            linestyle="none",
            zorder=5,
            clip_on=False,
            **_verdict_style(verdict, subject, enough=enough, infinite=not math.isfinite(value)),
        )


def _verdict_style(verdict: str | None, subject: str, *, enough: bool, infinite: bool) -> dict[str, Any]:
    colour = _ink("fail") if verdict in {"fail", "mixed"} else _ink(subject)
    if infinite:
        return {"marker": "^", "color": colour, "markersize": 8}
    if verdict == "fail":
        return {"marker": "x", "color": colour, "markersize": 8, "markeredgewidth": 2.2}
    if verdict == "mixed":
        return {
            "marker": "D",
            "color": colour,
            "markersize": 6.5,
            "markerfacecolor": _ink("paper"),
            "markeredgewidth": 1.8,
        }
    return {
        "marker": "o",
        "color": colour,
        "markersize": 6.5,
        "markeredgewidth": 1.6,
        "markerfacecolor": colour if enough else _ink("paper"),
    }


def _ladder_legend(figure: Figure, steps: Sequence[Step], subject: str, left: float, *, narrow: bool) -> None:
    def handle(label: str, **style: Any) -> Line2D:
        return Line2D([], [], label=label, **style)

    colour = _ink(subject)
    verdicts = {step.verdict for step in steps}
    handles = [
        handle("p50", color=_ink(f"{subject}-soft"), marker="o", markersize=4, linewidth=1.8),
        handle("p99", color=colour, linewidth=1.8, marker="o", markersize=6.5),
    ]
    if any(step.p99 is None for step in steps):
        handles.append(
            handle(
                "largest, n too small for p99",
                linestyle="none",
                **_verdict_style(None, subject, enough=False, infinite=False),
            )
        )
    if verdicts & {"fail", "mixed"}:
        handles.append(
            handle(
                "criterion failed",
                linestyle="none",
                **_verdict_style("fail", subject, enough=True, infinite=False),
            )
        )
    if "mixed" in verdicts:
        handles.append(
            handle(
                "some trials failed it",
                linestyle="none",
                **_verdict_style("mixed", subject, enough=True, infinite=False),
            )
        )
    if any(not math.isfinite((step.p99 or (step.largest,))[0]) for step in steps):
        handles.append(
            handle(
                "among failed operations",
                linestyle="none",
                **_verdict_style("fail", subject, enough=True, infinite=True),
            )
        )
    height = figure.get_size_inches()[1] * _DPI
    figure.legend(
        handles=handles,
        loc="upper left",
        ncols=2 if narrow else len(handles),
        fontsize=10 if narrow else 11,
        bbox_to_anchor=((0 if narrow else left - 6) / WIDTHS["narrow" if narrow else "wide"], 1 - 4 / height),
        handlelength=1.6,
        columnspacing=1.2,
        labelcolor=_ink("quiet"),
        borderpad=0,
    )


def _reference_line(axes: Axes, at: float | None, ink: str, label: str, dashes: Any, *, above: bool) -> None:
    if not at:
        return
    axes.axhline(at, color=_ink(ink), linewidth=1.3, linestyle=dashes, zorder=2)
    axes.annotate(
        f"{label} {notation.duration(at)}",
        (0, at),
        xycoords=axes.get_yaxis_transform(),
        xytext=(5, 4 if above else -7),
        textcoords="offset points",
        color=_ink(ink),
        fontsize=11,
        va="bottom" if above else "top",
    )


def _bracket(axes: Axes, bracket: Bracket, shape: Shape) -> None:
    lowest, highest = axes.get_xlim()
    start = max(bracket.lower, lowest)
    end = bracket.upper if bracket.upper is not None else highest
    axes.axvspan(start, end, color=_ink("bracket"), alpha=0.22, linewidth=0, zorder=1)
    for edge in (bracket.lower, bracket.upper):
        if edge is not None and edge > lowest:
            axes.axvline(edge, color=_ink("bracket"), linewidth=1.0, zorder=1)
    late = math.log(start / lowest) > 0.5 * math.log(highest / lowest)
    axes.annotate(
        bracket.label,
        (start if late else end, 1),
        xycoords=("data", "axes fraction"),
        xytext=(-6 if late else 6, -4),
        textcoords="offset points",
        ha="right" if late else "left",
        va="top",
        fontsize=10 if shape == "narrow" else 11,
    )


class Panel(NamedTuple):
    """One small picture of a phase over the number of sessions."""

    title: str
    steps: tuple[Step, ...]
    limit_ns: float | None


def panels(name: str, parts: Sequence[Panel], *, subject: str) -> Drawing:
    """Draw the other phases over the number of sessions, on one common time axis."""
    return _draw(name, lambda shape: _panels(shape, parts, subject))


def _panels(shape: Shape, parts: Sequence[Panel], subject: str) -> Figure:
    narrow = shape == "narrow"
    left, right, gap, plot, bottom, top = (58, 14, 54, 150, 50, 30) if narrow else (76, 30, 30, 220, 52, 40)
    across = 1 if narrow else len(parts)
    down = len(parts) if narrow else 1
    width = (WIDTHS[shape] - left - right - gap * (across - 1)) / across
    figure = _canvas(shape, top + down * plot + (down - 1) * gap + bottom)
    times = [
        t
        for part in parts
        for t in (
            part.limit_ns,
            *(x for step in part.steps for x in (*(step.p50 or ()), *(step.p99 or ()), step.largest)),
        )
        if t and math.isfinite(t)
    ] or [1e6]
    sessions = sorted({step.sessions for part in parts for step in part.steps})
    for position, part in enumerate(parts):
        axes = _place(
            figure,
            left + (0 if narrow else position * (width + gap)),
            top + (position * (plot + gap) if narrow else 0),
            width,
            plot,
        )
        _, roof = _time_axis(axes, "y", max(min(times), 1.0), max(times))
        _sessions_axis(axes, sessions, None, narrow=narrow or across > 2)
        axes.grid(visible=True, axis="y", which="major")
        axes.set_axisbelow(True)
        _panel_title(axes, part.title)
        if position and not narrow:
            axes.tick_params(axis="y", labelleft=False)
        _reference_line(axes, part.limit_ns, "limit", "p99 limit", (0, (5, 3)), above=True)
        _medians(axes, part.steps, subject)
        _tails(axes, part.steps, subject, roof)
        if narrow and position == len(parts) - 1:
            axes.set_xlabel("sessions held (logarithmic)")
    if not narrow:
        figure.text(
            (left + (WIDTHS[shape] - left - right) / 2) / WIDTHS[shape],
            8 / (top + plot + bottom),
            "sessions held open at the same time (logarithmic)",
            ha="center",
            color=_ink("quiet"),
        )
        figure.axes[0].set_ylabel("service time (logarithmic)")
    return figure


class Reading(NamedTuple):
    """The server's own side at one number of sessions."""

    sessions: int
    rss_bytes: float | None
    threads: int | None
    fds: int | None


def server(name: str, readings: Sequence[Reading]) -> Drawing:
    """Draw the server's memory, threads and file descriptors over the number of sessions."""
    return _draw(name, lambda shape: _server(shape, readings))


def _server(shape: Shape, readings: Sequence[Reading]) -> Figure:
    narrow = shape == "narrow"
    left, right, gap, plot, bottom, top = (58, 22, 78, 170, 50, 30) if narrow else (76, 40, 84, 240, 52, 34)
    across = 1 if narrow else 2
    width = (WIDTHS[shape] - left - right - gap * (across - 1)) / across
    figure = _canvas(shape, top + (2 * plot + gap if narrow else plot) + bottom)
    sessions = [reading.sessions for reading in readings]
    memory = _place(figure, left, top, width, plot)
    counts = _place(
        figure, left + (0 if narrow else width + gap), top + (plot + gap if narrow else 0), width, plot
    )
    for axes, title in ((memory, "resident memory, MiB"), (counts, "threads and file descriptors")):
        _panel_title(axes, title)
        axes.set_xlabel("sessions (logarithmic)")
        axes.grid(visible=True, axis="y", which="major")
        axes.set_axisbelow(True)
        _sessions_axis(axes, sessions, None, narrow=True)
    mebibytes = [(r.sessions, r.rss_bytes / 2**20) for r in readings if r.rss_bytes]
    if mebibytes:
        memory.plot(
            *zip(*mebibytes, strict=True), color=_ink("compiled"), marker="o", markersize=5, linewidth=1.8
        )
        memory.set_ylim(0, max(value for _, value in mebibytes) * 1.12)
    else:
        _not_measured(memory)
    threads = [(r.sessions, r.threads) for r in readings if r.threads]
    fds = [(r.sessions, r.fds) for r in readings if r.fds]
    _labelled_line(counts, threads, "threads", "compiled", "o")
    _labelled_line(counts, fds, "file descriptors", "baseline", "s")
    if threads or fds:
        values = [value for _, value in threads + fds]
        _count_axis(counts, min(values), max(values))
        counts.legend(fontsize=11, loc="upper left", labelcolor=_ink("quiet"), handlelength=1.6)
    else:
        _not_measured(counts)
    return figure


def _labelled_line(axes: Axes, points: Sequence[tuple[int, int]], label: str, ink: str, marker: str) -> None:
    if points:
        axes.plot(
            *zip(*points, strict=True),
            color=_ink(ink),
            marker=marker,
            markersize=5,
            linewidth=1.8,
            label=label,
            linestyle="-" if ink == "compiled" else (0, (4, 1.5)),
        )


def _not_measured(axes: Axes) -> None:
    axes.set_yticks([])
    axes.text(
        0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", va="center", color=_ink("quiet")
    )


class Comparison(NamedTuple):
    """One ratio with its interval."""

    label: str
    detail: str
    value: float
    low: float
    high: float


def ratios(name: str, rows: Sequence[Comparison]) -> Drawing:
    """Draw ratios with their intervals beside the line at 1, which means no difference."""
    return _draw(name, lambda shape: _ratios(shape, rows))


def _ratios(shape: Shape, rows: Sequence[Comparison]) -> Figure:
    narrow = shape == "narrow"
    pitch, top, bottom = (56, 26, 48) if narrow else (42, 26, 50)
    left, right = (12, 12) if narrow else (210, 190)
    figure = _canvas(shape, top + pitch * len(rows) + bottom)
    axes = _place(figure, left, top, WIDTHS[shape] - left - right, pitch * len(rows))
    low = min(1 / 1.25, *(row.low for row in rows)) / 1.12
    high = max(1.25, *(row.high for row in rows)) * 1.12
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    _number_ticks(axes, "x", low, high, lambda value: f"{value:g}")
    axes.set_ylim(len(rows), 0)
    axes.yaxis.set_visible(False)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=True, axis="x", which="major")
    axes.set_axisbelow(True)
    axes.set_xlabel("ratio of latencies (logarithmic); below 1, the first is faster")
    axes.axvline(1, color=_ink("ink"), linewidth=1.2, zorder=2)
    axes.annotate(
        "no difference",
        (1, 1),
        xycoords=("data", "axes fraction"),
        xytext=(0, 5),
        textcoords="offset points",
        ha="center",
        fontsize=11,
        color=_ink("quiet"),
    )
    along = axes.get_yaxis_transform()
    for position, row in enumerate(rows):
        shown = not row.low <= 1 <= row.high
        colour = _ink("compiled") if shown else _ink("quiet")
        y = position + (0.7 if narrow else 0.5)
        axes.plot((row.low, row.high), (y, y), color=colour, linewidth=3.4, alpha=0.45, zorder=3)
        axes.plot(
            (row.value,),
            (y,),
            marker="o",
            markersize=8,
            color=colour,
            zorder=4,
            markerfacecolor=colour if shown else _ink("paper"),
            markeredgewidth=1.8,
        )
        numbers = f"{row.value:.3g} [{row.low:.3g}, {row.high:.3g}]"
        if narrow:
            box = {"facecolor": _ink("paper"), "edgecolor": "none", "pad": 2.0}
            axes.text(
                0,
                position + 0.3,
                row.label,
                transform=along,
                va="center",
                weight="bold",
                fontsize=11,
                bbox=box,
            )
            axes.text(
                1, position + 0.3, numbers, transform=along, va="center", ha="right", fontsize=11, bbox=box
            )
        else:
            axes.text(-0.025, y, row.label, transform=along, va="center", ha="right", weight="bold")
            axes.text(1.025, y - 0.17, numbers, transform=along, va="center", fontsize=11.5)
            axes.text(
                1.025, y + 0.2, row.detail, transform=along, va="center", fontsize=11, color=_ink("quiet")
            )
    return figure


def _time_axis(axes: Axes, which: Literal["x", "y"], low: float, high: float) -> tuple[float, float]:
    """Set a logarithmic axis of nanoseconds, labelled in units that people read, and return its limits."""
    if which == "x":
        # Room for the marks at both ends.
        low, high = low / 1.15, high * 1.15
        axes.set_xscale("log")
        axes.set_xlim(low, high)
    else:
        # Room for a label under the lowest line and over the highest one.
        span = high / low
        low, high = low / max(1.15, span**0.07), high * max(1.25, span**0.11)
        axes.set_yscale("log")
        axes.set_ylim(low, high)
    _number_ticks(axes, which, low, high, _tick_duration)
    return low, high


def _tick_duration(ns: float) -> str:
    divisor, unit = next(
        (divisor, unit)
        for divisor, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns"))
        if ns >= divisor or unit == "ns"
    )
    return f"{ns / divisor:g} {unit}"


def _number_ticks(
    axes: Axes, which: Literal["x", "y"], low: float, high: float, label: Callable[[float], str]
) -> None:
    decades = math.log10(high / low)
    steps: tuple[float, ...] = (1.0,) if decades > 3.2 else (1.0, 3.0) if decades > 1.8 else (1.0, 2.0, 5.0)
    if decades < 1.0:
        steps = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
    if decades < 0.4:
        steps = (1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0)
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(FixedLocator(list(_between(low, high, steps))))
    axis.set_major_formatter(FuncFormatter(lambda value, _: label(float(f"{value:.6g}"))))
    # No minor ticks: on six small axes they were most of the file, and the labels say what the axis is.
    axis.set_minor_locator(NullLocator())
    axis.set_tick_params(which="major", length=3)


def _between(low: float, high: float, steps: Sequence[float]) -> Iterator[float]:
    for decade in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        for step in steps:
            if low <= step * 10.0**decade <= high:
                yield step * 10.0**decade


def _count_axis(axes: Axes, low: float, high: float) -> None:
    axes.set_yscale("log")
    bounds = max(low, 1) / 1.3, high * 2.2
    axes.set_ylim(*bounds)
    _number_ticks(axes, "y", *bounds, lambda value: f"{value:,.0f}")


def _sessions_axis(axes: Axes, sessions: Sequence[int], bracket: Bracket | None, *, narrow: bool) -> None:
    lowest, highest = min(sessions), max(sessions)
    if bracket is not None:
        highest = max(highest, bracket.upper or bracket.lower)
    axes.set_xscale("log", base=2)
    axes.set_xlim(lowest / 1.12, highest * (1.12 if highest > lowest else 2))
    if highest == lowest:
        axes.set_xlim(lowest / 2, lowest * 2)
    ticks = _spread_out(sessions, 4 if narrow else 9)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_locator(FixedLocator([value for value in sessions if value not in ticks]))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_tick_params(which="both", length=3)


def _spread_out(sessions: Sequence[int], most: int) -> list[int]:
    """Choose the numbers of sessions to label so that no two labels touch, the first and the last for certain."""
    lowest, highest = min(sessions), max(sessions)
    if highest == lowest:
        return [lowest]
    apart = math.log(highest / lowest) / most
    chosen = [lowest]
    for value in sorted(sessions):
        if math.log(value / chosen[-1]) >= apart and math.log(highest / value) >= apart:
            chosen.append(value)
    return [*chosen, highest]
