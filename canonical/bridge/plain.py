"""What JSON can carry of a value that a framework shows beside its observations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from canonical.content import JSON

_DEEPEST = 32


def plain_json(value: Any, *, depth: int = 0) -> JSON:
    """Return what JSON can carry of a value; of the rest, and of what lies deep or in itself, the type's name in parentheses."""
    if depth < _DEEPEST:
        if isinstance(value, Mapping):
            return {str(key): plain_json(inner, depth=depth + 1) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [plain_json(inner, depth=depth + 1) for inner in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return f"({type(value).__name__})"
