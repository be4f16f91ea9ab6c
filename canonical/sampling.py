"""Sampling: plausible random calls, from an environment's own hint or from the schemas of its tools."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, cast

from canonical.content import JSON
from canonical.environment import Environment
from canonical.task import Task
from canonical.tool import ToolCall, ToolSpec

_WORDS = ("alpha", "beta", "gamma", "delta", "42", "", "two words", "\u00e9t\u00e9", "line\nbreak")
_DEEPEST = 4
_WIDEST = 3


def random_call(environment: Environment[Any], task: Task, rng: random.Random) -> ToolCall:
    """Return a random call that fits the schema of one of the tools; a pure function of the generator's state."""
    hinted = environment.random_call(task, rng)
    return hinted if hinted is not None else sample_call([tool.spec for tool in environment.tools], rng)


def sample_call(specs: list[ToolSpec], rng: random.Random) -> ToolCall:
    """Return a random call of one of the tools, with arguments that fit its schema.

    Raises:
        ValueError: There is no tool.
    """
    if not specs:
        raise ValueError("there is no tool to call")
    spec = rng.choice(specs)
    definitions = cast("Mapping[str, JSON]", spec.parameters.get("$defs", {}))
    return ToolCall(spec.name, cast("Mapping[str, JSON]", _sample(spec.parameters, definitions, rng, 0)))


def _sample(  # noqa: PLR0911 - one branch for each kind of schema
    schema: Mapping[str, Any], definitions: Mapping[str, Any], rng: random.Random, depth: int
) -> JSON:
    def inner(value: Any) -> JSON:
        return _sample(value, definitions, rng, depth + 1)

    if "$ref" in schema:
        return _sample(definitions[schema["$ref"].rpartition("/")[2]], definitions, rng, depth)
    if "const" in schema:
        return cast("JSON", schema["const"])
    if "enum" in schema:
        return cast("JSON", rng.choice(schema["enum"]))
    if schema.get("examples") and rng.random() < 0.5:
        return cast("JSON", rng.choice(schema["examples"]))
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        # Deep down the simplest option ends a recursive model.
        simple = [option for option in options if option.get("type") == "null"]
        return inner(simple[0] if simple and depth >= _DEEPEST else rng.choice(options))
    if schema.get("allOf"):
        return inner(schema["allOf"][0])
    match schema.get("type"):
        case "object":
            return _sample_object(schema, definitions, rng, depth)
        case "array":
            low = schema.get("minItems", 0)
            high = min(schema.get("maxItems", low + _WIDEST), low + _WIDEST)
            count = low if depth >= _DEEPEST else rng.randint(low, high)
            return [inner(schema.get("items", {})) for _ in range(count)]
        case "integer":
            return _sample_integer(schema, rng)
        case "number":
            low, high = _bounds(schema, 0.0, 1.0)
            return round(rng.uniform(low, high), 3) if high - low > 0.01 else low
        case "boolean":
            return rng.random() < 0.5
        case "null":
            return None
        case _:
            return _sample_text(schema, rng)


def _sample_object(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], rng: random.Random, depth: int
) -> dict[str, JSON]:
    required = set(schema.get("required", ()))
    value: dict[str, JSON] = {
        name: _sample(inner, definitions, rng, depth + 1)
        for name, inner in schema.get("properties", {}).items()
        if name in required or (depth < _DEEPEST and rng.random() < 0.5)
    }
    extra = schema.get("additionalProperties")
    if isinstance(extra, Mapping) and depth < _DEEPEST:
        for index in range(rng.randint(0, 2)):
            value[f"key{index}"] = _sample(extra, definitions, rng, depth + 1)
    return value


def _bounds(schema: Mapping[str, Any], low: float, width: float) -> tuple[float, float]:
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    most = schema.get("maximum", schema.get("exclusiveMaximum"))
    if least is None:
        least = low if most is None else most - width
    if most is None:
        most = max(least, low) + width
    if "exclusiveMinimum" in schema:
        least += min(0.001, (most - least) / 3)
    if "exclusiveMaximum" in schema:
        most -= min(0.001, (most - least) / 3)
    return least, most


def _sample_integer(schema: Mapping[str, Any], rng: random.Random) -> int:
    least = schema.get("minimum", schema["exclusiveMinimum"] + 1 if "exclusiveMinimum" in schema else None)
    most = schema.get("maximum", schema["exclusiveMaximum"] - 1 if "exclusiveMaximum" in schema else None)
    if least is None:
        least = 0 if most is None else most - 10
    if most is None:
        most = max(least, 0) + 10
    step = schema.get("multipleOf", 1)
    first = -(-least // step)
    return int(step * rng.randint(int(first), max(int(first), int(most // step))))


def _sample_text(schema: Mapping[str, Any], rng: random.Random) -> str:
    text = rng.choice(_WORDS)
    low = schema.get("minLength", 0)
    text = text.ljust(low, "x")
    return text[: schema["maxLength"]] if "maxLength" in schema else text
