"""Latency over the releases of each framework: one small picture per framework, medians with intervals, on logarithmic axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from matplotlib.lines import Line2D

from reports.charts.axes import time_axis
from reports.charts.drawing import WIDTHS, Drawing, Shape, canvas, draw, ink, panel_title, place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Measured(NamedTuple):
    """A median of one phase in one release.

    Attributes:
        series: The phase, `step` or `connect`.
        value: The median, in ns.
        low: Lower end of its interval.
        high: Upper end.
        is_change: Whether it was shown to differ from the default release.
    """

    series: str
    value: float
    low: float
    high: float
    is_change: bool


class ReleaseColumn(NamedTuple):
    """One release: package, label, whether it is the default, and what was measured; nothing where nothing could be."""

    package: str
    label: str
    is_default: bool
    marks: tuple[Measured, ...]


class FrameworkPanel(NamedTuple):
    """One framework with its releases, oldest first."""

    title: str
    releases: tuple[ReleaseColumn, ...]


_SERIES: Final = {"step": ("compiled", "o"), "connect": ("baseline", "D")}
_ACROSS: Final = {"wide": 2, "narrow": 1}


def draw_releases(name: str, panels: Sequence[FrameworkPanel]) -> Drawing:
    """Draw medians over releases; a filled mark is a change that was shown, a square round it the default release."""
    return draw(name, lambda shape: _releases(shape, panels))


def _releases(shape: Shape, panels: Sequence[FrameworkPanel]) -> Figure:
    across = _ACROSS[shape]
    left, right, gap, plot, below, top = (
        (64, 12, 0, 150, 96, 62) if across == 1 else (70, 16, 74, 170, 104, 62)
    )
    down = -(-len(panels) // across)
    width = (WIDTHS[shape] - left - right - gap * (across - 1)) / across
    figure = canvas(shape, top + down * (plot + below))
    for position, panel in enumerate(panels):
        row, column = divmod(position, across)
        axes = place(figure, left + column * (width + gap), top + row * (plot + below), width, plot)
        _panel(axes, panel)
        if column == 0:
            axes.set_ylabel("median (logarithmic)")
    _legend(figure, left, narrow=across == 1)
    return figure


def _panel(axes: Axes, panel: FrameworkPanel) -> None:
    marks = [mark for release in panel.releases for mark in release.marks]
    values = [end for mark in marks for end in (mark.low, mark.high)] or [1e5, 1e6]
    low, high = min(values), max(values)
    time_axis(axes, "y", low, max(2 * low, high))
    axes.set_xlim(-0.6, len(panel.releases) - 0.4)
    axes.set_xticks(range(len(panel.releases)), [release.label for release in panel.releases])
    axes.tick_params(axis="x", rotation=35, length=3)
    for label in axes.get_xticklabels():
        label.set_horizontalalignment("right")
        label.set_rotation_mode("anchor")
    axes.grid(visible=True, axis="y", which="major")
    axes.set_axisbelow(True)
    panel_title(axes, panel.title)
    for series, (colour, marker) in _SERIES.items():
        known = [
            (place, mark)
            for place, release in enumerate(panel.releases)
            for mark in release.marks
            if mark.series == series
        ]
        # A line joins releases of one package: from one package to another there is no way to upgrade.
        for package in dict.fromkeys(release.package for release in panel.releases):
            joined = [
                (place, mark.value) for place, mark in known if panel.releases[place].package == package
            ]
            at, values = [one[0] for one in joined], [one[1] for one in joined]
            axes.plot(at, values, color=ink(f"{colour}-soft"), linewidth=1.6, zorder=3)
        for place_, mark in known:
            axes.plot(
                (place_, place_),
                (mark.low, mark.high),
                color=ink(colour),
                linewidth=3.4,
                alpha=0.35,
                zorder=4,
            )
            axes.plot(
                (place_,), (mark.value,), marker=marker, markersize=6.5, color=ink(colour), linestyle="none", zorder=5,
                markeredgewidth=1.6, markerfacecolor=ink(colour) if mark.is_change else ink("paper"),
            )  # fmt: skip
    for place_, release in enumerate(panel.releases):
        if release.is_default:
            for mark in release.marks:
                axes.plot(
                    (place_,), (mark.value,), marker="s", markersize=13, linestyle="none", zorder=4,
                    markerfacecolor="none", markeredgecolor=ink("quiet"), markeredgewidth=1.2,
                )  # fmt: skip
        if not release.marks:
            axes.annotate(
                "not measured", (place_, 0), xycoords=("data", "axes fraction"), xytext=(0, 6), textcoords="offset points",
                rotation=90, ha="center", va="bottom", fontsize=11, color=ink("quiet"),
            )  # fmt: skip


def _legend(figure: Figure, left: float, *, narrow: bool) -> None:
    def handle(colour: str, marker: str, label: str, *, filled: bool = False, size: float = 6.5) -> Line2D:
        return Line2D(
            [], [], color=ink(colour), marker=marker, markersize=size, linestyle="none", label=label, markeredgewidth=1.6,
            markerfacecolor=ink(colour) if filled else "none",
        )  # fmt: skip

    handles = [
        handle("compiled", "o", "step"),
        handle("baseline", "D", "connect"),
        handle("quiet", "o", "filled: a change was shown", filled=True),
        handle("quiet", "s", "default release", size=10),
    ]
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(left / figure.get_size_inches()[0] / 72, 1),
        ncols=2 if narrow else 4,
        borderaxespad=0,
        handletextpad=0.4,
        columnspacing=1.2,
        fontsize=11,
    )
