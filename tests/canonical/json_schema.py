"""A check of values against JSON Schema, written from the standard and apart from the code under test."""

from __future__ import annotations

import re
from typing import Any

TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
    "array": list,
    "object": dict,
}


def violations(value: Any, schema: dict[str, Any], root: dict[str, Any] | None = None) -> list[str]:
    """Return what keeps a value from fitting a schema; an unknown keyword is an error of the test."""
    root = schema if root is None else root
    found = []
    for keyword, wanted in schema.items():
        if not _KEYWORDS[keyword](value, wanted, schema, root):
            found.append(f"{value!r} breaks {keyword} {wanted!r}")
    return found


def fits(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    return not violations(value, schema, root)


def _has_type(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, TYPES[name])


def _equal(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) is isinstance(other, bool)


def _resolve(reference: str, root: dict[str, Any]) -> dict[str, Any]:
    assert reference.startswith("#/$defs/"), reference
    return root["$defs"][reference.removeprefix("#/$defs/")]


def _numeric(check: Any) -> Any:
    return lambda value, wanted, _schema, _root: not _has_type(value, "number") or check(value, wanted)


def _sized(kind: Any, check: Any) -> Any:
    return lambda value, wanted, _schema, _root: not isinstance(value, kind) or check(len(value), wanted)


def _additional(value: Any, wanted: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    if not isinstance(value, dict):
        return True
    extra = [item for key, item in value.items() if key not in schema.get("properties", {})]
    if isinstance(wanted, bool):
        return wanted or not extra
    return all(fits(item, wanted, root) for item in extra)


def _note(*_: Any) -> bool:
    return True


_KEYWORDS: dict[str, Any] = {
    "$defs": _note,
    "default": _note,
    "description": _note,
    "discriminator": _note,
    "format": _note,
    "type": lambda v, w, _s, _r: any(_has_type(v, name) for name in ([w] if isinstance(w, str) else w)),
    "enum": lambda v, w, _s, _r: any(_equal(v, one) for one in w),
    "const": lambda v, w, _s, _r: _equal(v, w),
    "$ref": lambda v, w, _s, r: fits(v, _resolve(w, r), r),
    "anyOf": lambda v, w, _s, r: any(fits(v, one, r) for one in w),
    "oneOf": lambda v, w, _s, r: sum(fits(v, one, r) for one in w) == 1,
    "items": lambda v, w, _s, r: not isinstance(v, list) or all(fits(item, w, r) for item in v),
    "uniqueItems": lambda v, w, _s, _r: (
        not (w and isinstance(v, list)) or all(v.count(item) == 1 for item in v)
    ),
    "properties": lambda v, w, _s, r: (
        not isinstance(v, dict) or all(fits(v[key], inner, r) for key, inner in w.items() if key in v)
    ),
    "required": lambda v, w, _s, _r: not isinstance(v, dict) or all(key in v for key in w),
    "additionalProperties": _additional,
    "pattern": lambda v, w, _s, _r: not isinstance(v, str) or re.search(w, v) is not None,
    "minimum": _numeric(lambda v, w: v >= w),
    "maximum": _numeric(lambda v, w: v <= w),
    "exclusiveMinimum": _numeric(lambda v, w: v > w),
    "exclusiveMaximum": _numeric(lambda v, w: v < w),
    "multipleOf": _numeric(lambda v, w: abs(v / w - round(v / w)) < 1e-9),
    "minLength": _sized(str, lambda n, w: n >= w),
    "maxLength": _sized(str, lambda n, w: n <= w),
    "minItems": _sized(list, lambda n, w: n >= w),
    "maxItems": _sized(list, lambda n, w: n <= w),
}
