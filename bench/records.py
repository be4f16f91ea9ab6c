"""What a run measured, as a folder: `records.jsonl` with tagged lines, and raw samples in Parquet beside it.

`RunWriter` appends, flushing line by line, so that an interrupted run keeps what it measured. `read_run` is strict:
what it returns is complete and consistent, or it says where the file is not. Absent is absent: there is no NaN,
no infinity and no null in a record. Times are integer nanoseconds unless a field names its unit.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from bench.machine import Machine, Pressure
from bench.samples import PHASES, STATUSES, Phase, SampleColumns

if TYPE_CHECKING:
    from collections.abc import Iterable
    from io import FileIO
    from types import TracebackType

SCHEMA = 1
"""Shape of the records. A reader refuses every other."""
METHOD = 2
"""Meaning of the numbers. Numbers of different methods are never compared.

Whoever changes a criterion raises it, and says in `bench.ceiling.BROUGHT` which criteria it brought. Under method 1 `freed`
came in, and with it the server's own count in `held`, without a new number: of its runs only the verdicts tell.
"""

RECORDS_FILE = "records.jsonl"
SAMPLES_FOLDER = "samples"

SAMPLES_SCHEMA = pa.schema(
    [
        pa.field("session", pa.int32(), nullable=False),
        pa.field("seq", pa.int32(), nullable=False),
        pa.field("phase", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("warmup", pa.bool_(), nullable=False),
        pa.field("intended_ns", pa.int64(), nullable=False),
        pa.field("start_ns", pa.int64(), nullable=False),
        pa.field("ns", pa.int64(), nullable=False),
        pa.field("status", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("error", pa.dictionary(pa.int32(), pa.string())),
    ]
)
"""Columns of a cell's Parquet file; see `bench.samples.SampleColumns.append` for their meaning."""


def _plain(value: Any) -> Any:
    """Leave out keys without a value, and refuse what has no place in a record."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if value is None:
        raise ValueError("null is not recorded inside a list")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not recorded; leave it out")
    return value


def _writable(text: Any) -> Any:
    # Output of a broken process may hold lone surrogates, which UTF-8 cannot carry.
    return text.encode("utf-8", "replace").decode("utf-8") if isinstance(text, str) else text


def _utc(moment: datetime) -> datetime:
    if moment.utcoffset() != timedelta(0):
        raise ValueError("times of day are recorded in UTC")
    return moment.astimezone(UTC)


JsonObject = Annotated[dict[str, JsonValue], BeforeValidator(_plain)]
"""Free-form settings. A key whose value is None is left out."""
Text = Annotated[str, BeforeValidator(_writable)]
"""Words from elsewhere: error texts, output of processes."""
UtcTime = Annotated[AwareDatetime, AfterValidator(_utc)]
CellId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,119}$")]
"""A cell's id names its file of samples, so it is made of letters, digits, dot, dash and underscore."""
Number = int | float

Level = Literal["native", "emulated", "absent"]
Subject = Literal["compiled", "baseline"]
CellStatus = Literal["ok", "failed", "skipped", "unverified", "timeout", "interrupted"]
CriterionKind = Literal["slo", "success_only"]
StoppedBy = Literal[
    "success",
    "step_p99",
    "connect",
    "reset",
    "held",
    "leak",
    "client",
    "limit",
    "memory",
    "fds",
    "server_died",
    "interrupted",
]
"""What kept a ceiling from being higher. `client`, `limit` and `interrupted` are not the system's doing."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Subjected(_Part):
    """The environment that was run."""

    name: str
    version: str
    sha256: str
    """Hash of the definition."""
    tasks_sha256: str


class Support(_Part):
    """How far a framework carries a feature."""

    level: Level
    note: Text = ""


class ServerReading(_Part):
    """The server's own side at one moment; what could not be read is absent."""

    rss_bytes: NonNegativeInt | None = None
    fds: NonNegativeInt | None = None
    threads: NonNegativeInt | None = None
    open_sessions: NonNegativeInt | None = None
    loop_lag_p99_ns: NonNegativeInt | None = None
    cpu_ns: NonNegativeInt | None = None
    """CPU time that the process has used since it began; the difference of two readings is what lies between them."""


