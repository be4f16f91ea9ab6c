"""What JSON can carry of a value that a framework shows beside its observations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from canonical.content import JSON


def plain_json(value: Any) -> JSON:
    """Return what JSON can carry of a value; of the rest, the name of its type in parentheses."""
    if isinstance(value, Mapping):
        return {str(key): plain_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(inner) for inner in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return f"({type(value).__name__})"
