"""The phases beside the step, one small picture each, on one common time axis."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from reports.charts.axes import sessions_axis, time_axis
from reports.charts.drawing import WIDTHS, Drawing, Shape, canvas, draw, ink, panel_title, place
from reports.charts.steps import Step, draw_medians, draw_tails, reference_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure


class Panel(NamedTuple):
    """One small picture of a phase over the number of sessions."""

    title: str
    steps: tuple[Step, ...]
    limit_ns: float | None


def draw_panels(name: str, parts: Sequence[Panel], *, subject: str) -> Drawing:
    """Draw the other phases over the number of sessions, on one common time axis."""
    return draw(name, lambda shape: _panels(shape, parts, subject))


def _panels(shape: Shape, parts: Sequence[Panel], subject: str) -> Figure:
    narrow = shape == "narrow"
    left, right, gap, plot, bottom, top = (58, 14, 54, 150, 50, 30) if narrow else (76, 30, 30, 220, 52, 40)
    across = 1 if narrow else len(parts)
    down = len(parts) if narrow else 1
    width = (WIDTHS[shape] - left - right - gap * (across - 1)) / across
    figure = canvas(shape, top + down * plot + (down - 1) * gap + bottom)
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
        axes = place(
            figure,
            left + (0 if narrow else position * (width + gap)),
            top + (position * (plot + gap) if narrow else 0),
            width,
            plot,
        )
        _, roof = time_axis(axes, "y", max(min(times), 1.0), max(times))
        sessions_axis(axes, sessions, most=4 if narrow or across > 2 else 9)
        axes.grid(visible=True, axis="y", which="major")
        axes.set_axisbelow(True)
        panel_title(axes, part.title)
        if position and not narrow:
            axes.tick_params(axis="y", labelleft=False)
        reference_line(
            axes, part.limit_ns, colour=ink("limit"), label="p99 limit", dashes=(0, (5, 3)), above=True
        )
        draw_medians(axes, part.steps, subject)
        draw_tails(axes, part.steps, subject, roof)
        if narrow and position == len(parts) - 1:
            axes.set_xlabel("sessions held (logarithmic)")
    if not narrow:
        figure.text(
            (left + (WIDTHS[shape] - left - right) / 2) / WIDTHS[shape],
            8 / (top + plot + bottom),
            "sessions held open at the same time (logarithmic)",
            ha="center",
            color=ink("quiet"),
        )
        figure.axes[0].set_ylabel("service time (logarithmic)")
    return figure
