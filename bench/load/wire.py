"""The seam between the load engine and the wire protocol of a framework.

The engine knows connections, sessions and time; what the frames of a framework look like it learns from
`adapters/<name>/wire.py`, which is loaded by name at run time and defines one object `WIRE` of type `Wire`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canonical.content import JSON

Transport: TypeAlias = Literal["websocket"]
"""How frames travel. Every transport has one user class in the locustfile."""


class Reply(NamedTuple):
    """What a frame of the server says."""

    text: str
    """The observation as a model reads it."""
    reward: float
    """Reward of the step; 0.0 where the protocol carries none."""
    ended: bool
    """Whether the episode is over."""
    error: str | None
    """Failure of the protocol: the server refused or crashed. A tool's own error is an observation, not this."""


class Wire(Protocol):
    """Translate between calls and the frames of one framework; stateless, one object for all sessions."""

    @property
    def transport(self) -> Transport:
        """Return how frames travel."""

    @property
    def path(self) -> str:
        """Return the absolute path of the endpoint, such as `/ws`."""

    def reset(self, task: str, seed: int) -> str:
        """Return the frame that opens an episode of a task."""

    def step(self, name: str, arguments: Mapping[str, JSON]) -> str:
        """Return the frame of one tool call. The same call always gives the same frame."""

    def close(self) -> str | None:
        """Return the frame that makes the server end the session and close the connection.

        None means that the transport's own closing says it.
        """

    def read_reset(self, frame: str) -> Reply:
        """Read the answer to `reset`; raises ValueError for a frame that the protocol does not know."""

    def read_step(self, frame: str) -> Reply:
        """Read the answer to `step`; raises ValueError for a frame that the protocol does not know."""


class WireNotFound(Exception):  # noqa: N818 - what happened, read as a sentence
    """Say why the wire protocol of an adapter cannot be loaded."""


def load_wire(module: str) -> Wire:
    """Load the object `WIRE` of a module, such as `adapters.openenv.wire`.

    Raises:
        WireNotFound: There is no such module, it does not import, or it defines no complete `WIRE`.
    """
    try:
        loaded = importlib.import_module(module)
    except Exception as e:
        raise WireNotFound(f"the wire protocol {module} does not load: {type(e).__name__}: {e}") from e
    wire: Wire | None = getattr(loaded, "WIRE", None)
    needed = ("transport", "path", "reset", "step", "close", "read_reset", "read_step")
    missing = [name for name in needed if not hasattr(wire, name)]
    if wire is None or missing:
        what = "WIRE" if wire is None else f"WIRE.{', WIRE.'.join(missing)}"
        raise WireNotFound(f"the module {module} does not define {what}")
    return wire
