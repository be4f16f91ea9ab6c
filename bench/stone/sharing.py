"""Who can share an environment: what uv's resolver says of two releases together."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

from packaging.specifiers import SpecifierSet

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


def gather_sharing(stacks: Sequence[Stack]) -> list[Fact]:
    """Return which releases can be installed together, on which Python, and what stands in the way.

    Raises:
        StackError: uv is not installed.
    """
    facts = []
    for python in map(_whole_version, PYTHONS):
        for row in stacks:
            for column in stacks:
                pair = sorted({f"{one.release.package}=={one.release.version}" for one in (row, column)})
                refused = [reason for one in (row, column) if (reason := refusal(one, python))]
                said = "; ".join(dict.fromkeys(refused)) or _resolve(tuple(pair), python)
                value = "yes" if said is None else f"no: {blame(said, pair)}"
                probe = _probe(
                    f"uv pip compile {' '.join(pair)} for Python {python}, and the metadata of both",
                    said or "a solution",
                )
                name = f"with {row.facts.title}, Python {python}"
                facts.append(
                    fact_of(
                        column, TABLE, name, f"alone: {value}" if row is column else value, "probed", [probe]
                    )
                )
    return facts


def _probe(sent: str, seen: str) -> Probe:
    place = code_of(ROOT / "bench" / "stone" / "sharing.py", "_resolve")
    return Probe(name="resolve", sent=sent, seen=seen, file=place.file, line=place.first)


def _whole_version(version: str) -> str:
    """Return the version of the interpreter that is here, since metadata may allow 3.12.0 and not 3.12.1."""
    python = find_python(version)
    if python is None:
        return version
    return run([str(python), "-c", "import platform; print(platform.python_version())"]).stdout.strip()


@cache
def _resolve(releases: tuple[str, ...], python: str) -> str | None:
    """Return None where uv finds versions of everything, or what stands in the way, in the words of its resolver."""
    with tempfile.TemporaryDirectory(prefix="rosetta-stone-") as folder:
        wanted = Path(folder) / "wanted.in"
        wanted.write_text("\n".join(releases) + "\n", encoding="ascii")
        done = run(
            [uv_path(), "pip", "compile", "--quiet", "--no-header", "--python-version", python, str(wanted)]
        )
    if done.returncode == 0:
        return None
    return plain(done.stderr)


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
    for package, wants in asked.items():
        whose = {re.split(r"[<>=!~\[]", who)[0] for who in wants.values()}
        if len(wants) > 1 and whose & set(named):
            return " and ".join(f"{who} wants {package}{wanted}" for wanted, who in wants.items())
    return clause(said)


def clause(said: str) -> str:
    """Return the first thing that stands in the way: the requirements between `Because` and what is concluded."""
    found = re.search(r"[Bb]ecause (.+?),? we can conclude", said)
    return said if found is None else found[1]


def refusal(stack: Stack, python: str) -> str | None:
    """Return what the metadata of a release says against a Python, or None; uv overlooks the upper bounds in it."""
    (site,) = stack.folder.glob("lib/python*/site-packages")
    found = next(iter(distributions(name=stack.release.package, path=[str(site)])))
    wanted = str(found.metadata.json.get("requires_python") or "")
    if SpecifierSet(wanted).contains(python):
        return None
    return f"{stack.release.package}=={stack.release.version} wants Python {wanted}"