class Generator(_Part):
    """What the load generator needed for itself; see `bench.ceiling.judge_generator`."""

    cpu_s: NonNegativeFloat
    wall_s: PositiveFloat
    cores: PositiveInt
    """Processors that its processes could use at the same time."""
    loop_lag_p99_ns: NonNegativeInt | None = None
    saturated: bool


class Criterion(_Part):
    """One criterion of a verdict. A value that is infinite or was not measured is absent, and the note says which."""

    name: str
    passed: bool
    value: Number | None = None
    limit: Number
    unit: str
    note: Text = ""


class Header(_Part):
    """The first line: everything that a run was made of."""

    kind: Literal["header"] = "header"
    schema_version: int = Field(default=SCHEMA, alias="schema")
    method: int = METHOD
    run_id: str
    started: UtcTime
    adapter: str
    environment: Subjected
    framework: dict[str, str]
    """Package to exact version."""
    python: str
    """Python of the framework's stack."""
    constraints_sha256: str | None = None
    machine: Machine
    pressure: Pressure | None = None
    """How busy the machine was before anything was measured."""
    commit: str | None = None
    dirty: bool | None = None
    """Whether the files differed from the commit; absent, like the commit, outside a git working tree."""
    args_passed: tuple[str, ...]
    plan: JsonObject
    """The plan as resolved."""
    seeds: dict[str, int]
    features: dict[str, Support]


class Conformance(_Part):
    """Whether the subject behaves like the reference."""

    kind: Literal["conformance"] = "conformance"
    status: Literal["passed", "failed", "error"]
    episodes: NonNegativeInt
    steps: NonNegativeInt
    divergences: NonNegativeInt
    seconds: NonNegativeFloat
    digest: str
    first_divergence: Text | None = None


class Cell(_Part):
    """One measurement that begins: what is run, how, at which number of sessions."""

    kind: Literal["cell"] = "cell"
    id: CellId
    adapter: str
    subject: Subject
    workload: JsonObject
    """Turns, tool_ns, tool_kind, think_ns, arrival."""
    sessions: PositiveInt
    repetition: NonNegativeInt
    engine: Literal["client", "locust"]
    server: JsonObject
    """Settings of the server: backend, workers, garbage collector, backlog, caps."""
    order: NonNegativeInt
    """Position in the run, after shuffling."""


class End(_Part):
    """How a cell ended, and what was counted in it."""

    kind: Literal["end"] = "end"
    cell: CellId
    status: CellStatus
    reason: Text | None = None
    pressure_before: Pressure | None = None
    pressure_after: Pressure | None = None
    own_cpu_s: NonNegativeFloat | None = None
    """CPU seconds of the harness, the client, the server and the generator between both readings."""
    server_before: ServerReading | None = None
    server_peak: ServerReading | None = None
    server_after: ServerReading | None = None
    generator: Generator | None = None
    peak_open: NonNegativeInt | None = None
    """Most sessions that were open at the same time."""
    mean_open: NonNegativeFloat | None = None
    """Sessions open on average, where they come and go."""
    opened: NonNegativeInt | None = None
    succeeded: NonNegativeInt | None = None
    throughput_steps_per_s: NonNegativeFloat | None = None


class Verdict(_Part):
    """Whether one cell met a written criterion, each part with its value and limit."""

    kind: Literal["verdict"] = "verdict"
    cell: CellId
    sessions: PositiveInt
    passed: bool
    criteria: tuple[Criterion, ...]
    first_errors: dict[Text, PositiveInt]
    """Error text to how often it occurred; the most frequent ones."""


class Ceiling(_Part):
    """The largest number of sessions that met a criterion, as a bracket."""

    kind: Literal["ceiling"] = "ceiling"
    adapter: str
    subject: Subject
    workload: JsonObject
    criterion: CriterionKind
    lower: NonNegativeInt
    """The largest number that passed; 0 when none did."""
    upper: PositiveInt | None = None
    """The smallest number at which the system itself failed; absent when none was seen."""
    stopped_by: StoppedBy
    censored: bool
    """True when the search's cap, a configured cap, the generator or an interruption ended it, not the system."""
    confirmed: bool = False
    """Whether `lower` passed again in fresh servers."""
    trials: NonNegativeInt
    configured_caps: JsonObject

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.upper is not None and self.upper <= self.lower:
            raise ValueError(f"the bracket is upside down: lower {self.lower}, upper {self.upper}")
        return self


