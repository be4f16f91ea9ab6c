"""Sampling: plausible random calls, from an environment's own hint or from the schemas of its tools."""

from __future__ import annotations

import random
import string
from collections.abc import Sequence
from typing import Any

from canonical.content import JSON
from canonical.environment import Environment
from canonical.schema import Definitions, Schema
from canonical.task import Task
from canonical.tool import ToolCall, ToolSpec

MAX_DEPTH = 4
"""From which depth on only what is required is filled in, so that models that contain themselves come to an end."""

_SPREAD = 100
_EDGES = 0.25
"""How often a number is one that code forgets: nothing, one, or an end of what is allowed."""

_WORDS = ("alpha", "beta", "42", "", "two words", "\u00e9t\u00e9", "line\nbreak")


def random_call(environment: Environment[Any], task: Task, rng: random.Random) -> ToolCall:
    """Return a random call that fits the schema of one of the tools; a pure function of the generator's state."""
    hinted = environment.random_call(task, rng)
    return hinted if hinted is not None else sample_call([tool.spec for tool in environment.tools], rng)


def sample_call(specs: Sequence[ToolSpec], rng: random.Random) -> ToolCall:
    """Return a random call of one of the tools, with arguments that fit its schema.

    Raises:
        ValueError: There is no tool.
    """
    if not specs:
        raise ValueError("there is no tool to call")
    spec = rng.choice(specs)
    return ToolCall(spec.name, sample_arguments(spec, rng))


def sample_arguments(spec: ToolSpec, rng: random.Random) -> dict[str, JSON]:
    """Return random arguments that fit a tool's schema: types, enums, bounds, lengths, and what is required.

    Arguments that may be left out are left out half the time. Regular expressions, and formats other than dates, times
    and UUIDs, are not followed: such texts fit only by chance, or where the schema lists examples.
    """
    return {**_Sampler(spec.parameters, rng).value(spec.parameters, 0)}


class _Sampler(Definitions):
    def __init__(self, root: Schema, rng: random.Random) -> None:
        super().__init__(root)
        self._rng = rng

    def value(self, schema: Schema, depth: int) -> Any:
        options = self.options(schema)
        if depth > MAX_DEPTH:
            options = [
                option for option in options if option.get("type") not in {"array", "object"}
            ] or options
        schema = self._rng.choice(options)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._rng.choice([one for one in schema["enum"] if self.fits_scalar(schema, one)])
        if schema.get("examples") and self._rng.random() < 0.5:
            return self._rng.choice(schema["examples"])
        match schema.get("type"):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "string":
                return self._string(schema)
            case "integer":
                return int(self._multiple(schema, schema.get("multipleOf", 1)))
            case "number":
                return self._number(schema)
            case "boolean":
                return self._rng.random() < 0.5
            case "null":
                return None
            case _:
                return self._rng.choice([None, True, self._rng.randrange(_SPREAD), self._string({})])

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        required = schema.get("required", ())
        result = {
            key: self.value(inner, depth + 1)
            for key, inner in schema.get("properties", {}).items()
            if key in required or (depth <= MAX_DEPTH and self._rng.random() < 0.5)
        }
        free = schema.get("additionalProperties")
        least = schema.get("minProperties", 0)
        if isinstance(free, dict) and (least or depth <= MAX_DEPTH):
            count = least + self._rng.randrange(3)
            while len(result) < count:
                result[self._string({"minLength": 3})] = self.value(free, depth + 1)
        return result

    def _array(self, schema: Schema, depth: int) -> list[Any]:
        prefix = [self.value(inner, depth + 1) for inner in schema.get("prefixItems", ())]
        least = max(schema.get("minItems", 0), len(prefix))
        most = min(schema.get("maxItems", least + 3), least + 3)
        count = least if depth > MAX_DEPTH else self._rng.randint(least, max(least, most))
        items, result = schema.get("items", {}), prefix
        # A small enum may not have as many different values as are asked for.
        for _ in range(20 * (count - len(prefix))):
            if len(result) >= count:
                break
            item = self.value(items, depth + 1)
            if not schema.get("uniqueItems") or item not in result:
                result.append(item)
        return result

    def _string(self, schema: Schema) -> str:
        number = self._rng.randrange
        match schema.get("format"):
            case "date":
                return f"20{number(100):02}-{number(1, 13):02}-{number(1, 29):02}"
            case "time":
                return f"{number(24):02}:{number(60):02}:{number(60):02}"
            case "date-time":
                return f"{self._string({'format': 'date'})}T{self._string({'format': 'time'})}Z"
            case "uuid":
                digits = f"{self._rng.getrandbits(128):032x}"
                return "-".join(
                    (digits[:8], digits[8:12], f"4{digits[13:16]}", f"8{digits[17:20]}", digits[20:])
                )
        least = schema.get("minLength", 0)
        most = min(schema.get("maxLength", least + 8), least + 8)
        word = self._rng.choice(_WORDS)
        if self._rng.random() < 0.5 and least <= len(word) <= schema.get("maxLength", len(word)):
            return word
        length = self._rng.randint(least, max(least, most))
        return "".join(self._rng.choice(string.ascii_lowercase) for _ in range(length))

    def _number(self, schema: Schema) -> float:
        if "multipleOf" in schema:
            return self._multiple(schema, schema["multipleOf"])
        low, high = _bounds(schema)
        if self._rng.random() < _EDGES:
            inside = [edge for edge in (0.0, 1.0, -1.0) if low < edge < high]
            if inside:
                return self._rng.choice(inside)
        # Away from the very ends, which may not be allowed themselves.
        return float(low + (high - low) * (0.001 + 0.998 * self._rng.random()))

    def _multiple(self, schema: Schema, step: float) -> float:
        low, high = _bounds(schema)
        least, most = int(-(-low // step)), int(high // step)
        if least * step == schema.get("exclusiveMinimum"):
            least += 1
        if most * step == schema.get("exclusiveMaximum"):
            most -= 1
        if self._rng.random() < _EDGES:
            return (
                self._rng.choice(
                    [edge for edge in (least, most, 0, 1, -1) if least <= edge <= most] or [least]
                )
                * step
            )
        return self._rng.randint(least, max(least, most)) * step


def _bounds(schema: Schema) -> tuple[float, float]:
    lows = [schema[key] for key in ("minimum", "exclusiveMinimum") if key in schema]
    highs = [schema[key] for key in ("maximum", "exclusiveMaximum") if key in schema]
    if lows and highs:
        return max(lows), min(highs)
    if lows:
        return max(lows), max(lows) + _SPREAD
    if highs:
        return min(highs) - _SPREAD, min(highs)
    return -_SPREAD, _SPREAD
