"""What a measurement of proxies found, as a file of tagged lines, `proxies.jsonl`; raw numbers, no averages.

Like the records of frameworks: appended and flushed line by line, read strictly, nothing null and nothing infinite.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, TypeAdapter

from bench.lines import LineWriter, read_lines
from bench.machine import Machine, Pressure
from bench.records import JsonObject, Text, UtcTime
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
    """How the other sessions ended, by the text of the first error of each."""
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


class ProxyRunWriter(LineWriter):
    """Write a run of proxies."""

    def __init__(self, folder: Path, header: ProxyHeader) -> None:
        super().__init__(folder / RECORDS_FILE, header, ProxyFooter)


def read_proxy_run(folder: Path) -> ProxyRun:
    """Read a run as `bench.lines.read_lines` does, with its errors."""
    header, records, partial = read_lines(
        folder / RECORDS_FILE, _RECORD, ProxyHeader, ProxyFooter, schema=SCHEMA
    )
    return ProxyRun(header, records, partial)
