"""What a benchmark of sandboxes measured, as a file of tagged lines, `sandboxes.jsonl`; raw numbers, no averages.

Like the records of frameworks: appended and flushed line by line, read strictly, nothing null and nothing infinite.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
)

from bench.lines import LineWriter, read_lines
from bench.machine import Machine, Pressure
from bench.records import JsonObject, Note, Text, UtcTime

SCHEMA = 1
"""Shape of the records. A reader refuses every other."""
METHOD = 1
"""Meaning of the numbers. Numbers of different methods are never compared."""
RECORDS_FILE = "sandboxes.jsonl"

Action = Literal["open", "close", "read", "true", "bash", "python"]
"""What was timed: a session's start and end, reading a file of 1 kB, `true`, `bash -c true`, `python3 -c pass`."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SandboxHeader(_Part):
    """The first line: everything that a run was made of."""

    kind: Literal["sandbox_header"] = "sandbox_header"
    schema_version: int = Field(default=SCHEMA, alias="schema")
    method: int = METHOD
    run_id: str
    started: UtcTime
    backend: str
    tool: Text
    """What isolates, with its version."""
    enforced: tuple[str, ...]
    missing: dict[str, Text]
    ordinary_user: bool
    """Whether the run was made by an ordinary user, who may use less than root."""
    machine: Machine
    pressure: Pressure | None = None
    """How busy the machine was before anything was measured."""
    commit: str | None = None
    dirty: bool | None = None
    args_passed: tuple[str, ...]
    plan: JsonObject


class Timing(_Part):
    """How long one kind of call took, one after the other in otherwise idle sandboxes; warm-up left out."""

    kind: Literal["timing"] = "timing"
    action: Action
    ns: tuple[NonNegativeInt, ...]
    """Every call that succeeded."""
    failures: NonNegativeInt
    first_error: Text | None = None


class Rung(_Part):
    """So many sandboxes alive at the same time, and idle."""

    kind: Literal["rung"] = "rung"
    asked: PositiveInt
    live: NonNegativeInt
    """How many were open."""
    answering: NonNegativeInt
    """How many of those that were tried ran `true`."""
    tried: NonNegativeInt
    open_s: PositiveFloat
    """How long it took to open those that were new on this rung."""
    available_bytes: NonNegativeInt | None = None
    """Memory of the machine that the system calls available (MemAvailable), with the sandboxes idle."""
    pss_bytes: NonNegativeInt | None = None
    """Proportional memory of all processes of the sandboxes; absent where this user may not read it."""
    ns: tuple[NonNegativeInt, ...]
    """`true` in the sandboxes that were tried."""
    first_error: Text | None = None


class Throughput(_Part):
    """`true` as fast as so many sandboxes go, each one call after the other."""

    kind: Literal["throughput"] = "throughput"
    sessions: PositiveInt
    seconds: PositiveFloat
    ns: tuple[NonNegativeInt, ...]
    failures: NonNegativeInt
    first_error: Text | None = None


class Left(_Part):
    """What was there after every sandbox and the backend had been closed, and not before; as far as it shows from here."""

    kind: Literal["left"] = "left"
    processes: tuple[Text, ...]
    mounts: tuple[Text, ...]
    files: tuple[Text, ...]
    descriptors: int
    """Open files of this process, more than before."""


class Circumstances(_Part):
    """How busy the machine was during one part."""

    kind: Literal["circumstances"] = "circumstances"
    part: str
    before: Pressure
    after: Pressure
    own_cpu_s: float
    """Processor seconds of this process and of all sandboxes."""


class SandboxFooter(_Part):
    """The last line of a run that was closed properly."""

    kind: Literal["sandbox_footer"] = "sandbox_footer"
    finished: UtcTime
    interrupted: bool


SandboxRecord = Annotated[
    SandboxHeader | Timing | Rung | Throughput | Left | Circumstances | Note | SandboxFooter,
    Field(discriminator="kind"),
]
_RECORD: TypeAdapter[SandboxRecord] = TypeAdapter(SandboxRecord)
RecordT = TypeVar("RecordT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class SandboxRun:
    """A run as it was read.

    Attributes:
        folder: Where it lies.
        header: Its first line.
        records: Every line between header and footer.
        partial: Whether it did not come to its end.
    """

    folder: Path
    header: SandboxHeader
    records: tuple[SandboxRecord, ...]
    partial: bool

    def of(self, kind: type[RecordT]) -> tuple[RecordT, ...]:
        """Select the records of one kind."""
        return tuple(record for record in self.records if isinstance(record, kind))


class SandboxRunWriter(LineWriter):
    """Write a run of sandboxes."""

    def __init__(self, folder: Path, header: SandboxHeader) -> None:
        super().__init__(folder / RECORDS_FILE, header, SandboxFooter)


def read_sandbox_run(folder: Path) -> SandboxRun:
    """Read a run as `bench.lines.read_lines` does, with its errors."""
    header, records, partial = read_lines(
        folder / RECORDS_FILE, _RECORD, SandboxHeader, SandboxFooter, schema=SCHEMA
    )
    return SandboxRun(folder, header, records, partial)
