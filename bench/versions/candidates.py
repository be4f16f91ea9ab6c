"""Candidates: releases that nobody supports yet, from a package registry or from a wheel that was just built."""

from __future__ import annotations

import hashlib
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from bench.stacks import ROOT, Candidate, Stack, StackError, all_stacks, find_uv
from canonical.adapter import Release


class CandidateError(ValueError):
    """Report a candidate that names no release of a framework, and what would."""


class UnresolvedError(StackError):
    """Report a candidate that cannot be installed together with what the adapter needs; the text is the resolver's."""


def candidate_stack(candidate: str, folder: Path) -> Stack:
    """Return the stack of a candidate, with everything pinned to what resolves today.

    Args:
        candidate: `package==version`, or the path of a wheel.
        folder: Where the pins are kept.

    Raises:
        CandidateError: It is neither, is a file of another kind, or its package belongs to no framework.
        UnresolvedError: It cannot be installed with what the adapter needs.
        StackError: uv is not installed.
    """
    wheel = Path(candidate) if candidate.endswith(".whl") else None
    if wheel is None and Path(candidate).exists():
        raise CandidateError(f"{candidate} is no wheel; a wheel is a file whose name ends with .whl")
    package, version = _of_wheel(wheel) if wheel else _of_requirement(candidate)
    like = _like(package, version)
    requirement = f"{package} @ {wheel.resolve().as_uri()}" if wheel else f"{package}=={version}"
    others = [one for one in like.facts.extras[like.release.extra] if _name(one) != package]
    mark = hashlib.sha256(wheel.read_bytes()).hexdigest()[:8] if wheel else "released"
    name = f"candidate-{package}-{version}-{mark}"
    pins = folder / f"{name}.txt"
    pins.parent.mkdir(parents=True, exist_ok=True)
    _pin([requirement, *others], like.release.python, pins)
    release = Release(
        package=package,
        version=version,
        extra=like.release.extra,
        python=like.release.python,
        matrix_only=True,
    )
    return replace(like, release=release, candidate=Candidate(name, pins, (requirement, *others)))


def _of_wheel(path: Path) -> tuple[str, str]:
    if not path.is_file():
        raise CandidateError(f"there is no file {path}")
    try:
        name, version, _, _ = parse_wheel_filename(path.name)
    except (InvalidWheelFilename, InvalidVersion) as error:
        raise CandidateError(f"{path.name} is no name of a wheel: {error}") from error
    return name, str(version)


def _of_requirement(text: str) -> tuple[str, str]:
    try:
        wanted = Requirement(text)
    except InvalidRequirement as error:
        raise CandidateError(f"{text!r} is neither package==version nor the path of a wheel") from error
    exact = [one.version for one in wanted.specifier if one.operator == "=="]
    if len(exact) != 1 or len(wanted.specifier) != 1 or exact[0].endswith("*"):
        raise CandidateError(f"{text!r} names no single release; write {wanted.name}==<version>")
    return canonicalize_name(wanted.name), exact[0]


def _name(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)


def _like(package: str, version: str) -> Stack:
    """Return the supported release that a candidate is most like: of its package, the newest that is not newer."""
    stacks = all_stacks(supported=True)
    same = [one for one in stacks if canonicalize_name(one.release.package) == package]
    if not same:
        known = ", ".join(sorted({one.release.package for one in stacks}))
        raise CandidateError(f"{package} is the package of no framework; there are {known}")
    ordered = sorted(same, key=lambda one: Version(one.release.version))
    before = [one for one in ordered if Version(one.release.version) <= Version(version)]
    return before[-1] if before else ordered[0]


def _pin(requirements: list[str], python: str, pins: Path) -> None:
    uv = find_uv()
    if uv is None:
        raise StackError("uv is not installed; install the extra 'harness' of this project, or uv itself")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    done = subprocess.run(
        [
            uv, "pip", "compile", "-", "--quiet", "--python-version", python, "--no-header", "--no-annotate",
            "--output-file", str(pins),
        ],
        input="\n".join([*requirements, *project["dependencies"]]),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        pins.unlink(missing_ok=True)
        raise UnresolvedError(
            f"{requirements[0].partition(' @ ')[0]} cannot be resolved:\n{done.stderr.strip()[-1500:]}"
        )