class Ratio(_Part):
    """A comparison of two subjects by interleaved pairs."""

    kind: Literal["ratio"] = "ratio"
    name: str
    """What is divided by what, such as `compiled/baseline step`."""
    phase: Phase
    pairs: PositiveInt
    ratio: PositiveFloat
    low: PositiveFloat
    high: PositiveFloat
    n: PositiveInt
    """Samples behind it on both sides together."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        return _check_interval(self, self.low, self.high)


class Burst(_Part):
    """What came of bursts of one size: sessions that come all at once, and leave when they are done.

    The size is not how many were open at the same time; that stands in `peak_open` and `mean_open`.
    """

    kind: Literal["burst"] = "burst"
    method: str
    """The published name of the method."""
    sessions: PositiveInt
    """Size of the burst."""
    repetitions: PositiveInt
    mean_success: NonNegativeFloat
    passed: bool
    wall_s: NonNegativeFloat
    """From the first connect to the last close, the median over the repetitions."""
    peak_open: NonNegativeInt
    """Most sessions open at the same time, as the client counted them; the largest of the repetitions."""
    server_open: NonNegativeInt
    """The same by the server's own count."""
    mean_open: NonNegativeFloat
    """Sessions open on average, by Little's law; the median over the repetitions."""
    executing: NonNegativeFloat
    """Steps under way on average, as the published method computes it: size x wait / duration."""
    tool_ns: NonNegativeInt


class Probe(_Part):
    """How many steps the server carries out at the same time, when a tool blocks its thread or does not."""

    kind: Literal["probe"] = "probe"
    tool_kind: Literal["sync", "async"]
    tool_ns: PositiveInt
    points: tuple[tuple[PositiveInt, NonNegativeInt], ...]
    """Steps that were sent at the same time, and how many of them were done before a second round could be."""
    width: PositiveInt | None = None
    """Steps that are carried out at the same time; absent when no number of steps had to wait."""
    most: PositiveInt
    """Most steps that were sent at the same time."""


class CrossCheck(_Part):
    """One point measured by both load engines."""

    kind: Literal["cross_check"] = "cross_check"
    sessions: PositiveInt
    phase: Phase
    client_ns: NonNegativeInt
    """Median of the framework's own client."""
    client_low_ns: NonNegativeInt
    client_high_ns: NonNegativeInt
    client_n: PositiveInt
    locust_ns: NonNegativeInt
    locust_low_ns: NonNegativeInt
    locust_high_ns: NonNegativeInt
    locust_n: PositiveInt
    agrees: bool
    """Whether the intervals overlap, or the medians lie within `tolerance` of each other."""
    tolerance: PositiveFloat


class Cost(_Part):
    """A cost that is not a latency under load."""

    kind: Literal["cost"] = "cost"
    name: str
    value: Number
    unit: str
    n: PositiveInt
    low: Number | None = None
    high: Number | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        return _check_interval(self, self.low, self.high)


class Prediction(_Part):
    """What the cost model said of a cell before it was measured, beside what was measured."""

    kind: Literal["prediction"] = "prediction"
    cell: CellId
    sessions: PositiveInt
    quantity: str
    """What was predicted, such as `server_cpu`."""
    unit: str
    predicted: Number
    measured: Number


class SettingRatio(_Part):
    """What one value of one server setting changes, against the setting it was interleaved with."""

    kind: Literal["setting_ratio"] = "setting_ratio"
    setting: str
    value: str
    against: str
    quantity: Literal["server_cpu", "step_p99"]
    sessions: PositiveInt
    pairs: PositiveInt
    ratio: PositiveFloat
    """Quantity under `value` divided by quantity under `against`, the geometric mean over the pairs; below 1 is less."""
    low: PositiveFloat
    high: PositiveFloat

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        return _check_interval(self, self.low, self.high)


