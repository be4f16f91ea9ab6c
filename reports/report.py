"""A whole report of one run, put together from its parts."""

from __future__ import annotations

from reports import (
    arrivals,
    bursts,
    ceilings,
    comparison,
    errors,
    latency,
    live,
    method,
    overview,
    provenance,
    server,
)
from reports.document import Report
from reports.measurements import Measurements


def report(measurements: Measurements) -> Report:
    """Build the report of a run."""
    return Report(
        title=overview.title(measurements),
        subtitle=overview.subtitle(measurements),
        banners=overview.banners(measurements),
        summary=overview.summary(measurements),
        sections=tuple(
            section
            for section in (
                overview.measured(measurements),
                overview.conformance(measurements),
                latency.one_session(measurements),
                comparison.comparison(measurements),
                arrivals.arrivals(measurements),
                ceilings.ceiling(measurements),
                bursts.bursts(measurements),
                live.live(measurements),
                latency.over_sessions(measurements),
                ceilings.load(measurements),
                server.server(measurements),
                comparison.costs(measurements),
                errors.errors(measurements),
                method.method(measurements),
                provenance.provenance(measurements),
            )
            if section is not None
        ),
    )
