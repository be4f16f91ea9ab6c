"""The tool `order`, declared as Verifiers has it: a method with `@vf.tool` of a tool server.

The same signature stands in every framework's `order.py`, declared in the framework's own way.
"""

# ruff: noqa: D417, PLR0917 - one signature for all frameworks, one of whose parameters is documented
# ruff: noqa: I002 - a tool server does not find the types of annotations that are postponed, as is tried below
import asyncio
from typing import Annotated, Any, Literal

import verifiers.v1 as vf
from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel, Field, PydanticUserError


class Size(BaseModel):
    """Give a size in millimetres."""

    width: int = Field(ge=1, description="From left to right.")
    height: int = 1


class Item(BaseModel):
    """Name an item and, where it matters, its size."""

    name: str
    size: Size | None = None


class ShopTools(vf.Toolset[vf.ToolsetConfig, vf.State]):
    """Offer a tool."""

    @vf.tool
    async def order(
        self,
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


class PostponedTools(vf.Toolset[vf.ToolsetConfig, vf.State]):
    """Offer a tool whose annotation is a text, as every annotation is that is postponed."""

    @vf.tool
    async def order(self, item: "Item") -> str:
        """Order an item."""
        return str(item)


def _postponed() -> str:
    try:
        PostponedTools(vf.ToolsetConfig()).register(MCPServer("shop"))
    except PydanticUserError as error:
        return f"refused: {str(error).partition(';')[0]}"
    return "kept"


def declared() -> list[dict[str, Any]]:
    """Return the way to declare the tool, with what a policy is shown of it."""
    server = MCPServer("shop")
    ShopTools(vf.ToolsetConfig()).register(server)
    (tool,) = asyncio.run(server.list_tools())
    return [
        {
            "name": "`@vf.tool`",
            "way": "`@vf.tool` of a `Toolset`",
            "shown": "`tools/list` of the tool server, as the harness puts it into the request for a completion",
            "description": tool.description,
            "schema": tool.input_schema,
            "postponed": _postponed(),
        }
    ]
