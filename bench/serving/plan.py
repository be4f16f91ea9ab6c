"""A fleet, as data: its replicas, the proxy in front, and every limit derived from the sessions that it is to hold."""

from __future__ import annotations

import ipaddress
import math
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bench.machine import RESERVED_DESCRIPTORS

MARK = "rosetta_replica"
"""Name of the cookie that tells which replica holds a session. The proxy writes it into every answer.

Into every one, because clients may keep the cookies of the last answer only.
"""

DEFAULT_TARGET = 4096
"""Sessions that a fleet is laid out for when nobody says how many."""

HEADROOM = 1.25
"""How much more than the target every limit lets through: a limit is to stop what nobody planned, not the plan."""

IMBALANCE = 1.1
"""How much more than its even share one of several proxy processes may get, as the kernel deals connections out."""

BUFFER_BUDGET_BYTES = 1 << 30
"""Memory that the buffers of all connections may take together, when every peer reads slowly."""
SMALLEST_BUFFER, LARGEST_BUFFER = 16 * 1024, 1024 * 1024

UPSTREAM_IDLE_S = 4
"""How long a proxy keeps a connection to a replica that rests.

Shorter than what any of the servers does (uvicorn's own default is 5 s), so that no request goes into a connection that its
server is about to close.
"""

CONNECT_TIMEOUT_S = 10
HEALTH_EVERY_S = 2
HEALTH_TIMEOUT_S = 10
"""Patience of a health check. A replica at its limit answers late; late is not dead."""
HEALTH_FAILURES = 3
RETRIES = 6
"""How often a connection that was refused is tried again, with pauses up to a second: about as long as a replica takes to
start anew. Nothing was sent yet, so nothing can happen twice."""

Port: TypeAlias = Annotated[int, Field(ge=1, le=65_535)]
Affinity: TypeAlias = Literal["none", "header", "cookie"]
ReplicaName: TypeAlias = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]{0,15}$")]

LOST = "The server process that held this session is gone, and the session with it. Begin a new one."
BUSY = "No server process can be reached right now. Try again in a few seconds."


class Replica(BaseModel):
    """One server process.

    Attributes:
        name: What the proxy, the cookie and messages call it.
        host: Where it listens: an address, or a name that the proxy's machine can resolve.
        port: On which port.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: ReplicaName
    host: str
    port: Port

    @property
    def address(self) -> str:
        """Host and port as configuration files write them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_numeric(self) -> bool:
        """Whether the host is an address, which nobody has to look up."""
        try:
            ipaddress.ip_address(self.host)
        except ValueError:
            return False
        return True


class FleetPlan(BaseModel):
    """Say what stands behind which address, and for how many sessions.

    Attributes:
        host: Where the proxy listens.
        port: On which port.
        replicas: The server processes.
        affinity: What binds the requests of one session together.
        header: Which header, where it is one.
        health: The path that a working replica answers with 200; without one a connection is what is tried.
        target_sessions: Sessions that are to be held at the same time.
        cores: Cores that the proxy may use.
        nofile: Descriptors that one process may have.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    port: Port
    replicas: Annotated[tuple[Replica, ...], Field(min_length=1)]
    affinity: Affinity
    header: str | None = None
    health: str | None = None
    target_sessions: Annotated[int, Field(ge=1, le=1_000_000)] = DEFAULT_TARGET
    cores: Annotated[int, Field(ge=1)] = 2
    nofile: Annotated[int, Field(ge=1024)] = 20_000

    @model_validator(mode="after")
    def _check(self) -> FleetPlan:
        if (self.affinity == "header") != (self.header is not None):
            raise ValueError("a header is named where the affinity is one, and only there")
        names = [replica.name for replica in self.replicas]
        if len(set(names)) < len(names):
            raise ValueError("two replicas have the same name")
        return self

    @property
    def limit(self) -> int:
        """Connections, pending handshakes and requests that the whole proxy lets through."""
        return math.ceil(self.target_sessions * HEADROOM)

    @property
    def processes(self) -> int:
        """Proxy processes that share the port, because a session takes two descriptors in the one that it goes through."""
        room = max(1, self.nofile - RESERVED_DESCRIPTORS)
        alone = 2 * self.target_sessions + self._spare
        return 1 if alone <= room else math.ceil(2 * self.target_sessions * IMBALANCE / room)

    @property
    def _spare(self) -> int:
        # Connections to replicas that rest, and health checks.
        return 16 * len(self.replicas)

    @property
    def process_limit(self) -> int:
        """Sessions that one proxy process lets through; never more than its descriptors carry."""
        share = self.limit if self.processes == 1 else math.ceil(self.limit * IMBALANCE / self.processes)
        return min(share, (self.nofile - RESERVED_DESCRIPTORS) // 2)

    @property
    def buffer_bytes(self) -> int:
        """How much is kept for a peer that reads slowly before the other side has to wait; a power of two."""
        each = BUFFER_BUDGET_BYTES // (2 * self.limit)
        return min(LARGEST_BUFFER, max(SMALLEST_BUFFER, 1 << max(0, each.bit_length() - 1)))

    def shortages(self) -> list[str]:
        """Name what cannot hold the target, each in a sentence with what to do."""
        found = []
        each = math.ceil(
            self.target_sessions / len(self.replicas) * (1 if self.affinity == "none" else HEADROOM)
        )
        room = self.nofile - RESERVED_DESCRIPTORS
        if each > room:
            found.append(
                f"a replica would hold about {each:,} sessions, but a process here may have {self.nofile:,} descriptors; "
                f"use {math.ceil(self.target_sessions * HEADROOM / room)} replicas, or raise the limit (ulimit -Hn)"
            )
        return found


def read_affinity(fact: str) -> tuple[Affinity, str | None]:
    """Return what `affinity` of an `adapter.toml` says: the kind, and the header where it is one."""
    kind, _, header = fact.partition(":")
    if kind == "header":
        return "header", header
    return ("cookie", None) if kind == "cookie" else ("none", None)
