"""Latencies over the number of sessions, as the marks that two figures share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from reports import notation
from reports.charts.drawing import ink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes


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


def draw_medians(axes: Axes, steps: Sequence[Step], subject: str) -> None:
    """Draw the line of the medians."""
    known = [(step.sessions, *step.p50) for step in steps if step.p50 and math.isfinite(step.p50[0])]
    if known:
        at, values, _, _ = zip(*known, strict=True)
        axes.plot(at, values, color=ink(f"{subject}-soft"), linewidth=1.8, marker="o", markersize=4, zorder=3)


def draw_tails(axes: Axes, steps: Sequence[Step], subject: str, roof: float) -> None:
    """Draw the line of the p99s with intervals and verdicts; infinite ones stand at the upper edge, `roof`."""
    tails = [
        (step.sessions, *(step.p99 or (step.largest,) * 3), step.p99 is not None, step.verdict)
        for step in steps
    ]
    finite = [tail for tail in tails if math.isfinite(tail[1])]
    if finite:
        axes.plot(
            [tail[0] for tail in finite],
            [tail[1] for tail in finite],
            color=ink(subject),
            linewidth=1.8,
            zorder=4,
        )
    for sessions, value, low, high, enough, verdict in tails:
        shown = value if math.isfinite(value) else roof
        if enough and math.isfinite(low):
            axes.plot(
                (sessions, sessions),
                (low, high if math.isfinite(high) else roof),
                color=ink(subject),
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
            **verdict_style(verdict, subject, enough=enough, infinite=not math.isfinite(value)),
        )


def verdict_style(verdict: str | None, subject: str, *, enough: bool, infinite: bool) -> dict[str, Any]:
    """Return how a p99 is marked: verdicts differ in shape as well as in colour."""
    colour = ink("fail") if verdict in {"fail", "mixed"} else ink(subject)
    if infinite:
        return {"marker": "^", "color": colour, "markersize": 8}
    if verdict == "fail":
        return {"marker": "x", "color": colour, "markersize": 8, "markeredgewidth": 2.2}
    if verdict == "mixed":
        return {
            "marker": "D",
            "color": colour,
            "markersize": 6.5,
            "markerfacecolor": ink("paper"),
            "markeredgewidth": 1.8,
        }
    return {
        "marker": "o",
        "color": colour,
        "markersize": 6.5,
        "markeredgewidth": 1.6,
        "markerfacecolor": colour if enough else ink("paper"),
    }


def reference_line(
    axes: Axes, at: float | None, *, colour: str, label: str, dashes: Any, above: bool
) -> None:
    """Draw a labelled level, if there is one."""
    if not at:
        return
    axes.axhline(at, color=colour, linewidth=1.3, linestyle=dashes, zorder=2)
    axes.annotate(
        f"{label} {notation.duration(at)}",
        (0, at),
        xycoords=axes.get_yaxis_transform(),
        xytext=(5, 4 if above else -7),
        textcoords="offset points",
        color=colour,
        fontsize=11,
        va="bottom" if above else "top",
    )
