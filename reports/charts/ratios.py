"""Ratios with their intervals, beside the line that means no difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bench.stats import ratio_texts
from reports.charts.axes import number_ticks
from reports.charts.drawing import WIDTHS, Drawing, Shape, canvas, draw, ink, place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure


class Comparison(NamedTuple):
    """One ratio with its interval."""

    label: str
    detail: str
    value: float
    low: float
    high: float


def draw_ratios(name: str, rows: Sequence[Comparison]) -> Drawing:
    """Draw ratios with their intervals beside the line at 1, which means no difference."""
    return draw(name, lambda shape: _ratios(shape, rows))


def _ratios(shape: Shape, rows: Sequence[Comparison]) -> Figure:
    narrow = shape == "narrow"
    pitch, top, bottom = (56, 26, 48) if narrow else (42, 26, 50)
    left, right = (12, 12) if narrow else (210, 190)
    figure = canvas(shape, top + pitch * len(rows) + bottom)
    axes = place(figure, left, top, WIDTHS[shape] - left - right, pitch * len(rows))
    low = min(1 / 1.25, *(row.low for row in rows)) / 1.12
    high = max(1.25, *(row.high for row in rows)) * 1.12
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    number_ticks(axes, "x", low, high, lambda value: f"{value:g}")
    axes.set_ylim(len(rows), 0)
    axes.yaxis.set_visible(False)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=True, axis="x", which="major")
    axes.set_axisbelow(True)
    axes.set_xlabel(f"ratio{'' if narrow else ' of latencies'} (logarithmic); below 1, the first is faster")
    axes.axvline(1, color=ink("ink"), linewidth=1.2, zorder=2)
    axes.annotate(
        "no difference",
        (1, 1),
        xycoords=("data", "axes fraction"),
        xytext=(0, 5),
        textcoords="offset points",
        ha="center",
        fontsize=11,
        color=ink("quiet"),
    )
    along = axes.get_yaxis_transform()
    for position, row in enumerate(rows):
        shown = not row.low <= 1 <= row.high
        colour = ink("compiled") if shown else ink("quiet")
        y = position + (0.7 if narrow else 0.5)
        axes.plot((row.low, row.high), (y, y), color=colour, linewidth=3.4, alpha=0.45, zorder=3)
        axes.plot(
            (row.value,),
            (y,),
            marker="o",
            markersize=8,
            color=colour,
            zorder=4,
            markerfacecolor=colour if shown else ink("paper"),
            markeredgewidth=1.8,
        )
        numbers = "{} [{}, {}]".format(*ratio_texts(row.value, row.low, row.high))
        if narrow:
            box = {"facecolor": ink("paper"), "edgecolor": "none", "pad": 2.0}
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
                1.025, y + 0.2, row.detail, transform=along, va="center", fontsize=11, color=ink("quiet")
            )
    return figure
