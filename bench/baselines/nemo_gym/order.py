"""The tool `order`, declared as NeMo Gym has it: a method with `@gym_tool`, and a route with a model.

The same signature stands in every framework's `order.py`, declared in the framework's own way.
"""

# ruff: noqa: D417, PLR0917 - one signature for all frameworks, one of whose parameters is documented
from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import FastAPI
from mcp.server.fastmcp import FastMCP
from nemo_gym.base_resources_server import (
    BaseVerifyRequest,
    BaseVerifyResponse,
    MCPResourcesServer,
    SimpleResourcesServer,
    gym_tool,
)
from pydantic import BaseModel, Field


class Size(BaseModel):
    """Give a size in millimetres."""

    width: int = Field(ge=1, description="From left to right.")
    height: int = 1


class Item(BaseModel):
    """Name an item and, where it matters, its size."""

    name: str
    size: Size | None = None


class OrderRequest(BaseModel):
    """The body of an order."""

    item: Item
    colour: Literal["red", "green"]
    parts: list[float]
    label: int | str
    portion: Annotated[float, Field(ge=0.0, lt=1.0, description="A part of one.")]
    note: str | None = None
    times: int = 3


class ToolShop(MCPResourcesServer):
    """Offer a tool over MCP."""

    @gym_tool
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

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        """Pay nothing."""
        return BaseVerifyResponse(**body.model_dump(), reward=0.0)


class RouteShop(SimpleResourcesServer):
    """Offer a route."""

    def setup_webserver(self) -> FastAPI:
        """Add the route of the tool."""
        app = FastAPI()
        app.post("/order")(self.order)
        return app

    async def order(self, body: OrderRequest) -> str:
        """Order an item.

        Args:
            colour: The colour of the item.
        """
        return str(body)

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        """Pay nothing."""
        return BaseVerifyResponse(**body.model_dump(), reward=0.0)


def declared() -> list[dict[str, Any]]:
    """Return each way to declare the tool, with what a policy is shown of it."""
    mcp = FastMCP("shop")
    ToolShop.model_construct().register_mcp_tools(mcp)
    (tool,) = asyncio.run(mcp.list_tools())
    described = RouteShop.model_construct().setup_webserver().openapi()
    route = described["paths"]["/order"]["post"]
    model = described["components"]["schemas"]["OrderRequest"]
    return [
        {
            "name": "`@gym_tool`",
            "way": "`@gym_tool` of an `MCPResourcesServer`",
            "shown": "`tools/list` of the server's MCP, for an agent that speaks it",
            "description": tool.description,
            "schema": tool.inputSchema,
        },
        {
            "name": "a route",
            "way": "a POST route with a pydantic body",
            "shown": "what the author writes into the row's `tools` by hand; the server's OpenAPI, which no policy sees, has the rest",
            "description": None,
            "schema": None,
            "unseen": {"description": route["description"], "schema": model},
        },
    ]
