"""How a report is to be read: the method in short, and where its limits are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.records import METHOD
from bench.stats import minimum_n
from reports.document import Bullets, Code, Section, Strong, paragraph

if TYPE_CHECKING:
    from reports.measurements import Measurements


def method(measurements: Measurements) -> Section:
    """Explain the numbers to somebody who reads such a report for the first time."""
    items = (
        (
            Strong("Cells and trials. "),
            (
                "A cell is one measurement: one environment under one workload, with one number of sessions, played once. A ceiling is "
                "looked for by many such cells, which are its trials; all that have the same number of sessions are pooled."
            ),
        ),
        (
            Strong("Phases. "),
            (
                "connect: until the session exists. reset: opening an episode, until the prompt is there. step: one tool call, "
                "until its observation is there. score: where a framework has one. close."
            ),
        ),
        (
            Strong("Quantiles. "),
            (
                "p99 is the smallest observed latency that 99 % of the operations do not exceed. It is taken from raw samples, "
                "never averaged and never interpolated. Behind it stands its 95 % interval; below "
                f"{minimum_n(0.5)} (p50), {minimum_n(0.95)} (p95) or {minimum_n(0.99)} (p99) operations no interval exists, and "
                "“n too small” stands instead of a number. With 6 or more trials the interval comes from resampling whole trials; with "
                "fewer it is made of order statistics of the pooled operations, and knows only the spread inside the trials."
            ),
        ),
        (
            Strong("Failures. "),
            (
                "A failed operation stays in n and counts as infinitely slow. Leaving it out would make an overloaded server look fast. "
                "∞ means that the rank of a quantile falls among failures."
            ),
        ),
        (
            Strong("Held sessions. "),
            (
                "All sessions of a cell are open at the same time, confirmed by count. A burst in which most sessions have left "
                "before the last one arrives is not concurrency."
            ),
        ),
        (
            Strong("Service and response. "),
            (
                "Service time runs from sending; response time from when the schedule meant to send. They differ only in an open loop, "
                "and then both are shown."
            ),
        ),
        (
            Strong("Ratios. "),
            (
                "Two subjects are compared in interleaved pairs of one run, never by putting two reports side by side. An interval that "
                "holds 1 is called “no difference shown”, which is not the same as “equal”."
            ),
        ),
        (
            Strong("One machine. "),
            (
                "Where server and load generator share the processors, latencies near the ceiling are upper bounds and the ceiling is a "
                "lower bound of what the server alone could hold."
            ),
        ),
        (
            Strong("Comparability. "),
            (
                "Numbers compare with another run only if machine, versions, plan and method are the same and both machines were quiet. "
                + _numbers(measurements)
            ),
        ),
    )
    traced = paragraph(
        "Every number here is computed from ",
        Code("records.jsonl"),
        " and ",
        Code("samples/"),
        " beside this report; rendering them again gives the same bytes. The tables are also there as CSV under ",
        Code("tables/"),
        ", times in nanoseconds.",
    )
    return Section("method", "How to read this", (Bullets(items), traced))


def _numbers(measurements: Measurements) -> str:
    header = measurements.run.header
    told = f"These records have schema {header.schema_version} and method {header.method}"
    if header.method >= METHOD:
        return f"{told}."
    judged = measurements.verdicts and not measurements.not_asked
    same = ", by whose criteria these trials were judged already" if judged else ""
    return f"{told}; newer runs have method {METHOD}{same}."
