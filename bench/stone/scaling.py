"""Scaling: how a framework holds many sessions, how many it held here, and how that relates to what others have published.

Everything measured is read from the published runs, as many as there are. A published figure of others is compared with them
condition by condition, and with those that differ the reason is given why the two are not the same measurement.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from bench.ceiling import not_asked
from bench.facts import Evidence, Fact, Record, Source
from bench.records import METHOD, Ceiling, Conformance, Run, Verdict
from bench.stacks import Stack
from bench.stone.pieces import declared_of, shown_of
from bench.stone.places import line_of
from bench.stone.runs import Measurement, line_in, measurements, published_runs
from bench.stone.subject import fact_of
from canonical.adapter import Feature
from canonical.landscape import LANDSCAPE_FILE, Published, read_landscape

TABLE = "scaling"

ROWS = {
    "ceiling": "ceiling slo",
    "ceiling per core": "ceiling slo per core",
    "success alone": "ceiling success_only",
    "live episodes": "live episodes",
    "throughput": "throughput",
    "memory per session": "memory per session",
}
"""Row -> the figure of a run."""

SEARCHED = ("ceiling", "ceiling per core", "success alone")
"""Rows of what is searched for on a server."""

NO_SERVER = "none: it is stepped in one process, with no server to search; live episodes are measured instead"
NO_PROCESS = "not measured: a server holds the sessions"


def gather_scaling(stack: Stack) -> list[Fact]:
    """Return what is said and measured of many sessions of a framework; nothing is run.

    Raises:
        RunError: A published run is damaged.
    """
    runs = published_runs(stack.adapter)
    folder = stack.features_file.parent
    facts = [
        fact_of(
            stack, TABLE, "model", stack.facts.concurrency, "declared",
            [line_of(folder / "adapter.toml", "concurrency ="), *shown_of(stack, Feature.CONCURRENT_SESSIONS)],
        ),
        fact_of(
            stack, TABLE, "isolation", _isolation(stack, runs), "probed",
            [*shown_of(stack, Feature.CONCURRENT_SESSIONS), *_conformances(runs)],
        ),
    ]  # fmt: skip
    for row, figure in ROWS.items():
        found = [(run, one) for run in runs if (one := measurements(run).get(figure)) is not None]
        if found:
            facts.append(
                fact_of(
                    stack, TABLE, row, "\n".join(_told(run, row, one) for run, one in found), "measured",
                    [one.shown_in(run) for run, one in found],
                    [{"run": run.folder.name, "value": one.value, "unit": one.unit} for run, one in found],
                )
            )  # fmt: skip
        elif runs and (why := _why_not(stack, row)):
            facts.append(
                fact_of(stack, TABLE, row, why, "declared", [line_of(folder / "adapter.toml", "kind =")])
            )
    for number, published in enumerate(read_landscape(folder).published, start=1):
        facts.append(_published(stack, f"published by others ({number})", published, runs))
    return facts


def _why_not(stack: Stack, row: str) -> str:
    """Say why no run of a framework can have a figure; nothing where one could, and has not."""
    if stack.facts.kind == "server":
        return NO_PROCESS if row == "live episodes" else ""
    return NO_SERVER if row in SEARCHED else ""


def _isolation(stack: Stack, runs: list[Run]) -> str:
    level = declared_of(stack, Feature.CONCURRENT_SESSIONS)
    told = [
        f"{one.episodes:,} episodes in conformance, {one.divergences} of them divergent"
        for run in runs
        for one in run.of(Conformance)
    ]
    return "; ".join([f"sessions side by side: {level}", *told])


def _conformances(runs: list[Run]) -> list[Evidence]:
    return [
        Record(run=run.folder.name, record="conformance", line=line_in(run, one))
        for run in runs
        for one in run.of(Conformance)
    ]


def _told(run: Run, row: str, one: Measurement) -> str:
    """Say a figure with what belongs to it: how it was found, where, and by which method where that is not today's."""
    if one.unit == "bytes":
        kib = one.value / 1024
        figure = f"{kib:,.{1 if kib >= 10 else 2}f} KiB"
    else:
        upper = f" ({one.upper:,.0f} failed)" if one.upper is not None else ""
        figure = " ".join(filter(None, [one.bound, f"{one.value:,.0f} {one.unit}{upper}"]))
    where = f"{run.header.environment.name}, {run.header.machine.cores} cores"
    return "; ".join(filter(None, [figure, one.note, where, caveat_of(run, is_judged=row in SEARCHED)]))


def caveat_of(run: Run, *, is_judged: bool) -> str:
    """Say by which older method a run was measured; nothing for today's method.

    Args:
        run: The run.
        is_judged: Whether the figure is one of trials that were judged, so that it matters by which criteria.
    """
    method = run.header.method
    if method >= METHOD:
        return ""
    told = f"method {method}, newer runs have {METHOD}"
    if not is_judged:
        return told
    fewer = listed([f"`{name}`" for name in not_asked(method, run.of(Verdict))])
    if fewer:
        return (
            f"{told}: its trials were not judged by {fewer}, so compare it with no ceiling whose trials were"
        )
    return f"{told}: its trials were judged by the same criteria"


def listed(names: Sequence[str]) -> str:
    """Return names as a list in a sentence."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def conditions_of(run: Run) -> dict[str, str]:
    """Return under which conditions the ceiling of a run was found, in the words that published figures are given in."""
    found = {"cores": f"{run.header.machine.cores}", "machines": "1"}
    for ceiling in run.of(Ceiling):
        if ceiling.subject == "compiled" and ceiling.criterion == "slo":
            workload = ceiling.workload
            seconds = workload.get("tool_ns")
            found |= {
                "sessions": "all held open at once",
                "step": f"{seconds / 1e9:g} s" if isinstance(seconds, int) else "unknown",
                "steps": f"{workload.get('turns')}",
                "passes when": "success, p99 of a step, connect, reset and sessions open all pass",
            }
    return found


def differing_conditions(theirs: Mapping[str, str], run: Run) -> dict[str, str]:
    """Return the conditions under which a published figure and a run were not the same, each with both; none where all were.

    Args:
        theirs: Name of a condition -> what it was; one that is left out was not said, and differs from whatever it was here.
        run: The run.
    """
    return {
        name: f"{theirs.get(name, 'not said')} there, {mine} here"
        for name, mine in conditions_of(run).items()
        if theirs.get(name) != mine
    }


def _published(stack: Stack, row: str, published: Published, runs: list[Run]) -> Fact:
    place = line_of(stack.features_file.parent / LANDSCAPE_FILE, published.says)
    url = read_landscape(stack.features_file.parent).url_of(published)
    evidence: list[Evidence] = [Source(title=published.source, date=published.dated, url=url), place]
    told = f"{published.says} ({published.source}, {published.dated})"
    data: dict[str, JsonValue] = {"says": published.says, "compares": None}
    if not runs:
        value = f"{told}: nothing was measured here to compare it with"
    else:
        run = runs[-1]
        differing = differing_conditions(published.conditions, run)
        data["compares"] = not differing
        evidence += [one.shown_in(run) for one in [measurements(run).get("ceiling slo")] if one is not None]
        reasons = "; ".join(f"{name}: {both}" for name, both in differing.items())
        value = (
            f"{told}: does not compare. {reasons}" if differing else f"{told}: the conditions are the same"
        )
    return fact_of(stack, TABLE, row, value, "sourced", evidence, json.loads(json.dumps(data)))
