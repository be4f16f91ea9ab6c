"""Who can share an environment: what uv's resolver says of two releases together, and what their metadata say of a Python."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distributions

from packaging.specifiers import SpecifierSet
from pydantic import JsonValue

from bench.facts import Fact, Probe
from bench.stacks import ROOT, Stack, find_python
from bench.stone.installing import run, uv_path
from bench.stone.places import code_of
from bench.stone.subject import fact_of

TABLE = "sharing"
PYTHONS = ("3.11", "3.12")

_DEPENDS = re.compile(r"(\S+) depends on ([A-Za-z0-9_.-]+(?:\[[^\]]*\])?)([<>=!~]\S*)")
_FRAME = r"[\u2502\u2570\u2500\u25b6\u00d7]|hint:.*"
"""What uv draws around its messages, and its advice."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """Hold what the resolver has said of releases on a Python.

    Attributes:
        command: What was run.
        said: What stands in the way, in the words of the resolver; None where there are versions of everything.
    """

    command: str
    said: str | None


def gather_sharing(stacks: Sequence[Stack]) -> list[Fact]:
    """Return which releases can be installed together, on which Python, and what stands in the way.

    Raises:
        StackError: uv is not installed.
    """
    return [
        _fact(row, column, python)
        for python in map(_whole_version, PYTHONS)
        for row in stacks
        for column in stacks
    ]


def _fact(row: Stack, column: Stack, python: str) -> Fact:
    """Say what of two releases: the resolver's answer, and of both what their metadata says of the Python."""
    both = [row] if row is column else [row, column]
    pair = tuple(sorted({f"{one.release.package}=={one.release.version}" for one in both}))
    resolved = _resolve(pair, python)
    evidence = [_probe("_resolve", resolved.command, resolved.said or "a solution")]
    excluding = []
    for one in both:
        wanted = requires_python(one)
        evidence.append(
            _probe("requires_python", f"Requires-Python of {one.release.label}", wanted or "nothing")
        )
        if not SpecifierSet(wanted).contains(python):
            excluding.append(f"{one.release.package}=={one.release.version} wants Python {wanted}")
    value = verdict(resolved.said, excluding, pair)
    name = f"with {row.facts.title}, Python {python}"
    return fact_of(
        column, TABLE, name, f"alone: {value}" if row is column else value, "probed", evidence,
        {"resolves": resolved.said is None, "excluded_by_metadata": list[JsonValue](excluding)},
    )  # fmt: skip


def verdict(said: str | None, excluding: Sequence[str], releases: Sequence[str]) -> str:
    """Return what a cell says.

    Args:
        said: What the resolver says stands in the way; None where it finds versions of everything.
        excluding: Which releases exclude the Python in their metadata, each with what it wants.
        releases: What was to be installed, as `package==version`.
    """
    # uv heeds lower bounds on Python, overlooks upper ones, and installs what they exclude.
    reason = "" if said is None else blame(said, releases)
    overlooked = "; ".join(one for one in excluding if one not in reason)
    if said is None:
        return f"yes: uv overlooks that {overlooked}" if overlooked else "yes"
    return f"no: {reason}" + (f"; uv overlooks that {overlooked}" if overlooked else "")


def _probe(function: str, sent: str, seen: str) -> Probe:
    place = code_of(ROOT / "bench" / "stone" / "sharing.py", function)
    return Probe(
        name=function.strip("_").replace("_", " "),
        sent=sent,
        seen=seen,
        file=place.file,
        line=place.first,
        function=place.name,
    )


def _whole_version(version: str) -> str:
    """Return the version of the interpreter that is here, since metadata may allow 3.12.0 and not 3.12.1."""
    python = find_python(version)
    if python is None:
        return version
    return run([str(python), "-c", "import platform; print(platform.python_version())"]).stdout.strip()


@cache
def _resolve(releases: tuple[str, ...], python: str) -> Resolution:
    """Run the resolver for releases on a Python."""
    arguments = ["pip", "compile", "--quiet", "--no-header", "--python-version", python, "-"]
    done = run([uv_path(), *arguments], "\n".join(releases) + "\n")
    command = f"printf '%s\\n' {' '.join(releases)} | uv {' '.join(arguments)}"
    return Resolution(command, plain(done.stderr) if done.returncode else None)


def plain(said: str) -> str:
    """Return what uv's resolver says, without the frame that it draws around it and without its advice."""
    text = " ".join(re.sub(_FRAME, " ", said, flags=re.DOTALL).split())
    return re.sub(r"^.*?(?=Because)", "", text, count=1)


def blame(said: str, releases: Sequence[str]) -> str:
    """Return the two requirements that exclude each other, with who asks for them, or else the first clause.

    Args:
        said: What the resolver says.
        releases: What was to be installed, as `package==version`.
    """
    asked: dict[str, dict[str, str]] = {}
    for who, package, wanted in _DEPENDS.findall(said):
        asked.setdefault(package, {}).setdefault(wanted.rstrip(".,"), who)
    named = tuple(release.partition("==")[0] for release in releases)
    if "Python" in asked:
        ((wanted, who), *_) = asked["Python"].items()
        return f"{who} wants Python {wanted}"
    for package, wants in asked.items():
        whose = {re.split(r"[<>=!~\[]", who)[0] for who in wants.values()}
        if len(wants) > 1 and whose & set(named):
            return " and ".join(f"{who} wants {package}{wanted}" for wanted, who in wants.items())
    return clause(said)


def clause(said: str) -> str:
    """Return the first thing that stands in the way: the requirements between `Because` and what is concluded."""
    found = re.search(r"[Bb]ecause (.+?),? we can conclude", said)
    return said if found is None else found[1]


def requires_python(stack: Stack) -> str:
    """Return what the metadata of an installed release wants of Python, or nothing."""
    (site,) = stack.folder.glob("lib/python*/site-packages")
    found = next(iter(distributions(name=stack.release.package, path=[str(site)])))
    return str(found.metadata.json.get("requires_python") or "")
