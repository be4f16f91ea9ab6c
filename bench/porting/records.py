"""The record of a port: what `loss.json` holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from canonical.adapter import Loss
from canonical.malformed import first_problem
from canonical.stone import Concern, PieceName

LOSS_FILE = "loss.json"
EPISODES_FILE = "episodes.jsonl"
PAGE_FILE = "PORT.md"
MATRIX_FILE = "ports.json"
MATRIX_PAGE = "ports.md"
ASPECTS = ("prompt", "observations", "rewards", "ends", "causes", "return")
"""What is compared at both ends of a round trip."""


class PortError(ValueError):
    """Report a folder that holds no port: which, and what is wrong with it."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LossEntry(_Record):
    """Hold what happens to a piece, or to a part of it.

    Attributes:
        piece: Which of the eleven pieces.
        status: What becomes of it.
        note: What a trainer will notice.
        concern: Which of the things that trainers notice first it is about.
    """

    piece: PieceName
    status: Literal["preserved", "approximated", "lost"]
    note: str = ""
    concern: Concern | None = None

    @classmethod
    def of(cls, loss: Loss) -> LossEntry:
        """Return a loss as it is recorded."""
        return cls(piece=loss.piece, status=loss.status, note=loss.note, concern=loss.concern)

    def loss(self) -> Loss:
        """Return what was recorded."""
        return Loss(self.piece, self.status, self.note, self.concern)


class SourceRecord(_Record):
    """Say what was ported, so that it can be lifted again.

    Attributes:
        name: As the user named it.
        framework: The framework that owns it.
        stack: The stack that ran it.
        packages: The installed packages, with exact versions.
        tasks: How many tasks it has.
        tools: The names of its tools.
        options: What the user said about it.
    """

    name: str
    framework: str
    stack: str
    packages: dict[str, str]
    tasks: int
    tools: list[str]
    options: dict[str, Any] = Field(default_factory=dict)


class TargetRecord(_Record):
    """Say where it was ported to.

    Attributes:
        framework: The framework.
        stack: The stack.
        packages: The installed packages, with exact versions.
    """

    framework: str
    stack: str
    packages: dict[str, str]


class Mismatch(_Record):
    """Hold the first place where two sides of a port differ in an episode.

    Attributes:
        episode: Which episode, counted from 0.
        task: Its task.
        between: Which sides: the source itself and the bridge, or the bridge and the target.
        step: The step, counted from 0; None before the first.
        piece: What differs.
        source: What the source's side shows.
        target: What the target's side shows.
    """

    episode: int
    task: str
    between: Literal["source and bridge", "bridge and target"]
    step: int | None
    piece: str
    source: str
    target: str


class ProofRecord(_Record):
    """Hold what `verify-port` saw.

    Attributes:
        episodes: How many episodes were played on every side.
        steps: How many actions they took.
        kinds: Kind of episode -> how many.
        mismatches: Where sides differ that must not, the first place of each episode and pair of sides.
        unrepeatable: Whether the source shows something else each time, so that nothing can be compared with it; the ledger
            says so, and the episodes were played to see that they can be.
        returns: How many returns were read on both sides, and compared.
        seconds: How long it took.
    """

    episodes: int
    steps: int
    kinds: dict[str, int]
    mismatches: list[Mismatch] = Field(default_factory=list)
    unrepeatable: bool = False
    returns: int = 0
    seconds: float


class PortRecord(_Record):
    """Hold a port.

    Attributes:
        format: The format of the file.
        source: What was ported.
        target: Where to.
        ledger: What becomes of each piece.
        accepted: The pieces whose loss the user accepted.
        proof: What was proven; absent until it was.
    """

    format: Literal[1] = 1
    source: SourceRecord
    target: TargetRecord
    ledger: list[LossEntry]
    accepted: list[PieceName] = Field(default_factory=list)
    proof: ProofRecord | None = None


