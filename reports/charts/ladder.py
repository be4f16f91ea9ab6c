"""The latency of a step over the sessions held, with the limit, the verdicts and the bracket of the ceiling."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from matplotlib.lines import Line2D

from reports.charts.axes import sessions_axis, time_axis
from reports.charts.drawing import DPI, WIDTHS, Drawing, Shape, canvas, draw, ink, place
from reports.charts.steps import Step, draw_medians, draw_tails, reference_line, verdict_style

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Bracket(NamedTuple):
    """Where a ceiling lies."""

    lower: int
    upper: int | None
    label: str


def draw_ladder(
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
    return draw(
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
    left, right, top, plot, bottom = (70, 14, 62, 250, 50) if narrow else (76, 30, 44, 330, 52)
    figure = canvas(shape, top + plot + bottom)
    axes = place(figure, left, top, WIDTHS[shape] - left - right, plot)
    finite = [
        t for step in steps for t in (*(step.p50 or ()), *(step.p99 or ()), step.largest) if math.isfinite(t)
    ]
    finite += [t for t in (limit_ns, tool_ns) if t]
    finite = finite or [1e6]
    _, roof = time_axis(axes, "y", max(min(finite), 1.0), max(finite))
    sessions_axis(
        axes,
        [step.sessions for step in steps],
        most=4 if narrow else 9,
        beyond=(bracket.upper or bracket.lower) if bracket else 0,
    )
    axes.grid(visible=True, axis="y", which="major")
    axes.set_axisbelow(True)
    axes.set_xlabel("sessions held open at the same time (logarithmic)")
    axes.set_ylabel("step (logarithmic)" if narrow else "service time of a step (logarithmic)")
    reference_line(axes, limit_ns, colour=ink("limit"), label="p99 limit", dashes=(0, (5, 3)), above=True)
    reference_line(
        axes, tool_ns, colour=ink("quiet"), label="the tool itself", dashes=(0, (1, 2)), above=False
    )
    if bracket is not None:
        _bracket(axes, bracket, shape)
    draw_medians(axes, steps, subject)
    draw_tails(axes, steps, subject, roof)
    _ladder_legend(figure, steps, subject, left, narrow=narrow)
    return figure


def _ladder_legend(figure: Figure, steps: Sequence[Step], subject: str, left: float, *, narrow: bool) -> None:
    def handle(label: str, **style: Any) -> Line2D:
        return Line2D([], [], label=label, **style)

    colour = ink(subject)
    verdicts = {step.verdict for step in steps}
    handles = [
        handle("p50", color=ink(f"{subject}-soft"), marker="o", markersize=4, linewidth=1.8),
        handle("p99", color=colour, linewidth=1.8, marker="o", markersize=6.5),
    ]
    if any(step.p99 is None for step in steps):
        handles.append(
            handle(
                "largest, n too small for p99",
                linestyle="none",
                **verdict_style(None, subject, enough=False, infinite=False),
            )
        )
    if verdicts & {"fail", "mixed"}:
        handles.append(
            handle(
                "criterion failed",
                linestyle="none",
                **verdict_style("fail", subject, enough=True, infinite=False),
            )
        )
    if "mixed" in verdicts:
        handles.append(
            handle(
                "some trials failed it",
                linestyle="none",
                **verdict_style("mixed", subject, enough=True, infinite=False),
            )
        )
    if any(not math.isfinite((step.p99 or (step.largest,))[0]) for step in steps):
        handles.append(
            handle(
                "among failed operations",
                linestyle="none",
                **verdict_style("fail", subject, enough=True, infinite=True),
            )
        )
    height = figure.get_size_inches()[1] * DPI
    figure.legend(
        handles=handles,
        loc="upper left",
        ncols=2 if narrow else len(handles),
        fontsize=10 if narrow else 11,
        bbox_to_anchor=((0 if narrow else left - 6) / WIDTHS["narrow" if narrow else "wide"], 1 - 4 / height),
        handlelength=1.6,
        columnspacing=1.2,
        labelcolor=ink("quiet"),
        borderpad=0,
    )


def _bracket(axes: Axes, bracket: Bracket, shape: Shape) -> None:
    lowest, highest = axes.get_xlim()
    start = max(bracket.lower, lowest)
    end = bracket.upper if bracket.upper is not None else highest
    axes.axvspan(start, end, color=ink("bracket"), alpha=0.22, linewidth=0, zorder=1)
    for edge in (bracket.lower, bracket.upper):
        if edge is not None and edge > lowest:
            axes.axvline(edge, color=ink("bracket"), linewidth=1.0, zorder=1)
    late = start / lowest >= highest / end
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
