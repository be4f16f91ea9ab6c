"""The tool `order`, declared as ORS has it: a method with `@tool` and one pydantic model.

The same signature stands in every framework's `order.py`, declared in the framework's own way.
"""

# ruff: noqa: D417 - one signature for all frameworks, one of whose parameters is documented
from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

try:
    from openreward.api.environments.client import convert_tool_response
    from openreward.environments import Environment, Split, TextBlock, ToolOutput, tool
except ModuleNotFoundError:
    from ors import Environment, Split, TextBlock, ToolOutput, tool  # type: ignore[import-not-found, no-redef]
    from ors.client.environment import convert_tool_response  # type: ignore[import-not-found, no-redef]


class Size(BaseModel):
    """Give a size in millimetres."""

    width: int = Field(ge=1, description="From left to right.")
    height: int = 1


class Item(BaseModel):
    """Name an item and, where it matters, its size."""

    name: str
    size: Size | None = None


class Order(BaseModel):
    """The arguments of an order."""

    item: Item
    colour: Literal["red", "green"]
    parts: list[float]
    label: int | str
    portion: Annotated[float, Field(ge=0.0, lt=1.0, description="A part of one.")]
    note: str | None = None
    times: int = 3


class Shop(Environment):
    """Have nothing but a tool."""

    @classmethod
    def list_splits(cls) -> list[Split | str]:
        """Name no split."""
        return []

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, Any]]:  # noqa: ARG003 - there is none
        """List no task."""
        return []

    def get_prompt(self) -> list[TextBlock]:
        """Say nothing."""
        return []

    @tool
    async def order(self, params: Order) -> ToolOutput:
        """Order an item.

        Args:
            colour: The colour of the item.
        """
        return ToolOutput(blocks=[TextBlock(text=str(params))])


def declared() -> list[dict[str, Any]]:
    """Return each form in which a client gets the tool."""
    (spec,) = Shop.list_tools().tools
    (for_a_model,) = convert_tool_response({"tools": [spec.model_dump(mode="json")]}, "openai")
    whole = {
        "name": "`list_tools()`",
        "way": "`@tool` and one pydantic model",
        "shown": "what a session lists",
        "schema": spec.input_schema,
    }
    for_openai = {
        "name": "`list_tools(format='openai')`",
        "way": "the same, asked for in OpenAI's form",
        "shown": "what a session lists for OpenAI's API",
        "schema": for_a_model["parameters"],
    }
    return [{**one, "description": spec.description} for one in (whole, for_openai)]
