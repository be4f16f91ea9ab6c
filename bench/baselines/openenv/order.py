"""The tool `order`, declared as OpenEnv has it: a FastMCP tool, and a tool of one mode.

The same signature stands in every framework's `order.py`, declared in the framework's own way.
"""

# ruff: noqa: D417, PLR0917 - one signature for all frameworks, one of whose parameters is documented
from __future__ import annotations

from typing import Annotated, Any, Literal

from fastmcp import FastMCP
from openenv.core.env_server import MCPEnvironment
from openenv.core.env_server.mcp_types import ListToolsAction, ListToolsObservation
from openenv.core.env_server.types import Action, Observation, State
from pydantic import BaseModel, Field


class Size(BaseModel):
    """Give a size in millimetres."""

    width: int = Field(ge=1, description="From left to right.")
    height: int = 1


class Item(BaseModel):
    """Name an item and, where it matters, its size."""

    name: str
    size: Size | None = None


class _Shop(MCPEnvironment):
    """Have nothing but tools."""

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Observation:  # noqa: ARG002
        """Return nothing to see."""
        return Observation()

    def _step_impl(self, action: Action, timeout_s: float | None = None, **_: Any) -> Observation:  # noqa: ARG002
        return Observation()

    @property
    def state(self) -> State:
        """Nothing happens."""
        return State()


class Shop(_Shop):
    """Offer a FastMCP tool."""

    def __init__(self) -> None:
        mcp = FastMCP("shop")

        @mcp.tool
        def order(
            item: Item,
            colour: Literal["red", "green"],
            parts: list[float],
            label: int | str,
            portion: Annotated[float, Field(ge=0.0, lt=1.0, description="A part of one.")],
            note: str | None = None,
            times: int = 3,
        ) -> str:
            """Order an item.

            Args:
                colour: The colour of the item.
            """
            return f"{item} {colour} {parts} {label} {portion} {note} {times}"

        super().__init__(mcp)


class SimulatedShop(_Shop):
    """Offer a tool in one mode only, which whoever makes the environment sets."""

    def __init__(self) -> None:
        super().__init__(FastMCP("shop"))
        self._mode = "simulation"

        @self.tool(mode="simulation")
        def order(
            item: Item,
            colour: Literal["red", "green"],
            parts: list[float],
            label: int | str,
            portion: Annotated[float, Field(ge=0.0, lt=1.0, description="A part of one.")],
            note: str | None = None,
            times: int = 3,
        ) -> str:
            """Order an item.

            Args:
                colour: The colour of the item.
            """
            return f"{item} {colour} {parts} {label} {portion} {note} {times}"


def _listed(environment: _Shop) -> dict[str, Any]:
    listed = environment.step(ListToolsAction())
    if not isinstance(listed, ListToolsObservation):
        raise TypeError(f"tools are listed as {type(listed).__name__}")
    (tool,) = listed.tools
    return {"description": tool.description, "schema": tool.input_schema}


def declared() -> list[dict[str, Any]]:
    """Return each way to declare the tool, with what a policy is shown of it."""
    shown = "what `ListToolsAction` answers"
    return [
        {"name": "`@mcp.tool`", "way": "`@mcp.tool` of a FastMCP server", "shown": shown, **_listed(Shop())},
        {
            "name": "`@self.tool(mode=...)`",
            "way": "`@self.tool(mode=...)`, shown where the author sets `_mode`",
            "shown": shown,
            **_listed(SimulatedShop()),
        },
    ]
