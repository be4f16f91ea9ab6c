"""What a measurement of proxies found, as a file of tagged lines, `proxies.jsonl`; raw numbers, no averages.

Like the records of frameworks: appended and flushed line by line, read strictly, nothing null and nothing infinite.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Annotated, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, TypeAdapter, ValidationError

from bench.machine import Machine, Pressure
from bench.records import BadRecord, EmptyRun, JsonObject, MissingHeader, RunExists, Text, UtcTime
from bench.serving.proxies.protocol import Variant

SCHEMA = 2
"""Shape of the records. A reader refuses every other."""
METHOD = 1
"""Meaning of the numbers. Numbers of different methods are never compared."""
RECORDS_FILE = "proxies.jsonl"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ProxyHeader(_Part):
    """The first line: everything that a run was made of."""

    kind: Literal["proxy_header"] = "proxy_header"
    schema_version: int = Field(default=SCHEMA, alias="schema")
    method: int = METHOD
    run_id: str
    started: UtcTime
    stack: str
    """One or several, with commas between them."""
    environment: str
    replicas: PositiveInt
    turns: PositiveInt
    tool_s: float
    machine: Machine
    pressure: Pressure | None = None
    """How busy the machine was before anything was measured."""
    commit: str | None = None
    dirty: bool | None = None
    args_passed: tuple[str, ...]


class ProxyTrial(_Part):
    """So many sessions that were to be held through a proxy at the same time, once."""

    kind: Literal["proxy_trial"] = "proxy_trial"
    proxy: str
    title: Text
    version: Text
    variant: Variant
    plan: JsonObject
    """The fleet's plan; a default variant uses its addresses only."""
    processes: PositiveInt
    """Proxy processes that shared the port."""
    sessions: PositiveInt
    opened: NonNegativeInt
    peak_open: NonNegativeInt
    """Sessions open at the same time, counted by their clients when the last had connected or failed."""
    peak_on_replicas: dict[str, NonNegativeInt]
    """The most that each replica held, by its own count."""
    succeeded: NonNegativeInt
    errors: dict[str, NonNegativeInt]
    connect_ns: tuple[NonNegativeInt, ...]
    step_ns: tuple[NonNegativeInt, ...]
    """Every step that was answered rightly."""
    step_failures: NonNegativeInt
    """Steps that were tried and were not; a session that was never let through tried none."""
    generator_utilisation: float | None = None
    """CPU share of the busiest generator process while sessions were held."""
    generator_lag_p99_ns: NonNegativeInt | None = None
    counters: dict[str, int]
    """The proxy's own statistics at the end of the trial."""
    most: dict[str, int]
    """The largest of each that was seen, twice a second."""
    proxy_cpu_s: float
    proxy_rss_idle_bytes: NonNegativeInt
    proxy_rss_bytes: NonNegativeInt
    """Memory of all its processes before the trial, and at most."""
    pressure_before: Pressure
    pressure_after: Pressure
    own_cpu_s: float
    """CPU seconds of the generator, the proxy, the replicas and the harness between both readings."""


class Fault(_Part):
    """Something that was done to a fleet while it held sessions, and what became of every one of them."""

    kind: Literal["fault"] = "fault"
    stack: str
    proxy: str
    title: Text
    name: Text
    """What was done."""
    sessions: PositiveInt
    opened: NonNegativeInt
    succeeded: NonNegativeInt
    lost: dict[str, NonNegativeInt]
    """How the other sessions ended, by the text of their error."""
    unaccounted: NonNegativeInt
    """Sessions that neither succeeded nor were told why not."""
    held_after: dict[str, NonNegativeInt]
    """Sessions that replicas still held when all clients were gone, after `settled_s`."""
    settled_s: float
    idle_limit_s: float | None = None
    """After how long without a request the servers free a session, where they do."""
    fresh_succeeded: NonNegativeInt
    fresh_sessions: PositiveInt
    """Sessions played after the fault, to see whether the service is whole again."""
    events: tuple[Text, ...]
    """What the fleet said."""
    ended_by: Text
    """Whether the load run came to its end or had to be cut."""
    pressure_before: Pressure
    pressure_after: Pressure
    """Around the part in which sessions were held."""
    own_cpu_s: float
    """As of a trial."""


class ProxyFooter(_Part):
    """The last line of a run that was closed properly."""

    kind: Literal["proxy_footer"] = "proxy_footer"
    finished: UtcTime
    interrupted: bool


ProxyRecord = Annotated[ProxyHeader | ProxyTrial | Fault | ProxyFooter, Field(discriminator="kind")]
_RECORD: TypeAdapter[ProxyRecord] = TypeAdapter(ProxyRecord)
RecordT = TypeVar("RecordT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class ProxyRun:
    """A run as it was read.

    Attributes:
        header: Its first line.
        records: Every line between header and footer.
        partial: Whether it did not come to its end.
    """

    header: ProxyHeader
    records: tuple[ProxyRecord, ...]
    partial: bool

    def of(self, kind: type[RecordT]) -> tuple[RecordT, ...]:
        """Select the records of one kind."""
        return tuple(record for record in self.records if isinstance(record, kind))


class ProxyRunWriter:
    """Write a run record by record; use it as a context manager, which writes the footer.

    Raises:
        RunExists: The folder already holds a run.
        OSError: The file system refuses.
    """

    def __init__(self, folder: Path, header: ProxyHeader) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self._file = (folder / RECORDS_FILE).open("xb", buffering=0)
        except FileExistsError as taken:
            raise RunExists(f"{folder} already holds a run; choose another folder with --out") from taken
        self.write(header)

    def write(self, record: BaseModel) -> None:
        """Append one record."""
        self._file.write(record.model_dump_json(by_alias=True, exclude_none=True).encode() + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.write(ProxyFooter(finished=datetime.now(UTC), interrupted=kind is not None))
        finally:
            self._file.close()


def read_proxy_run(folder: Path) -> ProxyRun:
    """Read a run strictly. A missing footer or an unfinished last line is no error: `partial` says so.

    Raises:
        EmptyRun: There is no run in the folder.
        MissingHeader: It does not begin with a header.
        BadRecord: A line is no valid record of this schema.
    """
    file = folder / RECORDS_FILE
    try:
        *lines, _ = file.read_bytes().split(b"\n")
    except FileNotFoundError as missing:
        raise EmptyRun(f"there is no run in {folder}: {RECORDS_FILE} is missing") from missing
    records: list[ProxyRecord] = []
    for number, line in enumerate(lines, start=1):
        try:
            raw = json.loads(line)
            if isinstance(raw, dict) and raw.get("schema", SCHEMA) != SCHEMA:
                raise BadRecord(
                    file, number, f"written with schema {raw['schema']}; this version reads {SCHEMA}"
                )
            record = _RECORD.validate_json(line, strict=True)
        except (ValidationError, ValueError) as damage:
            raise BadRecord(file, number, str(damage).splitlines()[0]) from damage
        if number > 1 and (isinstance(record, ProxyHeader) or isinstance(records[-1], ProxyFooter)):
            raise BadRecord(file, number, "it stands where no record may stand")
        records.append(record)
    if not records:
        raise EmptyRun(f"{file} holds no complete record")
    header, *rest = records
    if not isinstance(header, ProxyHeader):
        raise MissingHeader(f"{file} does not begin with a header")
    footer = rest.pop() if rest and isinstance(rest[-1], ProxyFooter) else None
    partial = not isinstance(footer, ProxyFooter) or footer.interrupted
    return ProxyRun(header, tuple(rest), partial)
