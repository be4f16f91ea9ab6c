"""The installed distribution of ORS: `openreward` or `ors-sdk`. Both offer the same names in modules of their own.

The environment variables that are set here are read while the modules are imported.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

# openreward asks a package index whether it is out of date, from a thread of its own; nobody asked for that.
os.environ.setdefault("OPENREWARD_DISABLE_UPDATE_CHECK", "1")
# Both write several lines per request unless told otherwise, to standard output.
os.environ.setdefault("OPENREWARD_LOG_LEVEL", "WARNING")
os.environ.setdefault("ORS_LOG_LEVEL", "WARNING")

HAS_OPENREWARD = find_spec("openreward") is not None

if TYPE_CHECKING:
    from openreward.environments import Environment, Server, Split, TextBlock, ToolOutput, tool
    from openreward.environments.types import (
        ImageBlock,
        ListToolsOutput,
        RunToolError,
        RunToolOutput,
        RunToolSuccess,
        ToolSpec,
    )

    CHUNK_SIZE: int
    LINGER_SECONDS: int
    Message: Any
else:
    root = "openreward.environments" if HAS_OPENREWARD else "ors"
    types = import_module(f"{root}.types")
    Environment = import_module(root).Environment
    Server = import_module(root).Server
    tool = import_module(root).tool
    ImageBlock = types.ImageBlock
    ListToolsOutput = types.ListToolsOutput
    RunToolError = types.RunToolError
    RunToolOutput = types.RunToolOutput
    RunToolSuccess = types.RunToolSuccess
    Split = types.Split
    TextBlock = types.TextBlock
    ToolOutput = types.ToolOutput
    ToolSpec = types.ToolSpec
    # Prompts with roles came later than prompts.
    Message = getattr(types, "Message", None)
    reconnect = import_module(f"{root}.{'reconnect' if HAS_OPENREWARD else '_reconnect'}")
    CHUNK_SIZE = reconnect.CHUNK_SIZE
    LINGER_SECONDS = reconnect.LINGER_SECONDS

PACKAGES = ("openreward", "ors-sdk")

__all__ = [
    "CHUNK_SIZE",
    "HAS_OPENREWARD",
    "LINGER_SECONDS",
    "PACKAGES",
    "Environment",
    "ImageBlock",
    "ListToolsOutput",
    "Message",
    "RunToolError",
    "RunToolOutput",
    "RunToolSuccess",
    "Server",
    "Split",
    "TextBlock",
    "ToolOutput",
    "ToolSpec",
    "tool",
]
