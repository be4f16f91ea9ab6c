"""Checks: whether a published statement holds, by what an installed release answers, by tables, and by measurements.

There is one function per kind of check. Each says whether the statement holds, what is true now, and what shows it.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from bench.facts import Evidence, Fact, Probe
from bench.records import Run
from bench.stacks import ROOT
from bench.stone.asking import Release
from bench.stone.places import code_of
from bench.stone.runs import Measurement, measurements, published_runs
from bench.stone.scaling import differing_conditions
from bench.stone.subject import symbol_of
from canonical import claims

_FILE = ROOT / "bench" / "stone" / "checks.py"
_TOLERANCE = 0.1
"""How far a stated product may be from the product of its factors, as a share."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Hold what a check has found.

    Attributes:
        holds: Whether the statement holds; None when there is nothing that could show it.
        now: What is true now, in one sentence.
        evidence: What shows it.
    """

    holds: bool | None
    now: str
    evidence: tuple[Evidence, ...]


def check(what: claims.Check, release: Release, known: Mapping[tuple[str, str], Fact]) -> Finding:
    """Check a statement against a release.

    Args:
        what: The check.
        release: What the release has answered; it has been asked everything that `questions` names.
        known: Facts of the tables about the framework, by table and row.
    """
    match what:
        case claims.Cell():
            return _cell(what, known)
        case claims.Figure():
            return _figure(what, release)
        case claims.Arithmetic():
            return _arithmetic(what)
        case _:
            return _ON_RELEASE[type(what)](what, release)


def is_of_a_release(what: claims.Check) -> bool:
    """Whether the check asks an installed release, so that another release may answer otherwise."""
    return type(what) in _ON_RELEASE


def questions(checks: Sequence[claims.Check]) -> dict[str, list[str]]:
    """Return what a release must be asked for these checks: names and expressions."""
    return {
        "names": [name for one in checks if isinstance(one, claims.Symbols) for name in one.symbols],
        "expressions": [one.run for one in checks if isinstance(one, claims.Expression)],
    }


def _probe(function: Callable[..., Any], sent: str, seen: str) -> Probe:
    place = code_of(_FILE, function.__name__)
    return Probe(
        name=function.__name__.strip("_"),
        sent=sent,
        seen=seen,
        file=place.file,
        line=place.first,
        function=place.name,
    )


def _named(release: Release) -> str:
    return f"{release.stack.release.package} {release.stack.release.version}"


def _package(what: claims.Package, release: Release) -> Finding:
    name = str(release.metadata["name"])
    probe = _probe(_package, f"the name of the distribution of {_named(release)}", name)
    return Finding(name == what.name, f"the package is {name}", (probe,))


def _python(what: claims.Python, release: Release) -> Finding:
    found = str(release.metadata.get("requires_python") or "")
    probe = _probe(_python, f"Requires-Python of {_named(release)}", found or "nothing")
    specifier = SpecifierSet(found)
    refused = [version for version in what.runs_on if not specifier.contains(version)]
    holds = not refused and (not what.specifier or specifier == SpecifierSet(what.specifier))
    later = [after for version in what.runs_on if not specifier.contains(after := _next_patch(version))]
    without = (
        f", which refuses {', '.join(refused)}"
        if refused
        else f", which excludes {', '.join(later)} and later"
        if later
        else ""
    )
    return Finding(holds, f"its metadata says {found or 'nothing'}{without}", (probe,))


def _next_patch(version: str) -> str:
    major, minor, patch = Version(version).release
    return f"{major}.{minor}.{patch + 1}"


def _metadata(what: claims.Metadata, release: Release) -> Finding:
    found = str(release.metadata.get(what.field) or "nothing").strip().partition("\n")[0]
    probe = _probe(_metadata, f"{what.field} of {_named(release)}", found)
    return Finding(found == what.value, f"its metadata says {found}", (probe,))


def _requires(what: claims.Requires, release: Release) -> Finding:
    asked = [Requirement(text) for text in release.metadata.get("requires_dist") or ()]
    mine = [one for one in asked if one.name == what.distribution and "extra" not in str(one.marker or "")]
    seen = "; ".join(map(str, mine)) or "no such requirement"
    probe = _probe(_requires, f"what {_named(release)} requires of {what.distribution}", seen)
    same = bool(mine) and (
        not what.specifier or any(one.specifier == SpecifierSet(what.specifier) for one in mine)
    )
    now = f"it requires {seen}" if mine else f"it does not require {what.distribution}"
    return Finding(same if what.there else not mine, now, (probe,))


def _symbols(what: claims.Symbols, release: Release) -> Finding:
    found = {name: release.names[name] for name in what.symbols}
    missing = [name for name, one in found.items() if one.missing is not None]
    there = [name for name in found if name not in missing]
    evidence: list[Evidence] = [symbol_of(found[name]) for name in there]
    evidence += [
        _probe(_symbols, f"{name} in {_named(release)}", found[name].missing or "") for name in missing
    ]
    parts = [
        *([f"{_listed(there)} {'is' if len(there) == 1 else 'are'} there"] if there else []),
        *([f"{_listed(missing)} {'is' if len(missing) == 1 else 'are'} not there"] if missing else []),
    ]
    return Finding(not missing if what.there else not there, "; ".join(parts), tuple(evidence))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name.replace(':', '.')}`" for name in names)


def _expression(what: claims.Expression, release: Release) -> Finding:
    value = release.values[what.run]
    raised = value["raises"] if isinstance(value, dict) and "raises" in value else None
    shown = f"{raised}: {value['saying']}" if raised else json.dumps(value, ensure_ascii=False)
    probe = _probe(_expression, f"{what.run.strip()} in {_named(release)}", shown)
    if what.at_least is not None:
        holds = isinstance(value, int | float) and value >= what.at_least
    elif isinstance(what.gives, dict) and "raises" in what.gives:
        holds = raised == what.gives["raises"]
    else:
        holds = raised is None and (what.gives is None or value == what.gives)
    return Finding(holds, f"{what.asks}: {f'raises {shown}' if raised else _plain(value)}", (probe,))


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and not any(isinstance(one, list | dict) for one in value):
        return ", ".join(map(_plain, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_ON_RELEASE: dict[type, Callable[[Any, Release], Finding]] = {
    claims.Package: _package,
    claims.Python: _python,
    claims.Metadata: _metadata,
    claims.Requires: _requires,
    claims.Symbols: _symbols,
    claims.Expression: _expression,
}


def _cell(what: claims.Cell, known: Mapping[tuple[str, str], Fact]) -> Finding:
    fact = known.get((what.table, what.row))
    if fact is None:
        probe = _probe(_cell, f"row {what.row} of table {what.table}", "no evidence")
        return Finding(None, "nothing is known of it", (probe,))
    holds = re.search(what.reads, fact.value) is not None
    probe = _probe(_cell, f"{what.reads} in row {what.row} of table {what.table}", fact.value)
    return Finding(holds, fact.value, (probe, *fact.evidence))


def _figure(what: claims.Figure, release: Release) -> Finding:
    found = [
        (run, one)
        for run in published_runs(release.stack.adapter)
        if (one := measurements(run).get(what.figure)) is not None
    ]
    if not found:
        probe = _probe(_figure, f"{what.figure} in the published runs", "no run has it")
        return Finding(None, "it has not been measured here", (probe,))
    apart = [differing_conditions(what.conditions, run) for run, _ in found]
    evidence = tuple(one.shown_in(run) for run, one in found)
    same = [pair for pair, differs in zip(found, apart, strict=True) if not differs]
    told = ", ".join(_measured(run, one) for run, one in same or found)
    if not same:
        reasons = "; ".join(f"{name}: {both}" for name, both in apart[-1].items())
        return Finding(None, f"does not compare with what was measured here, {told}. {reasons}", evidence)
    low = -math.inf if what.at_least is None else what.at_least
    high = math.inf if what.at_most is None else what.at_most
    holds = any(low <= one.value <= high for _, one in same)
    return Finding(holds, f"measured here under the same conditions: {told}", evidence)


def _measured(run: Run, one: Measurement) -> str:
    """Say what was measured, and which of the meanings of the number it has."""
    return f"{one.figure} {' '.join(filter(None, [one.bound, f'{one.value:,.0f}', one.unit]))} by method {run.header.method}"


def _arithmetic(what: claims.Arithmetic) -> Finding:
    values = list(what.figures.values())
    written = ", ".join(f"{name} {value:,g}" for name, value in what.figures.items())
    if what.rule == "increasing":
        holds = all(one < other for one, other in itertools.pairwise(values))
        now = f"the same source has {written}"
        seen = "each is larger than the one before" if holds else "not each is larger than the one before"
    elif what.rule == "largest":
        most = max(what.figures, key=lambda name: what.figures[name])
        holds = what.stated == what.figures[most]
        seen = f"the largest is {most}, {what.figures[most]:,g}"
        now = f"in the same source {seen}"
    else:
        product = math.prod(values)
        holds = what.stated is not None and abs(product - what.stated) <= _TOLERANCE * product
        seen = f"{product:,.0f}"
        now = f"{' times '.join(what.figures)} is {seen}, from figures of the same source"
    return Finding(holds, now, (_probe(_arithmetic, f"{what.rule}: {written}", seen),))
