"""How the latencies of several populations are distributed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from matplotlib.lines import Line2D

from reports import notation
from reports.charts.axes import time_axis
from reports.charts.drawing import DPI, WIDTHS, Drawing, Shape, canvas, draw, ink, place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray


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


def draw_distributions(name: str, rows: Sequence[Row]) -> Drawing:
    """Draw how the latencies of several populations are distributed, on one logarithmic axis.

    Args:
        name: Of the drawing.
        rows: From top to bottom; each has at least one latency.
    """
    return draw(name, lambda shape: _distributions(shape, rows))


def _distributions(shape: Shape, rows: Sequence[Row]) -> Figure:
    narrow = shape == "narrow"
    pitch, top, bottom = (78, 30, 46) if narrow else (58, 30, 46)
    left, right = (12, 12) if narrow else (150, 178)
    height = top + pitch * len(rows) + bottom
    figure = canvas(shape, height)
    axes = place(figure, left, top, WIDTHS[shape] - left - right, pitch * len(rows))
    low = min(float(row.ok_ns[0]) for row in rows)
    high = max(float(row.ok_ns[-1]) for row in rows)
    low, high = time_axis(axes, "x", max(low, 1.0), max(high, 1.0))
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
    axes.plot(limits, (ground, ground), color=ink("rule"), linewidth=0.8, zorder=1)
    if values.size < 30:
        # Too few for a shape: each one is shown.
        _ticks(axes, values, ground, tallest * 0.45, colour=ink(row.subject), width=1.0)
        return
    edges = np.geomspace(*limits, max(24, round(40 * math.log10(limits[1] / limits[0]))) + 1)
    counts, _ = np.histogram(values, edges)
    heights = ground - tallest * counts / counts.max()
    soft = ink(f"{row.subject}-soft")
    axes.stairs(heights, edges, baseline=ground, fill=True, color=soft, linewidth=0, zorder=2)
    # An operation that happened once must be seen, even where 1 of 100,000 is no height at all.
    rare = (counts > 0) & (counts < 0.02 * counts.max())
    centres = np.sqrt(edges[:-1] * edges[1:])
    _ticks(axes, centres[rare], ground, 0.055, colour=ink(f"{row.subject}-soft"), width=1.2)


def _ticks(
    axes: Axes, at: NDArray[np.float64], ground: float, height: float, *, colour: str, width: float
) -> None:
    """Draw short upright lines as one path, which is a tenth of the size of as many paths."""
    across = np.repeat(at, 3)
    up = np.tile((ground, ground - height, np.nan), at.size)
    axes.plot(across, up, color=colour, linewidth=width, solid_capstyle="butt", zorder=2)


_MARKERS: Final = {"p50": "o", "p95": "s", "p99": "D"}


def _quantile_marks(axes: Axes, row: Row, y: float, edge: float) -> None:
    colour = ink(row.subject)
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
            markeredgecolor=ink("paper"),
            markeredgewidth=0.8,
        )


def _row_texts(axes: Axes, row: Row, position: int, ground: float, *, narrow: bool) -> None:
    shown = {label: value for label, value, _, _ in row.marks}
    numbers = (
        " · ".join(f"{label} {notation.duration(shown[label])}" for label in ("p50", "p99") if label in shown)
        or "n too small for quantiles"
    )
    detail = f"{row.detail}, n {row.n:,}" if row.detail else f"n {row.n:,}"
    failed = f"{row.failures:,} failed" if row.failures else ""
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
            color=ink("quiet"),
        )
        axes.text(1, position + 0.14, numbers, transform=along, ha="right", va="center", fontsize=10.5)
        if failed:
            axes.text(
                1,
                position + 0.36,
                failed,
                transform=along,
                ha="right",
                va="center",
                fontsize=10.5,
                color=ink("fail"),
            )
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
        color=ink("quiet"),
    )
    axes.text(1.018, ground - (0.26 if failed else 0.12), numbers, transform=along, va="center", fontsize=11)
    if failed:
        axes.text(1.018, ground + 0.05, failed, transform=along, va="center", fontsize=11, color=ink("fail"))


def _mark_legend(figure: Figure, axes: Axes, top: float, *, narrow: bool) -> None:
    handles = [
        Line2D(
            [],
            [],
            color=ink("rule"),
            marker=marker,
            markersize=6.5,
            linewidth=3.2,
            label=label,
            markerfacecolor=ink("quiet"),
            markeredgewidth=0,
        )
        for label, marker in _MARKERS.items()
    ]
    height = figure.get_size_inches()[1] * DPI
    figure.legend(
        handles=handles,
        loc="center left",
        ncols=3,
        fontsize=11,
        handlelength=1.6,
        columnspacing=1.2,
        bbox_to_anchor=(0.0 if narrow else axes.get_position().x0 - 0.01, 1 - (top * 0.42) / height),
        labelcolor=ink("quiet"),
        borderpad=0,
    )
