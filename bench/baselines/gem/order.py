"""The tool `order`, declared as GEM has it: a class that describes itself and reads its call out of a text.

The same signature stands in every framework's `order.py`, declared in the framework's own way.
"""

from __future__ import annotations

import importlib
import json
from typing import Annotated, Any, Literal

from gem.tools.base_tool import BaseTool
from pydantic import BaseModel, Field, TypeAdapter


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


class OrderTool(BaseTool):
    """Take an order out of the text of an action."""

    tool_type = "order"

    def instruction_string(self) -> str:
        """Say how the tool is used, in words of the author's own."""
        return "Order an item: <order>{...}</order>"

    def execute_action(self, action: str) -> tuple[bool, bool, str, str]:
        """Take an order."""
        _, begun, rest = action.partition("<order>")
        body, ended, _ = rest.partition("</order>")
        if not begun or not ended:
            return False, False, "", ""
        order = TypeAdapter(Order).validate_python(json.loads(body))
        return True, False, str(order), action


def _from_a_server() -> dict[str, Any]:
    try:
        importlib.import_module("gem.tools.mcp_tool")
    except ModuleNotFoundError as error:
        untried = f"not tried: there is no module {error.name}, which the extra `mcp` brings"
    else:
        untried = "not tried: it needs a server of tools"
    return {
        "name": "`MCPTool`",
        "way": "`MCPTool`, which hands on the tools of an MCP server",
        "shown": untried,
        "description": None,
        "schema": None,
        "is_tried": False,
    }


def declared() -> list[dict[str, Any]]:
    """Return the way to declare the tool, with what a policy is shown of it."""
    return [
        {
            "name": "`BaseTool`",
            "way": "`instruction_string` and `execute_action` of a `BaseTool`",
            "shown": "the text that the author's `instruction_string` returns",
            "description": None,
            "schema": None,
            "unseen": {"instruction_string()": OrderTool().instruction_string()},
        },
        _from_a_server(),
    ]
