"""The report of the published method: bursts judged by success alone, beside the sessions that are held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.records import Burst
from reports import notation
from reports.document import Block, Column, Entry, Section, Strong, Table, paragraph

if TYPE_CHECKING:
    from reports.measurements import Measurements


def largest_burst(measurements: Measurements) -> Burst | None:
    """Return the largest burst that passed; nothing when none did."""
    return max(
        (one for one in measurements.run.of(Burst) if one.passed), key=lambda one: one.sessions, default=None
    )


def burst_sentence(measurements: Measurements) -> str:
    """Say in words what the published method found."""
    bursts = measurements.run.of(Burst)
    largest = largest_burst(measurements)
    failed = min((one.sessions for one in bursts if not one.passed), default=None)
    end = f"{failed:,} failed" if failed else "no larger one was tried"
    if largest is None:
        return f"none passed ({end})"
    return f"a burst of {largest.sessions:,} passed ({end}), of which {_together(largest)} open together"


def bursts(measurements: Measurements) -> Section | None:
    """Report the bursts, and why their size is not a number of held sessions; nothing where none was played."""
    found = measurements.run.of(Burst)
    if not found:
        return None
    method = found[-1].method
    blocks: list[Block] = [
        paragraph(
            Strong(f"{method}. "),
            "N coroutines of one client process start at the same time; each connects, resets, makes one step and closes. The "
            "largest N of which at least 95 % succeed, on the mean of the repetitions, is what this method reports. No latency "
            "is asked for, and no answer is compared. Played here with the framework's own client, on the server in which the "
            "search for held sessions began afterwards.",
        ),
        Table(
            caption="Bursts, judged by success alone",
            about=f"one step of {notation.duration(found[-1].tool_ns)} per session",
            columns=(
                Column("Size of the burst", "sessions", numeric=True),
                Column("Repetitions", numeric=True),
                Column("Mean success", numeric=True),
                Column("Verdict"),
                Column("Duration", "median", numeric=True),
                Column("Open together", "mean, Little's law", numeric=True),
                Column("Open together", "most, by the client", numeric=True),
                Column("Open together", "most, by the server", numeric=True),
                Column("Steps under way", "size x wait / duration", numeric=True),
            ),
            rows=tuple(
                (
                    Entry(f"{one.sessions:,}"),
                    Entry(f"{one.repetitions:,}"),
                    Entry(notation.share(one.mean_success)),
                    Entry("passed", tone="good") if one.passed else Entry("failed", tone="bad"),
                    Entry(notation.duration(one.wall_s * 1e9)),
                    Entry(notation.count(round(one.mean_open, 1))),
                    Entry(f"{one.peak_open:,}"),
                    Entry(f"{one.server_open:,}"),
                    Entry(notation.count(round(one.executing, 1))),
                )
                for one in found
            ),
            remarks=(
                (
                    "Little's law: sessions that leave per second x the time that each is in the system = sessions in the system. "
                    "The last column is what the published results call effective concurrency."
                ),
            ),
        ),
    ]
    return Section("bursts", "The published method beside ours", (*blocks, *_difference(measurements)))


def _difference(measurements: Measurements) -> list[Block]:
    largest = largest_burst(measurements)
    held = next((one for one in measurements.ceilings if one.criterion == "slo"), None)
    if largest is None or held is None:
        return [paragraph(Strong("No comparison. "), "One of the two methods has no result in this run.")]
    most = "at least " if held.censored else ""
    return [
        paragraph(
            Strong("Why the two numbers differ. "),
            f"The burst method reports {largest.sessions:,}: so many sessions came within one burst, and {notation.share(largest.mean_success)} "
            f"of them succeeded. Over the {notation.duration(largest.wall_s * 1e9)} that it lasted, {_together(largest)} were open together: "
            "a session is open only from its own connect to its own close, and how many overlap is decided by how fast the client "
            f"starts them. Held sessions are all open at the same time by construction, play {_shape(measurements)}, and must be answered "
            f"rightly and in time: {most}{held.lower:,} of them were. Neither number can stand for the other.",
        )
    ]


def _together(burst: Burst) -> str:
    return f"{notation.count(round(burst.mean_open))} on average and {burst.server_open:,} at most"


def _shape(measurements: Measurements) -> str:
    turns = next((one.workload.get("turns") for one in measurements.ceilings), None)
    return notation.plural(int(turns), "step") if isinstance(turns, int) else "several steps"
