"""Latencies of releases as one file: how long connect and step take in each, beside the default release of its framework."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from bench.machine import Machine, Pressure, Stretch
from bench.samples import Phase
from canonical.malformed import first_problem

LATENCY_FILE = "latency.json"


class LatencyError(ValueError):
    """Report a file that holds no latencies of releases: the file, the place in it, the reason."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RatioToDefault(_Part):
    """Hold the latency of a release as a ratio to that of the default release.

    Attributes:
        value: Geometric mean over the pairs.
        low: Lower end of its interval, at 95 %.
        high: Upper end.
        pairs: How many pairs of medians it is made of.
    """

    value: float = Field(gt=0)
    low: float = Field(gt=0)
    high: float = Field(gt=0)
    pairs: int = Field(ge=1)

    @property
    def is_change(self) -> bool:
        """Whether the interval leaves out 1; nothing else counts as a change."""
        return not self.low <= 1 <= self.high


class PhaseLatency(_Part):
    """Hold how long one phase takes in a release.

    Attributes:
        phase: Connect or step.
        median_ns: The median of all operations, in ns.
        low_ns: Lower end of its interval, at 95 %.
        high_ns: Upper end.
        n: How many operations.
        ratio: Beside the default release; None for that itself, and where too few pairs came through whole.
    """

    phase: Phase
    median_ns: float = Field(gt=0)
    low_ns: float = Field(gt=0)
    high_ns: float = Field(gt=0)
    n: int = Field(ge=1)
    ratio: RatioToDefault | None = None


class ReleaseLatency(_Part):
    """Hold what was measured of one release.

    Attributes:
        framework: Folder name of the adapter.
        title: The framework's name as its makers write it.
        stack: Label of the release, with its target where it has several.
        package: The distribution.
        version: Its version.
        python: The Python of the stack, as asked for.
        is_default: Whether the others are compared with this one.
        phases: What was measured; nothing where nothing could be.
        reason: Why something is missing; empty where nothing is.
    """

    framework: str
    title: str
    stack: str
    package: str
    version: str
    python: str
    is_default: bool = False
    phases: tuple[PhaseLatency, ...] = ()
    reason: str = ""

    def of(self, phase: Phase) -> PhaseLatency | None:
        """Return a phase, or None where it was not measured."""
        return next((one for one in self.phases if one.phase is phase), None)


class Latencies(_Part):
    """Hold the latencies of one run.

    Attributes:
        environment: What was played.
        rounds: In how many rounds, in each of which every release of a framework had its turn, in random order.
        sessions: How many sessions a release played in its turn, one after the other.
        turns: How many steps each of them had.
        seed: Of the order.
        started: When it began.
        seconds: How long it took, with starting everything.
        machine: What it was measured on.
        before: How busy that was before the start.
        after: How busy it was at the end.
        own_cpu_s: CPU seconds of all our own processes in between.
        commit: The commit that measured it; None outside of a checkout.
        dirty: Whether there were changes that are not committed.
        releases: One for each release, by framework and then by version.
    """

    environment: str
    rounds: int = Field(ge=1)
    sessions: int = Field(ge=1)
    turns: int = Field(ge=1)
    seed: int
    started: AwareDatetime
    seconds: float = Field(ge=0)
    machine: Machine
    before: Pressure
    after: Pressure
    own_cpu_s: float = Field(ge=0)
    commit: str | None = None
    dirty: bool | None = None
    releases: tuple[ReleaseLatency, ...] = Field(min_length=1)

    @property
    def stretch(self) -> Stretch:
        """The run as a stretch of time, to be judged for what others did in it."""
        return Stretch(self.before, self.after, self.own_cpu_s)

    def to_text(self) -> str:
        """Return the file."""
        return self.model_dump_json(indent=1) + "\n"

    @classmethod
    def read(cls, path: Path) -> Latencies:
        """Read a file.

        Raises:
            LatencyError: It is missing or malformed.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise LatencyError(f"{path}: {error.strerror}") from error
        except ValidationError as error:
            raise LatencyError(f"{path}: {first_problem(error)}") from error

    def by_framework(self) -> Iterator[tuple[str, list[ReleaseLatency]]]:
        """Yield each framework's title with its releases, in their order."""
        for title, releases in groupby(self.releases, key=lambda one: one.title):
            yield title, list(releases)
