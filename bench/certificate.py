"""The parity certificate: what each framework showed of one golden set, and whether it is what the reference shows.

A certificate is plain data; `bench.certify` makes it, `reports.certificate` writes it down for people.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from bench.endurance_records import Endurance, EnduranceError
from canonical.environment import Environment
from canonical.malformed import first_problem

SCHEMA = 1
"""Raised when a field changes its meaning."""

CERTIFICATE_FILE = "certificate.json"


class CertificateError(ValueError):
    """Report a file that is no certificate or no section of one: the file, the key, the reason."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Specification(_Part):
    """Hold what defines an environment for whoever plays it, and one hash of all of it.

    Attributes:
        name: The environment's name.
        version: The environment's version.
        max_turns: How many turns an episode has.
        free_errors: How many mistakes cost no turn.
        reward: Aggregation and range of the reward.
        tools: The tools as they are offered to a model.
        tasks: The number of tasks of each split.
        tasks_sha256: The hash of all tasks with their secrets.
        sha256: The hash of everything above as canonical JSON: sorted keys, no spaces, ASCII only.
        definition_sha256: The hash of the Python files that define the environment. It is no part of the other: a comment
            changes it, and no player notices.
    """

    name: str
    version: str
    max_turns: int
    free_errors: int
    reward: dict[str, Any]
    tools: list[dict[str, Any]]
    tasks: dict[str, int]
    tasks_sha256: str
    sha256: str
    definition_sha256: str


class Golden(_Part):
    """Hold what was replayed.

    Attributes:
        episodes: How many episodes the golden set has.
        steps: How many actions they have together.
        groups: The number of episodes of each group.
        ends: The number of episodes by their cause; `none` for those that are left before their end.
        digest: One SHA-256 over the transcripts in the file.
    """

    episodes: int
    steps: int
    groups: dict[str, int]
    ends: dict[str, int]
    digest: str


class DivergenceRow(_Part):
    """Hold the first place where an episode differs from the golden one; the fields are those of `bench.conformance`."""

    scenario: str
    session: str
    step: int | None
    piece: str
    reference: str
    framework: str
    action: str = ""


class FeatureRow(_Part):
    """Hold how a framework carries a feature."""

    level: str
    note: str


