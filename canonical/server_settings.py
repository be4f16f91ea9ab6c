"""Settings of a server, as one object that passes through the port. What is left out stays as the adapter has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field


class ServerSettings(BaseModel):
    """Say what is to be other than the adapter's default.

    Attributes:
        http: Implementation of HTTP, as the server names it.
        ws: Implementation of WebSocket, as the server names it.
        ws_deflate: Whether WebSocket messages are compressed where the client agrees.
        ping_interval_s: Seconds between the pings to a WebSocket client; 0 sends none.
        backlog: Connections that the kernel keeps until they are accepted.
        threads: Plain tools that work at the same time.
        gc_freeze: Whether what is alive when serving begins is left out of garbage collection.
        gc_thresholds: Thresholds of the three generations of the garbage collector.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    http: str | None = None
    ws: str | None = None
    ws_deflate: bool | None = None
    ping_interval_s: float | None = Field(default=None, ge=0)
    backlog: int | None = Field(default=None, ge=1)
    threads: int | None = Field(default=None, ge=1)
    gc_freeze: bool | None = None
    gc_thresholds: tuple[int, int, int] | None = None

    def uvicorn(self) -> dict[str, Any]:
        """Return what these settings change of uvicorn's configuration, by its own names."""
        changed: dict[str, Any] = {
            "http": self.http,
            "ws": self.ws,
            "ws_per_message_deflate": self.ws_deflate,
            "backlog": self.backlog,
        }
        found = {name: value for name, value in changed.items() if value is not None}
        if self.ping_interval_s is not None:
            found["ws_ping_interval"] = self.ping_interval_s or None
        return found


@runtime_checkable
class SettableServer(Protocol):
    """Be an adapter whose servers can be given other settings than its own."""

    def with_settings(self, settings: ServerSettings, /) -> Any:
        """Return this adapter with servers that have these settings."""

    def alternatives(self) -> Mapping[str, ServerSettings]:
        """Return settings worth comparing with the adapter's own, by a name such as `ws=websockets`."""