class Live(_Part):
    """Many live episodes in one process, stepped together by one way to drive them."""

    kind: Literal["live"] = "live"
    executor: str
    note: Text
    """What the framework has of this way, in words."""
    sessions: PositiveInt
    batches: PositiveInt
    """How often so many episodes were made, stepped and closed."""
    rounds: PositiveInt
    """How often each episode of a batch was stepped."""
    steps: PositiveInt
    wrong: NonNegativeInt
    """Steps that did not show what the reference shows for this session's task and actions."""
    first_wrong: Text | None = None
    step_ns: PositiveFloat
    """Wall time of a round divided by its steps, the median over all rounds."""
    step_low_ns: PositiveFloat | None = None
    step_high_ns: PositiveFloat | None = None
    step_cpu_ns: NonNegativeFloat
    """CPU time of the process, all threads, over all rounds, divided by the steps."""
    open_ns: PositiveFloat
    """Wall time until an episode is constructed and reset, the mean."""
    close_ns: NonNegativeFloat
    bytes_per_session: NonNegativeFloat | None = None
    """Growth of the memory that the process shares with nobody, from before to all episodes open, for each."""
    threads: PositiveInt
    """Most threads of the process."""
    pressure_before: Pressure | None = None
    pressure_after: Pressure | None = None
    own_cpu_s: NonNegativeFloat | None = None
    """CPU seconds of the harness and the process between both readings."""


class Rollouts(_Part):
    """Whole rollouts along one of the framework's own paths, with a scripted model in the place of the model."""

    kind: Literal["rollouts"] = "rollouts"
    path: str
    note: Text
    rollouts: PositiveInt
    concurrency: PositiveInt
    turns: PositiveInt
    succeeded: NonNegativeInt
    """Rollouts whose every observation was the reference's."""
    first_wrong: Text | None = None
    wall_ns: PositiveFloat
    """Wall time of all of them, divided by how many there were."""
    cpu_ns: NonNegativeFloat
    """CPU time of the process and its children, the scripted model included, divided by the rollouts."""
    bytes_per_rollout: NonNegativeFloat | None = None
    """Growth of the proportional memory of the process and its descendants at its largest, for each rollout in flight."""
    processes: NonNegativeFloat
    """Most processes that lived beside this one at a time, for each rollout in flight."""


class Note(_Part):
    """Something that a reader of the report must know."""

    kind: Literal["note"] = "note"
    text: Text


class Footer(_Part):
    """The last line of a run that was closed properly."""

    kind: Literal["footer"] = "footer"
    finished: UtcTime
    counts: dict[CellStatus, PositiveInt]
    """Cells by how they ended."""
    interrupted: bool


Record = Annotated[
    Header
    | Conformance
    | Cell
    | End
    | Verdict
    | Ceiling
    | Ratio
    | Burst
    | Probe
    | CrossCheck
    | Cost
    | Prediction
    | SettingRatio
    | Live
    | Rollouts
    | Note
    | Footer,
    Field(discriminator="kind"),
]
Part = TypeVar("Part", bound=_Part)

_RECORD: TypeAdapter[Record] = TypeAdapter(Record)


def _check_interval(record: Part, low: float | None, high: float | None) -> Part:
    if low is not None and high is not None and low > high:
        raise ValueError(f"the interval is upside down: low {low}, high {high}")
    return record


class RunError(Exception):
    """A run cannot be read or written."""


class EmptyRun(RunError):  # noqa: N818 - named for what it is
    """There is no complete record in the folder."""


class MissingHeader(RunError):  # noqa: N818 - named for what it is
    """The first record is not a header."""


class BadRecord(RunError):  # noqa: N818 - named for what it is
    """A line is not a valid record, or contradicts the ones before it."""

    def __init__(self, file: Path, line: int, reason: str) -> None:
        super().__init__(f"{file}, line {line}: {reason}")
        self.file = file
        self.line = line
        self.reason = reason


class DuplicateCell(BadRecord):
    """A cell begins twice."""


class UnknownCell(BadRecord):
    """A record speaks of a cell that did not begin."""


class BadSamples(RunError):  # noqa: N818 - named for what it is
    """A file of samples is missing, damaged, or not of this schema."""


class RunExists(RunError):  # noqa: N818 - named for what it is
    """The folder already holds a run, and runs are never overwritten."""


