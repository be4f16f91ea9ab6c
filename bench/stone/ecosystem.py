"""Ecosystem: who makes a framework, under which licence, how often it is released, what comes with it, and who uses it.

What the installed release says of itself is read, and what the package index knows is asked of it through uv and pip, wherever
they are configured to look. What neither can say comes from a dated source; where the source is the release's own read-me, its
words are looked up there.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from bench.facts import Evidence, Fact, Probe, Source
from bench.index import released_versions
from bench.stacks import ROOT, Stack, StackError
from bench.stone.asking import Release, ask
from bench.stone.installing import run, uv_path
from bench.stone.places import NoSuchPlace, code_of, line_of
from bench.stone.subject import fact_of
from canonical.landscape import LANDSCAPE_FILE, Ecosystem, Sourced, read_landscape

TABLE = "ecosystem"
_FILE = ROOT / "bench" / "stone" / "ecosystem.py"
_YEAR = 365.25
_UPLOADED = re.compile(r"upload-time = (\d{4})-(\d\d)-(\d\d)T")


@dataclass(frozen=True, slots=True)
class Releases:
    """Hold what the package index knows of the releases of a distribution.

    Attributes:
        versions: All versions, the newest first, whatever Python they ask for; none that were only tried out.
        first: When the oldest was uploaded.
        last: When the newest was uploaded.
    """

    versions: tuple[str, ...]
    first: date
    last: date

    def per_year(self, today: date) -> float | None:
        """Return how many there were a year, from the first until a day; None for what began on that day."""
        days = (today - self.first).days
        return len(self.versions) / days * _YEAR if days > 0 else None


def gather_ecosystem(stack: Stack) -> list[Fact]:
    """Return what stands behind a framework; its stack must be ready, and the package index reachable.

    Raises:
        NoSuchPlace: The release does not say what is quoted from it.
        StackError: The stack does not answer, or the index does not.
    """
    folder = stack.features_file.parent
    said = read_landscape(folder).ecosystem
    if said is None:
        return []
    release = ask(stack, expressions=[said.catalogue.run])
    releases = find_releases(stack)
    listed = _probe("find_releases", f"the index, for {stack.release.package}", ", ".join(releases.versions))
    dated = _probe(
        "_uploaded", "when the first and the last were uploaded", f"{releases.first}, {releases.last}"
    )
    rate = releases.per_year(datetime.now(UTC).date())
    return [
        _sourced(stack, release, "maker", said.maker),
        _licence(stack, release),
        _catalogue(stack, release, said),
        _sourced(stack, release, "who uses it", said.users),
        fact_of(
            stack, TABLE, "last release", f"{releases.versions[0]}, {releases.last}", "probed", [listed, dated],
            {"version": releases.versions[0], "date": releases.last.isoformat()},
        ),
        fact_of(
            stack, TABLE, "releases",
            f"{len(releases.versions)} since {releases.first}"
            + (f", {rate:.0f} a year" if rate is not None else ""),
            "probed", [listed, dated], {"count": len(releases.versions), "per_year": rate and round(rate, 1)},
        ),
    ]  # fmt: skip


def _sourced(stack: Stack, release: Release, row: str, said: Sourced) -> Fact:
    texts = [str(text) for value in release.metadata.values() for text in _each(value)]
    for quoted in said.quotations:
        if not any(quoted in text for text in texts):
            raise NoSuchPlace(f"{stack.label} does not say {quoted!r}")
    folder = stack.features_file.parent
    quoted = " [...] ".join(said.quotations)
    source = Source(
        title=said.source, date=said.dated, url=read_landscape(folder).url_of(said), quoted=quoted or None
    )
    evidence: list[Evidence] = [source, line_of(folder / LANDSCAPE_FILE, said.says)]
    if quoted:
        evidence.append(_probe("_sourced", f"the metadata of {stack.release.label}", quoted))
    # Nothing that is installed here shows what others say elsewhere.
    value = said.says if quoted else f"{said.says}; said elsewhere, and not checked here"
    return fact_of(stack, TABLE, row, value, "sourced", evidence)


def _catalogue(stack: Stack, release: Release, said: Ecosystem) -> Fact:
    """Count what comes with the package; how many there are in all is known where nothing else is offered, or that is counted."""
    count, other = release.values[said.catalogue.run], said.elsewhere
    if not isinstance(count, int):
        raise StackError(f"{stack.label} does not count its catalogue: {json.dumps(count)}")
    counted = _probe("_catalogue", said.catalogue.run.strip(), json.dumps(count))
    of = (count == 1 and said.catalogue.one) or said.catalogue.of
    value, evidence = f"{count} {of}", [counted]
    if other is None:
        return fact_of(stack, TABLE, "catalogue", value, "introspected", evidence, {"count": count})
    told = _sourced(stack, release, "catalogue", other)
    known = None if other.count is None else max(count, other.count)
    return fact_of(
        stack,
        TABLE,
        "catalogue",
        f"{value}; {told.value}",
        "sourced",
        [*evidence, *told.evidence],
        {"count": known},
    )


def _each(value: object) -> Iterable[object]:
    return value if isinstance(value, list) else [value]


def _licence(stack: Stack, release: Release) -> Fact:
    field, value = licence_of(release.metadata)
    probe = _probe("licence_of", f"{field} in the metadata of {stack.release.label}", value)
    return fact_of(stack, TABLE, "licence", value, "introspected", [probe])


def licence_of(metadata: Mapping[str, Any]) -> tuple[str, str]:
    """Return which field of metadata names the licence, and its name.

    A field that holds the whole text of a licence names none; the classifiers do.
    """
    for field in ("license_expression", "license"):
        named = str(metadata.get(field) or "").strip()
        if named and "\n" not in named:
            return field, named
    for classifier in map(str, _each(metadata.get("classifier") or [])):
        kind, *_, last = classifier.split(" :: ")
        if kind == "License":
            return "classifier", last
    return "license", "no name of one"


def _probe(function: str, sent: str, seen: str) -> Probe:
    place = code_of(_FILE, function)
    return Probe(
        name=function.strip("_"), sent=sent, seen=seen, file=place.file, line=place.first, function=place.name
    )


def find_releases(stack: Stack) -> Releases:
    """Return what the package index knows of the releases of a framework's distribution.

    Raises:
        StackError: uv is missing, or the index does not answer.
    """
    # The newest is shown first.
    versions = tuple(map(str, reversed(released_versions(stack.release.package))))
    return Releases(versions, _uploaded(stack, versions[-1]), _uploaded(stack, versions[0]))


def _pythons(stack: Stack) -> tuple[str, ...]:
    """Return Pythons of which every release takes one.

    Some releases exclude old Pythons and some new ones, and the index, asked for a release that excludes the Python that is
    named, does not say when it was uploaded.
    """
    return (f"{stack.release.python}.0", "3.14.0", "3.10.0")


def _uploaded(stack: Stack, version: str) -> date:
    package = stack.release.package
    said = ""
    for python in _pythons(stack):
        with tempfile.TemporaryDirectory(prefix="rosetta-stone-") as folder:
            wanted = Path(folder) / "wanted.in"
            wanted.write_text(f"{package}=={version}\n", encoding="ascii")
            done = run(
                [
                    uv_path(), "pip", "compile", "--quiet", "--no-header", "--no-deps", "--format", "pylock.toml",
                    "--python-version", python, str(wanted),
                ]
            )  # fmt: skip
        found = _UPLOADED.search(done.stdout)
        if found is not None:
            return date(*map(int, found.groups()))
        said = done.stderr.strip()[-300:]
    raise StackError(f"the index does not say when {package} {version} was uploaded: {said}")
