"""An environment of this project, as a module that the earlier API loads."""

from __future__ import annotations

from typing import Any

from adapters.verifiers.compiler import compile_environment
from canonical.catalogue import load_environment as load


def load_environment(name: str = "docs/examples/higher_lower.py") -> Any:
    """Return the compiled environment."""
    return compile_environment(load(name))
