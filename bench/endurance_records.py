"""What wearing a framework out has shown, as plain data, and the file that `rosetta endure --out` keeps of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, TypeAdapter, ValidationError

from canonical.content import JSON

Way = Literal["closed", "dropped", "killed"]
"""How a client leaves: it closes its sessions; its connections or calls break off; its process is killed."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Hold what a process has at one moment.

    Attributes:
        sessions: Episodes that are alive.
        descriptors: Open file descriptors.
        threads: Threads.
        bytes: Memory that it shares with nobody, after a collection; the resident memory where a system does not tell.
    """

    sessions: NonNegativeInt
    descriptors: NonNegativeInt
    threads: NonNegativeInt
    bytes: NonNegativeInt


@dataclass(slots=True)
class Cycles:
    """Hold what many cycles of opening a session and giving it up have left behind.

    Attributes:
        way: How the sessions were left.
        cycles: How many there were.
        process: Which process was looked at: `server`, or `client`, which is both where frameworks run in process.
        before: Before them, after a warm-up.
        after: After them.
        settled_s: How many seconds it took until everything was freed that will be.
        findings: What was left behind, in words; empty when nothing was.
        waiting: Why what is left is not a finding, or empty: the server frees it when its patience is over.
    """

    way: Way
    cycles: PositiveInt
    process: str
    before: Reading
    after: Reading
    settled_s: NonNegativeFloat
    findings: list[str] = field(default_factory=list)
    waiting: str = ""


@dataclass(slots=True)
class Isolation:
    """Hold what interleaving did.

    Attributes:
        sessions: How many sessions were held at the same time.
        tasks: How many different tasks they had.
        steps: How many actions they took.
        findings: Where transcripts differ from those of the same sessions played one after the other.
    """

    sessions: PositiveInt
    tasks: PositiveInt
    steps: PositiveInt
    findings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Secrecy:
    """Hold where secrets were looked for.

    Attributes:
        episodes: How many episodes were played. They are of `environment`, and not of the one that was asked for.
        searched: What was searched: `wire` and logs, or `values` and logs.
        bytes: How much that was, before the end of each episode.
        told: In how many episodes the secret was found as soon as the rules had told it, which shows that it would have
            been found before.
        findings: Secrets that were found too early.
        environment: The environment whose secrets were looked for: the built-in canary, whatever environment was asked for.
    """

    episodes: NonNegativeInt
    searched: Literal["wire", "values"]
    bytes: NonNegativeInt
    told: NonNegativeInt
    findings: list[str] = field(default_factory=list)
    environment: str = "canary"


@dataclass(slots=True)
class Endurance:
    """Hold the endurance of one framework release.

    Attributes:
        stack: The release.
        packages: The framework's packages.
        environment: The environment that was played, and its version.
        limits: What counts as a leak.
        session_ttl_s: After how many idle seconds the server frees a session; None when it notices at once.
        isolation: What interleaving did.
        cycles: What cycles left behind.
        secrecy: Where secrets were found.
        seconds: How long all of it took.
    """

    stack: str
    packages: dict[str, str]
    environment: str
    limits: dict[str, JSON]
    session_ttl_s: float | None
    isolation: Isolation
    cycles: Annotated[list[Cycles], Field(min_length=1)]
    secrecy: Secrecy
    seconds: float

    @property
    def findings(self) -> list[str]:
        """Everything that is wrong, in words."""
        cycles = [finding for one in self.cycles for finding in one.findings]
        return [*self.isolation.findings, *cycles, *self.secrecy.findings]

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    @property
    def given_up(self) -> dict[Way, int]:
        """How many sessions were opened and given up, by the way in which they were left."""
        return {one.way: one.cycles for one in self.cycles}

    def to_json(self) -> dict[str, JSON]:
        """Return all of it as JSON."""
        value: dict[str, JSON] = asdict(self)
        return {**value, "passed": self.passed}


class EnduranceError(ValueError):
    """Report a file that holds no endurance: the file, the place in it, the reason."""


def read_endurance(path: Path) -> list[Endurance]:
    """Read the `endurance.json` that `rosetta endure --out` writes.

    Raises:
        EnduranceError: There is no such file, or it holds something else; the text says where.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EnduranceError(f"{path} cannot be read: {error.strerror}") from error
    except RecursionError as error:
        raise EnduranceError(f"{path} is nested too deeply to be read") from error
    except ValueError as error:
        raise EnduranceError(f"{path} is not JSON: {error}") from error
    try:
        results = _RESULTS.validate_json(json.dumps(_without_verdicts(values)), strict=True)
    except ValidationError as error:
        detail = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, detail["loc"])) or "the whole"
        raise EnduranceError(
            f"{path} holds no endurance as `rosetta endure --out` writes it: {place}: {detail['msg']}"
        ) from error
    if not results:
        raise EnduranceError(f"{path} holds the endurance of no framework")
    stacks = [result.stack for result in results]
    twice = next((stack for stack in stacks if stacks.count(stack) > 1), None)
    if twice is not None:
        raise EnduranceError(f"{path} holds the endurance of {twice} twice")
    return results


def _without_verdicts(values: Any) -> Any:
    # Whether all is well follows from the findings, so what a file says of it is not read.
    if not isinstance(values, list):
        return values
    return [
        {key: part for key, part in value.items() if key != "passed"} if isinstance(value, dict) else value
        for value in values
    ]


_RESULTS = TypeAdapter(list[Endurance])
