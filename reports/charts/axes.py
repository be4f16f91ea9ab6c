"""Logarithmic axes with labels that people read: durations, counts, numbers of sessions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from matplotlib.axes import Axes


def time_axis(axes: Axes, which: Literal["x", "y"], low: float, high: float) -> tuple[float, float]:
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
    number_ticks(axes, which, low, high, _tick_duration)
    return low, high


def _tick_duration(ns: float) -> str:
    divisor, unit = next(
        (divisor, unit)
        for divisor, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns"))
        if ns >= divisor or unit == "ns"
    )
    return f"{ns / divisor:g} {unit}"


def number_ticks(
    axes: Axes, which: Literal["x", "y"], low: float, high: float, label: Callable[[float], str]
) -> None:
    """Put labels on a logarithmic axis, as densely as its length in decades allows."""
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


def count_axis(axes: Axes, low: float, high: float) -> None:
    """Set a logarithmic axis of numbers of things, with room for a legend above them."""
    axes.set_yscale("log")
    bounds = max(low, 1) / 1.3, high * 2.2
    axes.set_ylim(*bounds)
    number_ticks(axes, "y", *bounds, lambda value: f"{value:,.0f}")


def sessions_axis(axes: Axes, sessions: Sequence[int], *, most: int, beyond: int = 0) -> None:
    """Set a logarithmic axis of the numbers of sessions that were measured.

    Args:
        axes: Where.
        sessions: What was measured; each gets a tick.
        most: How many of them there is room to label.
        beyond: A larger number that must be on the axis, too.
    """
    lowest, highest = min(sessions), max(*sessions, beyond)
    axes.set_xscale("log", base=2)
    axes.set_xlim(lowest / 1.12, highest * (1.12 if highest > lowest else 2))
    if highest == lowest:
        axes.set_xlim(lowest / 2, lowest * 2)
    ticks = _spread_out(sessions, most)
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
