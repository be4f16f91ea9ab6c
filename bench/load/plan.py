"""What a load run does, as data: written by the engine or by hand, read by every generator process."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from bench.arrival import Arrival

Count: TypeAlias = Annotated[int, Field(ge=1)]
Seconds: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
PositiveSeconds: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Port: TypeAlias = Annotated[int, Field(ge=1, le=65535)]
ModuleName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")]


class BadPlan(Exception):  # noqa: N818 - what happened, read as a sentence
    """Say in one line why a plan cannot be carried out."""


class Endpoint(NamedTuple):
    """One place at which the server listens."""

    address: str
    port: int


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Call(_Part):
    """One tool call, and what the reference answers to it; an absent expectation is not checked."""

    name: str
    arguments: dict[str, JsonValue] = {}
    text: str | None = None
    """Expected observation."""
    reward: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Expected reward, compared exactly."""
    ended: bool | None = None
    """Whether the episode is expected to be over after this call."""


class Script(_Part):
    """The fixed calls of every session that plays a task."""

    task: str
    seed: int | None = None
    """Seed of every session that plays the script; by default the session's number."""
    prompt: str | None = None
    """Expected observation after the reset; not checked when absent."""
    calls: tuple[Call, ...]
    total: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Expected reward of the whole, where a framework has one asked for; see `expected_total` for the default."""

    def expected_total(self, turns: int) -> float | None:
        """Return what scoring after the first `turns` calls should say; None if that is not known.

        Unless `total` says it, it is the sum of their expected rewards, in order, if the last of them is to end the
        episode or one of them has paid. An episode that pays at its end only, and is left before, is scored in whatever
        state it is then, which its steps do not tell.
        """
        if self.total is not None:
            return self.total
        rewards = [call.reward for call in self.calls[:turns]]
        known = [reward for reward in rewards if reward is not None]
        if len(known) < len(rewards) or not (any(known) or self.calls[turns - 1].ended):
            return None
        return sum(known)


class LoadPlan(_Part):
    """Hold `sessions` sessions open at once, then play `turns` steps in each, and close; or let them arrive by themselves.

    Session i plays the script i % len(scripts), with the seed i unless the script has its own, at the endpoint i % len(endpoints). Times are seconds.
    """

    adapter: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    """Name of the folder in `adapters/` whose `wire.py` knows the frames."""
    wire_module: ModuleName | None = None
    """Another module that defines `WIRE`; by default `adapters.<adapter>.wire`."""
    addresses: Annotated[tuple[str, ...], Field(min_length=1)] = ("127.0.0.1",)
    """Numeric destination addresses, used in turn; each gives one source address some 28,000 ports."""
    ports: Annotated[tuple[Port, ...], Field(min_length=1)]
    host: str | None = None
    """Host header without the port; by default the address."""
    query: str = ""
    """Query string of the endpoint of a WebSocket, without the question mark."""
    sessions: Count
    scripts: Annotated[tuple[Script, ...], Field(min_length=1)]
    turns: Count
    """Steps per session: the first `turns` calls of its script."""
    warmup_turns: Annotated[int, Field(ge=0)] = 0
    """Leading steps of each session that are marked as warm-up."""
    hold_s: Seconds = 0.25
    """How long all sessions are held before the barrier opens: a server that drops sessions just after it accepted
    them shall have done so before they are counted."""
    spread_s: Seconds = 0.0
    """The starts of the sessions after the barrier are spread evenly over this time."""
    think_s: Seconds = 0.0
    """Pause before every step."""
    tool_s: Seconds = 0.0
    """How long a step works by design; what an open loop has its schedule from."""
    arrival: Literal["closed"] | Arrival = "closed"
    """In a closed loop a step starts when the one before it is answered and thought about. In an open loop sessions
    arrive by themselves, with no barrier, and step k of a session (from 0) is meant to start `think_s` + k x (`think_s` +
    `tool_s`) after its arrival: a session that is behind does not think until it has caught up. Where nobody thinks, a
    step is meant to start when the one before it is answered."""
    connect_gate: Count = 256
    """Sessions of one generator process that are connecting at the same time."""
    connect_timeout_s: PositiveSeconds = 60.0
    reply_timeout_s: PositiveSeconds = 120.0
    """Patience for the answer to a reset, a step, or a score."""
    close_timeout_s: PositiveSeconds = 30.0
    time_limit_s: PositiveSeconds = 600.0
    """The whole run is stopped after this time, and what was measured is written."""
    processes: Count = 1
    """Generator processes that `run_load` starts on this machine."""
    out: Path
    """Folder for the samples and the summary."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for address in self.addresses:
            try:
                ipaddress.ip_address(address)
            except ValueError:
                raise ValueError(
                    f"addresses: {address!r} is not numeric; resolve the name and write the number"
                ) from None
        short = next((script for script in self.scripts if len(script.calls) < self.turns), None)
        if short is not None:
            raise ValueError(
                f"scripts: task {short.task!r} has {len(short.calls)} calls, but every session plays {self.turns} turns"
            )
        if self.arrival != "closed" and self.spread_s:
            raise ValueError("spread_s: in an open loop the arrivals say when a session starts")
        if self.warmup_turns >= self.turns:
            raise ValueError(
                f"warmup_turns: {self.warmup_turns} of {self.turns} turns would leave nothing measured"
            )
        return self

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a plan file.

        Raises:
            BadPlan: There is no such file, or it is not a plan; the text names the file and the field.
        """
        try:
            text = file.read_bytes()
        except OSError as e:
            raise BadPlan(f"the plan file {file} cannot be read: {e.strerror}") from e
        return cls.parse(text, f"the plan file {file}")

    @classmethod
    def parse(cls, text: str | bytes, name: str = "the plan") -> Self:
        """Read a plan from JSON text; `name` says in an error where the text came from.

        Raises:
            BadPlan: The text is not a plan.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as e:
            first, *more = e.errors(include_url=False)
            where = ".".join(map(str, first["loc"]))
            rest = f" (and {len(more)} more)" if more else ""
            message = first["msg"].removeprefix("Value error, ")
            raise BadPlan(f"{name} is not valid: {where + ': ' if where else ''}{message}{rest}") from e

    def to_json(self) -> str:
        """Return the plan as JSON text that `parse` reads."""
        return self.model_dump_json(exclude_none=True)

    @property
    def wire(self) -> str:
        """Return the name of the module that defines the wire protocol."""
        return self.wire_module or f"adapters.{self.adapter}.wire"

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return every address with every port, addresses first."""
        return tuple(Endpoint(address, port) for port in self.ports for address in self.addresses)

    def share(self, rank: int, of: int) -> range:
        """Return the sessions that the worker of a rank holds; the shares of all ranks are a partition."""
        return range(rank, self.sessions, of)

    def starts_s(self) -> tuple[float, ...]:
        """Return how long after the barrier each session starts, or, in an open loop, arrives."""
        if isinstance(self.arrival, Arrival):
            return self.arrival.times_s(self.sessions)
        return tuple(self.spread_s * session / self.sessions for session in range(self.sessions))

    def step_s(self, turn: int) -> float | None:
        """Return how long after its arrival a session is meant to start a step; None where no schedule says so."""
        if self.arrival == "closed" or not self.think_s:
            return None
        return self.think_s + turn * (self.think_s + self.tool_s)