class Proof(_Part):
    """Hold what one release of one framework showed.

    Attributes:
        framework: The adapter as a worker takes it: its name, and what environments become where that is to be chosen.
        title: The framework's name as its makers write it.
        release: The label of the release.
        packages: The framework's own packages with their versions.
        python: The version of Python in its stack.
        dependencies: Every distribution that is installed in its stack, with its version.
        reading: How a trainer of this framework reads the return of an episode.
        episodes: How many episodes were played.
        steps: How many actions were answered.
        returns: How many returns were read in the framework's own way, and compared.
        divergences: How many episodes differ.
        shown: The first of the divergences.
        failure: Why the episodes could not be played to their end, if they could not.
        not_compared: Features that the framework declares absent, so that what they carry is left out of the comparison.
        features: Every feature, and how it is carried.
        digest: One SHA-256 over the transcripts that the framework showed, in the order of the golden set.
        seconds: How long it took.
    """

    framework: str
    title: str
    release: str
    packages: dict[str, str]
    python: str
    dependencies: dict[str, str]
    reading: str
    episodes: int
    steps: int
    returns: int
    divergences: int
    shown: list[DivergenceRow]
    failure: str | None = None
    not_compared: list[str]
    features: dict[str, FeatureRow]
    digest: str
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether everything was played and nothing differs."""
        return not self.divergences and self.failure is None and self.episodes > 0

    @property
    def dependencies_sha256(self) -> str:
        """The hash of the names and versions of everything that is installed in the stack."""
        return _sha256(self.dependencies)


class Section(_Part):
    """Hold something else that was proven of the same environment, such as that no session leaks, as a table.

    Attributes:
        title: What was proven.
        text: How it was tried, in a sentence or two.
        columns: The heads of the columns.
        rows: The cells, as text.
        passed: Whether it holds in every row.
    """

    title: str
    text: str = ""
    columns: list[str]
    rows: list[list[str]]
    passed: bool


class Certificate(_Part):
    """Hold everything that is certified of one environment.

    Attributes:
        schema_version: The version of this format.
        environment: The environment, and the hash of its specification.
        golden: What was replayed.
        reference: What the canonical episode itself shows today, in the harness's own Python.
        frameworks: What each framework showed, one release after the other.
        sections: What else was proven.
        project: The version of this project.
        commit: The commit of the working tree, where there is one.
        dirty: Whether the files differed from it.
        started: When the first episode was played, in UTC, as ISO 8601.
    """

    schema_version: int = SCHEMA
    environment: Specification
    golden: Golden
    reference: Proof
    frameworks: list[Proof]
    sections: list[Section] = []
    project: str
    commit: str | None = None
    dirty: bool | None = None
    started: str

    @property
    def passed(self) -> bool:
        """Whether nothing differs, everything asked for was played, and every further section holds."""
        return (
            bool(self.frameworks)
            and self.reference.passed
            and self.reference.digest == self.golden.digest
            and all(proof.passed for proof in self.frameworks)
            and all(section.passed for section in self.sections)
        )

    @property
    def digest(self) -> str | None:
        """The one digest of the golden set, the reference and all frameworks, or None when there is more than one."""
        digests = {self.golden.digest, self.reference.digest, *(proof.digest for proof in self.frameworks)}
        return self.golden.digest if len(digests) == 1 else None

    def to_text(self) -> str:
        """Return the certificate as JSON for a file."""
        return json.dumps(self.model_dump(), indent=1, ensure_ascii=True) + "\n"

    @classmethod
    def read(cls, path: Path) -> Certificate:
        """Read a file.

        Raises:
            CertificateError: There is no such file, or it is no certificate of this version.
        """
        certificate: Certificate = _read(cls, path)
        if certificate.schema_version != SCHEMA:
            raise CertificateError(
                f"{path}: the certificate has version {certificate.schema_version}, this program reads {SCHEMA}; make it anew"
            )
        return certificate


def read_section(path: Path) -> Section:
    """Read a further section from a file.

    Raises:
        CertificateError: There is no such file, or it is no section.
    """
    section: Section = _read(Section, path)
    return section


def endurance_section(
    results: Sequence[Endurance], environment: Environment[Any], releases: Sequence[str]
) -> Section:
    """Return the section on what wore frameworks out.

    Args:
        results: What `bench.endurance_records.read_endurance` read.
        environment: The environment that is certified.
        releases: The labels of the releases that are certified; only their results become part of the section.

    Raises:
        EnduranceError: A result is of another environment or version, or none is of these releases.
    """
    wanted = f"{environment.name} {environment.version}"
    for result in results:
        if result.environment != wanted:
            raise EnduranceError(
                f"the endurance of {result.stack} was measured with {result.environment}, not with {wanted}"
            )
    measured = {result.stack: result for result in results}
    chosen = [measured[release] for release in releases if release in measured]
    others = [stack for stack in measured if stack not in releases]
    if not chosen:
        raise EnduranceError(f"the endurance is of {', '.join(others)}, and none of these is certified")
    missing = [release for release in releases if release not in measured]
    secret = " and ".join(sorted({f"`{result.secrecy.environment}`" for result in chosen}))
    text = (
        "Sessions are interleaved and compared with the same sessions played one after the other. Of each release "
        f"{_given_up(chosen)} others are opened and given up, and what they leave in the server's and the client's process is "
        f"counted. Secrets are those of the built-in environment {secret}; they are searched in every byte on the wire, or in "
        "what clients are handed where there is no wire, and in the logs, before the end of its episodes."
    )
    if missing:
        text += f" Not measured: {', '.join(missing)}."
    if others:
        text += f" Measured too, and not certified here: {', '.join(others)}."
    return Section(
        title="Sessions apart, leaks and secrets",
        text=text,
        columns=["Stack", "Interleaved", "Given up", "Left over", "Secrets found"],
        rows=[
            _endured(measured[release]) if release in measured else [release, *["not measured"] * 4]
            for release in releases
        ],
        passed=all(result.passed for result in chosen),
    )


def _given_up(results: Sequence[Endurance]) -> str:
    numbers = sorted({sum(result.given_up.values()) for result in results})
    return " to ".join(f"{number:,}" for number in dict.fromkeys((numbers[0], numbers[-1])))


def _endured(result: Endurance) -> list[str]:
    apart, secrecy = result.isolation, result.secrecy
    more = {
        kind: max(getattr(one.after, kind) - getattr(one.before, kind) for one in result.cycles)
        for kind in ("sessions", "descriptors", "threads")
    }
    findings = sum(len(one.findings) for one in result.cycles)
    return [
        result.stack,
        f"{apart.sessions} sessions, {apart.steps:,} steps, {len(apart.findings)} differences",
        ", ".join(f"{count:,} {way}" for way, count in result.given_up.items()),
        f"{findings} leaks; " + ", ".join(f"{number:+d} {kind}" for kind, number in more.items()),
        f"{len(secrecy.findings)} in {secrecy.bytes:,} bytes of {secrecy.episodes} episodes",
    ]


def specify(environment: Environment[Any], *, definition_sha256: str) -> Specification:
    """Return what defines an environment, with one hash of all of it."""
    tasks = environment.tasks()
    value: dict[str, Any] = {
        "name": environment.name,
        "version": environment.version,
        "max_turns": environment.max_turns,
        "free_errors": environment.free_errors,
        "reward": {
            "aggregation": environment.reward.aggregation.value,
            "low": environment.reward.low,
            "high": environment.reward.high,
        },
        "tools": [tool.spec.to_json() for tool in environment.tools],
        "tasks": {split: len(tasks.split(split)) for split in tasks.splits},
        "tasks_sha256": tasks.sha256,
    }
    return Specification(**value, sha256=_sha256(value), definition_sha256=definition_sha256)


def _sha256(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _read(kind: Any, path: Path) -> Any:
    try:
        return kind.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError) as error:
        raise CertificateError(f"{path}: {error}") from error
    except ValidationError as error:
        raise CertificateError(f"{path}: {first_problem(error)}") from error