class PackageRecord(_Record):
    """Hold what becomes of an environment of ours in a package: what `loss.json` of the package holds.

    Attributes:
        format: The format of the file.
        environment: Name of the environment.
        version: Its version.
        tasks_sha256: Hash of its tasks.
        framework: The framework that the package is of.
        release: The release that the ledger was tried with.
        ledger: What becomes of each piece.
    """

    format: Literal[1] = 1
    environment: str
    version: str
    tasks_sha256: str
    framework: str
    release: str
    ledger: list[LossEntry]


class Unported(_Record):
    """Hold a port that could not be made.

    Attributes:
        source: The source, as it is named on a command line.
        target: The framework that it was to be ported to, or nothing where the source itself could not be lifted.
        reason: Why not.
    """

    source: str
    target: str = ""
    reason: str


class MatrixSource(_Record):
    """Name a row of the matrix.

    Attributes:
        name: The source, as it is named on a command line.
        what: What it is, in a few words.
        framework: The framework, or the library of tasks, that owns it.
        baseline: Whether it is the Wordle that was written by hand for the framework.
        library: Whether a library of tasks owns it.
    """

    name: str
    what: str
    framework: str
    baseline: bool = False
    library: bool = False


class RoundTrip(_Record):
    """Hold a source that was ported to another framework, lifted out of it there, and ported back.

    Attributes:
        source: The source, as it is named on a command line.
        framework: The framework that owns it, where the way begins and ends.
        through: The framework in between.
        episodes: How many episodes were played at both ends.
        steps: How many actions they took.
        equal: What was compared -> in how many episodes it was the same at both ends.
        differing: What was compared -> the first place where it was not.
        reason: Why the way could not be gone; nothing where it could.
    """

    source: str
    framework: str
    through: str
    episodes: int = 0
    steps: int = 0
    equal: dict[str, int] = Field(default_factory=dict)
    differing: dict[str, str] = Field(default_factory=dict)
    reason: str = ""


class PortMatrix(_Record):
    """Hold many ports.

    Attributes:
        format: The format of the file.
        written: When the last of them was proven.
        commit: The commit that wrote it; None outside of a checkout.
        dirty: Whether there were changes that are not committed.
        sources: The rows.
        targets: The columns.
        ports: What was ported, and proven.
        unported: What could not be.
        round_trips: What went there and back.
        seconds: How long all of it took.
    """

    format: Literal[1] = 1
    written: AwareDatetime
    commit: str | None = None
    dirty: bool | None = None
    sources: list[MatrixSource]
    targets: list[str]
    ports: list[PortRecord]
    unported: list[Unported] = Field(default_factory=list)
    round_trips: list[RoundTrip] = Field(default_factory=list)
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether everything was ported and nothing differs."""
        are_proven = all(port.proof is not None and not port.proof.mismatches for port in self.ports)
        return are_proven and not self.unported and not any(trip.reason for trip in self.round_trips)


def read_matrix(path: Path) -> PortMatrix:
    """Read the file of a matrix.

    Raises:
        PortError: It cannot be read, or is none.
    """
    try:
        return PortMatrix.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise PortError(f"{path} cannot be read: {error}") from error
    except ValidationError as error:
        raise PortError(f"{path} is no matrix of ports: {first_problem(error)}") from error


def write_port(record: PortRecord, folder: Path) -> None:
    """Write the record of a port into its folder."""
    (folder / LOSS_FILE).write_text(record.model_dump_json(indent=2) + "\n", encoding="utf-8")


def read_port(folder: Path) -> PortRecord:
    """Read the record of a port.

    Raises:
        PortError: The folder holds none that can be read.
    """
    path = folder / LOSS_FILE
    try:
        return PortRecord.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise PortError(f"{folder} holds no port: there is no {LOSS_FILE} in it") from error
    except (OSError, UnicodeDecodeError) as error:
        raise PortError(f"{path} cannot be read: {error}") from error
    except ValidationError as error:
        raise PortError(f"{path} is not the record of a port: {first_problem(error)}") from error
