"""What is known to fail in a release, as the adapter's `known_failures.toml` says it; strict in both directions."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bench.stacks import Stack, adapters_folder, releases_of
from bench.versions.cells import Finding
from canonical.malformed import first_problem


class KnownFailuresError(ValueError):
    """Report a `known_failures.toml` that cannot be used, and why."""


class KnownFailure(BaseModel):
    """Say that a release breaks a promise, and is known to.

    Attributes:
        test: The label of the release, a colon, and how the promise begins: a scenario or `feature <name>`.
        kind: `ours` where the adapter could do better, `upstream` where the framework has to, `never` where nobody will.
        reason: Why, in one sentence.
        issue: Where it is followed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    test: str = Field(pattern=r"^[^:]+: .+$")
    kind: Literal["ours", "upstream", "never"]
    reason: str
    issue: str = ""

    @property
    def release(self) -> str:
        """The label of the release."""
        return self.test.partition(": ")[0]

    def covers(self, finding: Finding) -> bool:
        """Whether a finding is this failure."""
        return finding.promise.startswith(self.test.partition(": ")[2])


def known_failures(stack: Stack) -> tuple[KnownFailure, ...]:
    """Return what is known to fail in the release of a stack.

    Raises:
        KnownFailuresError: The file is malformed.
    """
    path = adapters_folder() / stack.adapter / "known_failures.toml"
    return tuple(one for one in read_known_failures(path) if one.release == stack.label)


def stray_failures(adapters: Iterable[str]) -> list[str]:
    """Return what is wrong with entries of releases that the `adapter.toml` of some adapters does not have, in words.

    Raises:
        KnownFailuresError: A file is malformed.
    """
    told = []
    for name in sorted(set(adapters)):
        labels = {
            one.label: None for stack in releases_of(name, supported=True) for one in stack.per_target()
        }
        told += [
            f"{name}/known_failures.toml: {one.test!r} is of no release of adapter.toml; there are {', '.join(labels)}"
            for one in read_known_failures(adapters_folder() / name / "known_failures.toml")
            if one.release not in labels
        ]
    return told


def read_known_failures(path: Path) -> tuple[KnownFailure, ...]:
    """Return everything that a file says.

    Raises:
        KnownFailuresError: The file is malformed.
    """
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8")).get("known", [])
        return tuple(map(KnownFailure.model_validate, rows))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise KnownFailuresError(f"{path}: {error}") from error
    except ValidationError as error:
        raise KnownFailuresError(f"{path}: known: {first_problem(error)}") from error


def judge(
    findings: Sequence[Finding], known: Sequence[KnownFailure]
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Return the findings that nobody knew, and those that were known; a known failure that passes is one that nobody knew."""
    new = [one for one in findings if not any(entry.covers(one) for entry in known)]
    new += [
        Finding(
            promise=entry.test.partition(": ")[2],
            difference=f"it is kept, and known_failures.toml says that it is broken ({entry.reason}); take the entry out",
        )
        for entry in known
        if not any(entry.covers(one) for one in findings)
    ]
    return tuple(new), tuple(one for one in findings if any(entry.covers(one) for entry in known))
