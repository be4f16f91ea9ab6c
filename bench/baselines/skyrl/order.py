"""The tool `order`, declared as SkyRL Gym has it: a method with `@tool` of a tool group.

The same signature stands in every framework's `order.py`, declared in the framework's own way.
"""

# ruff: noqa: D417, PLR0917 - one signature for all frameworks, one of whose parameters is documented
from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from skyrl_gym.tools.core import ToolGroup, tool


class Size(BaseModel):
    """Give a size in millimetres."""

    width: int = Field(ge=1, description="From left to right.")
    height: int = 1


class Item(BaseModel):
    """Name an item and, where it matters, its size."""

    name: str
    size: Size | None = None


class ShopTools(ToolGroup):
    """Offer a tool."""

    def __init__(self) -> None:
        super().__init__(name="ShopTools")

    @tool
    def order(
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


def declared() -> list[dict[str, Any]]:
    """Return the way to declare the tool, with what the group knows of it."""
    group, kept = ShopTools(), vars(ShopTools.__dict__["order"])
    return [
        {
            "name": "`@tool`",
            "way": "`@tool` of a `ToolGroup`",
            "shown": "what the author writes into the prompt by hand; the group tells the names of its tools",
            "description": None,
            "schema": None,
            "unseen": {"get_tool_names()": group.get_tool_names(), "the decorator keeps": sorted(kept)},
        }
    ]