class WriteFailed(RunError):  # noqa: N818 - named for what it is
    """The file system refused to take a record or samples; what was written before is kept."""

    def __init__(self, folder: Path, cause: OSError) -> None:
        super().__init__(
            f"cannot write to {folder}: {cause.strerror or cause}. What was measured before is kept there; "
            "make room (or choose another folder with --out) and run again."
        )
        self.folder = folder


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it was read: consistent, in the order in which it was written."""

    folder: Path
    header: Header
    records: tuple[Record, ...]
    """Every record but header and footer."""
    footer: Footer | None
    truncated: bool
    """Whether an unfinished last line was left out: the writer was killed in the middle of it."""

    @property
    def partial(self) -> bool:
        """Whether the run did not come to its end. A report must say so."""
        return self.footer is None or self.footer.interrupted

    @property
    def torn_line(self) -> int | None:
        """The number of the line of the records that was left out because it is unfinished, or None."""
        # A header stands before the records, and each of them on a line of its own.
        return len(self.records) + 2 if self.truncated else None

    def of(self, kind: type[Part]) -> tuple[Part, ...]:
        """Select the records of one kind, such as `run.of(Verdict)`."""
        return tuple(record for record in self.records if isinstance(record, kind))

    def cell(self, cell: str) -> Cell:
        """Return a cell by its id.

        Raises:
            KeyError: There is no such cell.
        """
        return {record.id: record for record in self.of(Cell)}[cell]

    def end(self, cell: str) -> End | None:
        """Return how a cell ended; nothing when it did not."""
        return next((record for record in self.of(End) if record.cell == cell), None)

    def has_samples(self, cell: str) -> bool:
        """Whether raw samples of a cell were kept."""
        return samples_path(self.folder, cell).is_file()

    def samples(self, cell: str) -> pa.Table:
        """Read the raw samples of a cell.

        Raises:
            BadSamples: They are missing or damaged.
        """
        return read_samples(samples_path(self.folder, cell))


@dataclass(slots=True)
class _Story:
    """What the records so far allow next. Reader and writer share it, so neither accepts what the other refuses."""

    file: Path
    line: int = 1
    """The line that comes next."""
    header: Header | None = None
    others: list[Record] = field(default_factory=list)
    footer: Footer | None = None
    open_cells: set[str] = field(default_factory=set)
    ended: dict[str, CellStatus] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        if self.footer is not None:
            raise BadRecord(self.file, self.line, f"a {record.kind} stands after the footer")
        if isinstance(record, Header):
            if self.header is not None:
                raise BadRecord(self.file, self.line, "a second header")
            self.header = record
        elif self.header is None:
            raise MissingHeader(f"{self.file} begins with a {record.kind}, not with a header")
        elif isinstance(record, Footer):
            if record.counts != self.counts():
                counts = f"the footer counts {record.counts}, the cells ended as {self.counts()}"
                raise BadRecord(self.file, self.line, counts)
            self.footer = record
        else:
            self._follow(record)
            self.others.append(record)
        self.line += 1

    def _follow(self, record: Record) -> None:
        match record:
            case Cell():
                if record.id in self.open_cells or record.id in self.ended:
                    raise DuplicateCell(self.file, self.line, f"cell {record.id} begins a second time")
                self.open_cells.add(record.id)
            case End():
                self.check_known(record.cell)
                if record.cell in self.ended:
                    raise BadRecord(self.file, self.line, f"cell {record.cell} ends a second time")
                self.open_cells.remove(record.cell)
                self.ended[record.cell] = record.status
            case Verdict() | Prediction():
                self.check_known(record.cell)
            case _:
                pass

    def counts(self) -> dict[CellStatus, int]:
        return dict(Counter(self.ended.values()))

    def check_known(self, cell: str) -> None:
        if cell not in self.open_cells and cell not in self.ended:
            raise UnknownCell(self.file, self.line, f"cell {cell} did not begin")


class RunWriter:
    """Write a run into a folder, record by record; use it as a context manager.

    Leaving the context closes the run with a footer. When it is left by an exception (Ctrl-C included), the cells
    that were still running are recorded as interrupted, and so is the run.

    Args:
        folder: Made when it is missing; it must not hold a run yet.
        header: Written at once.

    Raises:
        RunExists: The folder already holds a run.
        WriteFailed: The file system refuses. Every later failure to write is raised as this, too.
    """

    def __init__(self, folder: Path, header: Header) -> None:
        self.folder = folder
        self._story = _Story(folder / RECORDS_FILE)
        try:
            (folder / SAMPLES_FOLDER).mkdir(parents=True, exist_ok=True)
            # Unbuffered: a line reaches the system as soon as it is written, and a crash cannot hold one back.
            self._file = (folder / RECORDS_FILE).open("xb", buffering=0)
        except FileExistsError as taken:
            raise RunExists(f"{folder} already holds a run; choose another folder with --out") from taken
        except OSError as refusal:
            raise WriteFailed(folder, refusal) from refusal
        self.write(header)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close(interrupted=kind is not None)
        except WriteFailed:
            # The exception under way says more; without it, a run that could not be closed must be heard of.
            if kind is None:
                raise

    def write(self, record: Record) -> None:
        """Append one record and hand it to the system at once.

        Raises:
            BadRecord: It contradicts what was written before (also as `DuplicateCell` or `UnknownCell`).
            WriteFailed: The file system refuses it. The file ends with the record before, and the run is closed.
            ValueError: The run was closed.
        """
        if self._file.closed:
            raise ValueError(f"the run in {self.folder} was closed")
        self._story.add(record)
        line = record.model_dump_json(by_alias=True, exclude_none=True).encode() + b"\n"
        at = self._file.tell()
        try:
            _write_all(self._file, line)
        except OSError as refusal:
            # A line that came through in part would be the last one; without it the file ends cleanly. Nothing may
            # follow a record that is missing, so the run ends here.
            with suppress(OSError):
                self._file.truncate(at)
            self._file.close()
            raise WriteFailed(self.folder, refusal) from refusal

    def write_samples(self, cell: str, *parts: SampleColumns) -> None:
        """Write the raw samples of a cell, the parts of several processes one after the other.

        Raises:
            UnknownCell: The cell did not begin.
            WriteFailed: The file system refuses; there is no half-written file.
        """
        self._story.check_known(cell)
        path = samples_path(self.folder, cell)
        try:
            write_samples(path, *parts)
        except OSError as refusal:
            raise WriteFailed(self.folder, refusal) from refusal

    def close(self, *, interrupted: bool = False) -> None:
        """End the run: cells still running are interrupted, the footer is written. Closing twice is harmless.

        Raises:
            WriteFailed: The file system refuses the last lines; the run then reads as partial.
        """
        if self._file.closed:
            return
        try:
            unfinished = sorted(self._story.open_cells)
            for cell in unfinished:
                self.write(
                    End(cell=cell, status="interrupted", reason="the run ended while the cell was running")
                )
            counts, interrupted = self._story.counts(), interrupted or bool(unfinished)
            self.write(Footer(finished=datetime.now(UTC), counts=counts, interrupted=interrupted))
        finally:
            self._file.close()


def _write_all(file: FileIO, data: bytes) -> None:
    # An unbuffered file may take only the beginning, on a disk that is nearly full for instance.
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def read_run(path: Path) -> Run:
    """Read a run strictly.

    Args:
        path: The folder of the run, or its `records.jsonl`.

    Returns:
        The run. A missing footer or an unfinished last line is no error: `Run.partial` says so.

    Raises:
        EmptyRun: There is no such file, or no complete record in it.
        MissingHeader: It does not begin with a header.
        DuplicateCell: A cell begins twice.
        UnknownCell: A record speaks of a cell that did not begin.
        BadRecord: A line is no valid record of this schema, or contradicts the ones before it.
    """
    file = path if path.is_file() else path / RECORDS_FILE
    try:
        content = file.read_bytes()
    except FileNotFoundError as missing:
        raise EmptyRun(f"there is no run in {path}: {RECORDS_FILE} is missing") from missing
    # Only a line that ends was written whole; what a killed writer left after the last one is not a record.
    *lines, rest = content.split(b"\n")
    story = _Story(file)
    for number, line in enumerate(lines, start=1):
        story.add(_parse(file, number, line))
    if story.header is None:
        raise EmptyRun(f"{file} holds no complete record")
    if rest and story.footer is not None:
        raise BadRecord(file, len(lines) + 1, "something stands after the footer")
    return Run(file.parent, story.header, tuple(story.others), story.footer, truncated=bool(rest))


def _parse(file: Path, number: int, line: bytes) -> Record:
    try:
        raw = json.loads(line, object_pairs_hook=_object)
    except ValueError as damage:  # also invalid UTF-8
        raise BadRecord(file, number, f"not a line of JSON: {damage}") from damage
    if not isinstance(raw, dict):
        raise BadRecord(file, number, "a record is a JSON object")
    if raw.get("kind") == "header":
        # Said before anything else: a file of another schema is not damaged, only foreign.
        if raw.get("schema") != SCHEMA:
            raise BadRecord(
                file, number, f"written with schema {raw.get('schema')}; this version reads schema {SCHEMA}"
            )
        if "method" not in raw:
            raise BadRecord(file, number, "method: Field required")
    try:
        return _RECORD.validate_json(line, strict=True)
    except ValidationError as damage:
        reasons = (
            ": ".join(filter(None, (".".join(str(step) for step in error["loc"][1:]), error["msg"])))
            for error in damage.errors(include_url=False, include_input=False, include_context=False)
        )
        raise BadRecord(file, number, "; ".join(reasons)) from damage


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} stands twice in one object")
        if value is None:
            raise ValueError(f"the key {key!r} is null; what is absent is left out")
        found[key] = value
    return found


def samples_path(folder: Path, cell: str) -> Path:
    """Say where a run keeps the raw samples of a cell."""
    return folder / SAMPLES_FOLDER / f"{cell}.parquet"


def samples_table(columns: SampleColumns) -> pa.Table:
    """Turn packed rows into an Arrow table of `SAMPLES_SCHEMA`."""
    rows = np.frombuffer(bytes(columns.rows), dtype=_ROW_TYPE)
    error = rows["error"]
    arrays = [
        pa.array(rows["session"]),
        pa.array(rows["seq"]),
        _coded(rows["phase"], PHASES),
        pa.array(rows["warmup"].astype(bool)),
        pa.array(rows["intended_ns"]),
        pa.array(rows["start_ns"]),
        pa.array(rows["ns"]),
        _coded(rows["status"], STATUSES),
        pa.DictionaryArray.from_arrays(
            pa.array(error, mask=error < 0), pa.array(columns.errors, pa.string())
        ),
    ]
    return pa.Table.from_arrays(arrays, schema=SAMPLES_SCHEMA)


_ROW_TYPE = np.dtype(
    [
        ("session", "<i4"),
        ("seq", "<i4"),
        ("phase", "i1"),
        ("warmup", "i1"),
        ("intended_ns", "<i8"),
        ("start_ns", "<i8"),
        ("ns", "<i8"),
        ("status", "i1"),
        ("error", "<i4"),
    ]
)


def _coded(codes: np.ndarray[Any, Any], words: Iterable[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(
        pa.array(codes.astype(np.int32)), pa.array([str(w) for w in words], pa.string())
    )


def write_samples(path: Path, *parts: SampleColumns) -> None:
    """Write raw samples to a Parquet file, compressed with zstd; it appears whole or not at all.

    Raises:
        OSError: The file system refuses.
    """
    unfinished = path.with_name(path.name + ".part")
    try:
        with parquet.ParquetWriter(
            unfinished,
            SAMPLES_SCHEMA,
            compression="zstd",
            use_dictionary=["phase", "status", "error"],
            write_page_checksum=True,
        ) as writer:
            for part in parts:
                writer.write_table(samples_table(part))
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def read_samples(path: Path) -> pa.Table:
    """Read raw samples strictly, as a table of `SAMPLES_SCHEMA`.

    Raises:
        BadSamples: The file is missing, damaged, or of another schema.
    """
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            table = file.read()
    except (OSError, pa.ArrowException) as damage:
        raise BadSamples(f"{path} cannot be read: {damage}") from damage
    if not table.schema.equals(SAMPLES_SCHEMA):
        raise BadSamples(
            f"{path} has other columns than samples of schema {SCHEMA}: {', '.join(table.schema.names)}"
        )
    table = table.unify_dictionaries().combine_chunks()
    for name, words in (("phase", PHASES), ("status", STATUSES)):
        strange = set(table.column(name).unique().to_pylist()) - {str(word) for word in words}
        if strange:
            raise BadSamples(f"{path} has an unknown {name}: {', '.join(sorted(map(str, strange)))}")
    return table
