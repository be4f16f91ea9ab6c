"""The server's memory, threads and file descriptors over the number of sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from reports.charts.axes import count_axis, sessions_axis
from reports.charts.drawing import WIDTHS, Drawing, Shape, canvas, draw, ink, panel_title, place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Reading(NamedTuple):
    """The server's own side at one number of sessions."""

    sessions: int
    rss_bytes: float | None
    threads: int | None
    fds: int | None


def draw_server(name: str, readings: Sequence[Reading]) -> Drawing:
    """Draw the server's memory, threads and file descriptors over the number of sessions."""
    return draw(name, lambda shape: _server(shape, readings))


def _server(shape: Shape, readings: Sequence[Reading]) -> Figure:
    narrow = shape == "narrow"
    left, right, gap, plot, bottom, top = (58, 22, 78, 170, 50, 30) if narrow else (76, 40, 84, 240, 52, 34)
    across = 1 if narrow else 2
    width = (WIDTHS[shape] - left - right - gap * (across - 1)) / across
    figure = canvas(shape, top + (2 * plot + gap if narrow else plot) + bottom)
    sessions = [reading.sessions for reading in readings]
    memory = place(figure, left, top, width, plot)
    counts = place(
        figure, left + (0 if narrow else width + gap), top + (plot + gap if narrow else 0), width, plot
    )
    for axes, title in ((memory, "resident memory, MiB"), (counts, "threads and file descriptors")):
        panel_title(axes, title)
        axes.set_xlabel("sessions (logarithmic)")
        axes.grid(visible=True, axis="y", which="major")
        axes.set_axisbelow(True)
        sessions_axis(axes, sessions, most=4)
    mebibytes = [(r.sessions, r.rss_bytes / 2**20) for r in readings if r.rss_bytes]
    if mebibytes:
        memory.plot(
            *zip(*mebibytes, strict=True), color=ink("compiled"), marker="o", markersize=5, linewidth=1.8
        )
        memory.set_ylim(0, max(value for _, value in mebibytes) * 1.12)
    else:
        _not_measured(memory)
    threads = [(r.sessions, r.threads) for r in readings if r.threads]
    fds = [(r.sessions, r.fds) for r in readings if r.fds]
    _labelled_line(counts, threads, "threads", color=ink("compiled"), marker="o")
    _labelled_line(
        counts, fds, "file descriptors", color=ink("baseline"), marker="s", linestyle=(0, (4, 1.5))
    )
    if threads or fds:
        values = [value for _, value in threads + fds]
        count_axis(counts, min(values), max(values))
        counts.legend(fontsize=11, loc="upper left", labelcolor=ink("quiet"), handlelength=1.6)
    else:
        _not_measured(counts)
    return figure


def _labelled_line(axes: Axes, points: Sequence[tuple[int, int]], label: str, **style: Any) -> None:
    if points:
        axes.plot(
            *zip(*points, strict=True),
            markersize=5,
            linewidth=1.8,
            label=label,
            **style,
        )


def _not_measured(axes: Axes) -> None:
    axes.set_yticks([])
    axes.text(
        0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", va="center", color=ink("quiet")
    )
