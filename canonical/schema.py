"""One tool specification in the five dialects in which models and servers are told of tools."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from enum import StrEnum
from itertools import combinations, product
from typing import Any, Literal, TypeAlias, overload

from canonical.content import JSON
from canonical.dialect import describe_tool
from canonical.tool import ToolSpec, in_words


class SchemaDialect(StrEnum):
    """Name the dialects. All carry the schema as it is, except OPENAI_RESPONSES, which is rendered for strict mode."""

    MCP = "mcp"
    OPENAI_CHAT = "openai_chat"
    OPENAI_RESPONSES = "openai_responses"
    ANTHROPIC = "anthropic"
    TEXT = "text"


class SchemaDialectError(ValueError):
    """Report a tool that a dialect cannot express: the tool, the argument, and what to change."""


Schema: TypeAlias = Mapping[str, Any]
"""A JSON Schema, or a part of one."""

MAX_REFERENCES = 100
"""How many references may lead on to another reference before the schema is taken to run in a circle."""

_MODEL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@overload
def render_tool(spec: ToolSpec, dialect: Literal[SchemaDialect.TEXT]) -> str: ...
@overload
def render_tool(
    spec: ToolSpec,
    dialect: Literal[
        SchemaDialect.MCP, SchemaDialect.OPENAI_CHAT, SchemaDialect.OPENAI_RESPONSES, SchemaDialect.ANTHROPIC
    ],
) -> dict[str, JSON]: ...
@overload
def render_tool(spec: ToolSpec, dialect: SchemaDialect) -> dict[str, JSON] | str: ...
def render_tool(spec: ToolSpec, dialect: SchemaDialect) -> dict[str, JSON] | str:
    """Return a tool as a dialect describes it: an object, or one line for TEXT (see `dialect.describe_tools`).

    Strict mode wants every object closed and every property required. There, an argument that may be left out accepts
    null instead, and its description states the default; `read_arguments` turns the null back into nothing. When null is
    a value of its own, the model states the default itself. Limits that strict mode lacks move into the description; the
    environment checks them all the same.

    Raises:
        SchemaDialectError: The dialect cannot express the tool.
    """
    if dialect is SchemaDialect.TEXT:
        return describe_tool(spec)
    if dialect is not SchemaDialect.MCP and not _MODEL_NAME.fullmatch(spec.name):
        raise SchemaDialectError(
            f"tool {spec.name}: in the dialect {dialect} a name has 1 to 64 ASCII letters, digits, _ or -; rename it"
        )
    if dialect is SchemaDialect.OPENAI_RESPONSES:
        return {
            "type": "function",
            "name": spec.name,
            "description": spec.description,
            "parameters": _StrictSchema(spec).render(),
            "strict": True,
        }
    parameters: JSON = deepcopy(dict(spec.parameters))
    if dialect is SchemaDialect.OPENAI_CHAT:
        function: JSON = {"name": spec.name, "description": spec.description, "parameters": parameters}
        return {"type": "function", "function": function}
    key = "inputSchema" if dialect is SchemaDialect.MCP else "input_schema"
    return {"name": spec.name, "description": spec.description, key: parameters}


def read_arguments(spec: ToolSpec, dialect: SchemaDialect, arguments: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the arguments that a model wrote under a dialect as the tool itself takes them.

    Arguments that do not fit the rendered schema come back unchanged where they do not; the tool's own check explains
    what is wrong with them.
    """
    if dialect is not SchemaDialect.OPENAI_RESPONSES:
        return dict(arguments)
    translation = _Translation(spec.parameters)
    return {**translation.read(spec.parameters, dict(arguments))}


def write_arguments(spec: ToolSpec, dialect: SchemaDialect, arguments: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return arguments of a tool as a model has to write them under a dialect: the inverse of `read_arguments`."""
    if dialect is not SchemaDialect.OPENAI_RESPONSES:
        return dict(arguments)
    translation = _Translation(spec.parameters)
    return {**translation.write(spec.parameters, dict(arguments))}


_UNKNOWN = object()
_KINDS: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: (
        not isinstance(value, bool)
        and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
    ),
    "number": lambda value: not isinstance(value, bool) and isinstance(value, int | float),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


class Definitions:
    """Look at schemas through their references."""

    def __init__(self, root: Schema) -> None:
        self._root = root

    def resolve(self, schema: Schema) -> Schema:
        """Return a schema without a reference at its top; keywords beside the reference win."""
        for _ in range(MAX_REFERENCES):
            schema = _without_single_all_of(schema)
            reference = schema.get("$ref")
            if reference is None:
                return schema
            target: Any = self._root
            try:
                for part in reference.removeprefix("#").split("/")[1:]:
                    target = target[part.replace("~1", "/").replace("~0", "~")]
            except (KeyError, TypeError):
                raise SchemaDialectError(
                    f"the schema refers to {reference}, which it does not hold"
                ) from None
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            schema = {**target, **beside} if beside else target
        raise SchemaDialectError("a reference of the schema leads back to itself")

    def options(self, schema: Schema) -> list[Schema]:
        """Return the alternatives that a schema allows, each without a union at its top."""
        schema = self.resolve(schema)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return [inner for option in schema[key] for inner in self.options(option)]
        if isinstance(schema.get("type"), list):
            return [{**schema, "type": kind} for kind in schema["type"]]
        return [schema]

    def accepts_null(self, schema: Schema) -> bool:
        """Say whether null is a value of a schema."""
        return any(self.fits_scalar(option, None) for option in self.options(schema))

    @staticmethod
    def fits_scalar(schema: Schema, value: Any) -> bool:
        """Say whether a value is of the type of a schema and, if it lists values, one of them."""
        is_of_kind = _KINDS.get(schema.get("type", ""))
        if is_of_kind is not None and not is_of_kind(value):
            return False
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        # True equals 1 in Python, but not in JSON.
        return values is None or any(
            value == listed and isinstance(value, bool) is isinstance(listed, bool) for listed in values
        )


class _Translation(Definitions):
    """Translate argument values between the tool's own form and the strict form, in which null stands for absence."""

    def __init__(self, root: Schema) -> None:
        super().__init__(root)
        # Without it, models that contain themselves in two ways would cost time exponential in a value's depth. The
        # schema and the value are kept so that no other object can take their identity.
        self._scores: dict[tuple[int, int, str], tuple[Schema, Any, int | None]] = {}

    def read(self, schema: Schema, value: Any) -> Any:
        schema = self._choose(schema, value, "filled", "partial")
        if isinstance(value, list) and isinstance(schema.get("items"), dict):
            return [self.read(schema["items"], item) for item in value]
        if not isinstance(value, dict):
            return value
        properties, required = schema.get("properties", {}), schema.get("required", ())
        result = {}
        for key, item in value.items():
            if key not in properties:
                result[key] = item
            elif item is not None or key in required or self.accepts_null(properties[key]):
                result[key] = self.read(properties[key], item)
        return result

    def write(self, schema: Schema, value: Any) -> Any:
        schema = self._choose(schema, value, "own", "partial")
        if isinstance(value, list) and isinstance(schema.get("items"), dict):
            return [self.write(schema["items"], item) for item in value]
        if not isinstance(value, dict) or "properties" not in schema:
            return value
        result = {}
        for key, inner in schema["properties"].items():
            if key in value:
                result[key] = self.write(inner, value[key])
            elif key not in schema.get("required", ()):
                result[key] = self.write(inner, inner.get("default")) if self.accepts_null(inner) else None
        if schema.get("additionalProperties") is False:
            # A key that does not belong stays where the tool would complain of it, and goes where it is ignored.
            result.update((key, item) for key, item in value.items() if key not in result)
        return result

    def _choose(self, schema: Schema, value: Any, *forms: str) -> Schema:
        options = self.options(schema)
        if len(options) == 1:
            return options[0]
        for form in forms:
            scores = [self.score(option, value, form) for option in options]
            best = max((score for score in scores if score is not None), default=None)
            if best is not None:
                return options[scores.index(best)]
        return {}

    def score(self, schema: Schema, value: Any, form: str) -> int | None:
        """Return how many known keys a value has, at all depths, or None when it does not fit the schema in a form.

        The forms are `own`: as the tool takes it; `filled`: strict; `partial`: strict, with keys left out.
        """
        key = (id(schema), id(value), form)
        if key not in self._scores:
            options = self.options(schema)
            scores = [self._score_option(option, value, form) for option in options]
            best = max((score for score in scores if score is not None), default=None)
            self._scores[key] = (schema, value, best)
        return self._scores[key][2]

    def _score_option(self, schema: Schema, value: Any, form: str) -> int | None:
        if not self.fits_scalar(schema, value):
            return None
        if isinstance(value, list) and isinstance(schema.get("items"), dict):
            return _total(self.score(schema["items"], item, form) for item in value)
        if not isinstance(value, dict) or "properties" not in schema:
            return 0
        properties, required = schema["properties"], schema.get("required", ())
        if any(key not in value for key in (properties if form == "filled" else required)):
            return None
        is_closed = form == "filled" or schema.get("additionalProperties") is False
        if is_closed and any(key not in properties for key in value):
            return None
        known = {key: item for key, item in value.items() if key in properties}
        return _total(
            1
            if self._stands_for_absence(schema, key, item, form)
            else _plus_one(self.score(properties[key], item, form))
            for key, item in known.items()
        )

    @staticmethod
    def _stands_for_absence(schema: Schema, key: str, item: Any, form: str) -> bool:
        return item is None and form != "own" and key not in schema.get("required", ())


def _plus_one(score: int | None) -> int | None:
    return None if score is None else score + 1


def _total(scores: Iterable[int | None]) -> int | None:
    total = 0
    for score in scores:
        if score is None:
            return None
        total += score
    return total


_ANNOTATIONS = frozenset({
    "$comment", "$defs", "$id", "$schema", "contentEncoding", "contentMediaType", "contentSchema", "default", "definitions",
    "deprecated", "description", "discriminator", "example", "examples", "readOnly", "title", "writeOnly",
})  # fmt: skip
_SHAPE = frozenset({
    "$ref", "additionalProperties", "allOf", "anyOf", "const", "enum", "items", "oneOf", "properties", "required", "type",
})  # fmt: skip
_FORMATS = frozenset({"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"})
_LIMITS: Mapping[str, str] = {
    "exclusiveMaximum": "Below {}.",
    "exclusiveMinimum": "Above {}.",
    "format": "In the format {}.",
    "maxItems": "At most {} items.",
    "maxLength": "At most {} characters.",
    "maximum": "At most {}.",
    "minItems": "At least {} items.",
    "minLength": "At least {} characters.",
    "minimum": "At least {}.",
    "multipleOf": "A multiple of {}.",
    "pattern": "Matching {}.",
    "uniqueItems": "No item twice.",
}


def _is_supported(limit: str, value: Any) -> bool:
    if limit == "format":
        return value in _FORMATS
    if limit == "pattern":
        return re.search(r"\(\?[=!<]", value) is None  # looking ahead or behind
    return limit not in {"maxLength", "minLength", "uniqueItems"}


def _without_single_all_of(schema: Schema) -> Schema:
    # Older releases of pydantic wrap a reference in `allOf` to put a description beside it.
    while len(schema.get("allOf", ())) == 1:
        schema = {**schema["allOf"][0], **{key: value for key, value in schema.items() if key != "allOf"}}
    return schema


def _joined(sentences: Iterable[str]) -> str:
    return " ".join(text if text.endswith((".", "!", "?", ":", ";")) else f"{text}." for text in sentences)


class _StrictSchema(_Translation):
    """Render the schema of one tool for strict mode: closed objects, every property required, no defaults.

    The subset is the one that OpenAI documents for structured outputs. Lengths of texts are left out of it, because
    models that were fine-tuned, and other servers of the same interface, refuse them.
    """

    def __init__(self, spec: ToolSpec) -> None:
        super().__init__(spec.parameters)
        self._spec = spec
        self._definitions: dict[str, JSON] = {}

    def render(self) -> dict[str, JSON]:
        """Return the schema."""
        rendered = self._render(self._spec.parameters, ())
        if self._definitions:
            rendered["$defs"] = dict(sorted(self._definitions.items()))
        return rendered

    def _error(self, path: tuple[str, ...], reason: str) -> SchemaDialectError:
        place = f", argument {'.'.join(path)}" if path else ""
        return SchemaDialectError(f"tool {self._spec.name}{place}: {reason}")

    def _render(self, schema: Schema, path: tuple[str, ...]) -> dict[str, Any]:
        schema = _without_single_all_of(schema)
        for key in schema:
            if key not in _ANNOTATIONS | _SHAPE | _LIMITS.keys() and not key.startswith("x-"):
                raise self._error(path, f"strict mode has no {key!r}; say it with types, enums or unions")
        rendered = self._render_shape(schema, path)
        sentences = [schema["description"]] if schema.get("description") else []
        for key, text in _LIMITS.items():
            if key in schema and schema[key] is not False:
                if "type" in rendered and "enum" not in rendered and _is_supported(key, schema[key]):
                    rendered[key] = schema[key]
                else:
                    sentences.append(in_words(text, schema[key]))
        if sentences:
            if "$ref" in rendered:
                rendered = {"anyOf": [rendered]}  # nothing may stand beside a reference
            rendered["description"] = _joined(sentences)
        return rendered

    def _render_shape(self, schema: Schema, path: tuple[str, ...]) -> dict[str, Any]:
        if "$ref" in schema:
            return self._render_reference(schema["$ref"], path)
        kind = schema.get("type")
        if isinstance(kind, list):
            return {"anyOf": [self._render_shape({**schema, "type": one}, path) for one in kind]}
        if "anyOf" in schema or "oneOf" in schema:
            return self._render_union(schema, path)
        if "const" in schema or "enum" in schema:
            return self._render_values(schema, path)
        if kind == "object":
            return self._render_object(schema, path)
        if kind == "array":
            if not schema.get("items"):
                raise self._error(path, "strict mode needs one type for all items of a list; use list[X]")
            return {"type": "array", "items": self._render(schema["items"], (*path, "items"))}
        if kind not in _KINDS:
            raise self._error(path, "strict mode cannot leave a type open; give the argument one")
        return {"type": kind}

    def _render_reference(self, reference: str, path: tuple[str, ...]) -> dict[str, Any]:
        name = reference.rpartition("/")[2]
        if reference not in {f"#/$defs/{name}", f"#/definitions/{name}"}:
            raise self._error(path, f"strict mode refers to definitions only, not to {reference}")
        if name not in self._definitions:
            self._definitions[name] = {}  # a model that contains itself finds its name taken
            self._definitions[name] = self._render(self.resolve({"$ref": reference}), path)
        return {"$ref": f"#/$defs/{name}"}

    def _render_union(self, schema: Schema, path: tuple[str, ...]) -> dict[str, Any]:
        for one, other in combinations(self.options(schema), 2):
            if self._is_ambiguous(one, other):
                raise self._error(
                    path,
                    "two alternatives of a union have the same keys, so a null that stands for an absent value would "
                    "not say which is meant; give each a Literal field that tells them apart",
                )
        options = schema.get("anyOf", schema.get("oneOf", []))
        return {"anyOf": [self._render(option, path) for option in options]}

    def _render_values(self, schema: Schema, path: tuple[str, ...]) -> dict[str, Any]:
        by_kind: dict[str, list[JSON]] = {}
        for value in [schema["const"]] if "const" in schema else schema["enum"]:
            if not self.fits_scalar({"type": schema.get("type")}, value):
                continue  # a list of types shares one list of values
            kind = next(kind for kind, is_of_kind in _KINDS.items() if is_of_kind(value))
            if kind in {"array", "object"}:
                raise self._error(path, "strict mode has no enums of lists or objects")
            by_kind.setdefault(kind, []).append(value)
        options: list[dict[str, Any]] = [{"type": kind, "enum": values} for kind, values in by_kind.items()]
        return options[0] if len(options) == 1 else {"anyOf": options}

    def _render_object(self, schema: Schema, path: tuple[str, ...]) -> dict[str, Any]:
        if "properties" not in schema or schema.get("additionalProperties"):
            raise self._error(
                path, "strict mode has no mappings with free keys; use a model, or a list of models"
            )
        properties = {
            key: self._render(inner, (*path, key))
            if key in schema.get("required", ())
            else self._render_optional(inner, (*path, key))
            for key, inner in schema["properties"].items()
        }
        required = list(properties)
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }

    def _render_optional(self, schema: Schema, path: tuple[str, ...]) -> dict[str, Any]:
        rendered = self._render(schema, path)
        description = rendered.pop("description", None)
        default = schema.get("default", _UNKNOWN)
        is_known = default is not _UNKNOWN
        words = json.dumps(default, ensure_ascii=False) if is_known else ""
        if not self.accepts_null(schema):
            rendered = {"anyOf": [*rendered.get("anyOf", [rendered]), {"type": "null"}]}
            sentence = f"Null means the default, {words}." if is_known else "Null means that it is left out."
        elif is_known and self.score(schema, default, "partial") is not None:
            sentence = f"The default is {words}."
        else:
            raise self._error(
                path,
                "null is a value of this argument and the schema does not hold its default, so strict mode cannot say "
                "that the argument is left out; give it a plain default, or do not accept null",
            )
        return {**rendered, "description": _joined([*filter(None, [description]), sentence])}

    def _is_ambiguous(self, one: Schema, other: Schema) -> bool:
        """Say whether a strict value can fit both schemas and be read differently by each."""
        if one == other:
            return False
        if isinstance(one.get("items"), dict) and isinstance(other.get("items"), dict):
            pairs = product(self.options(one["items"]), self.options(other["items"]))
            return any(self._is_ambiguous(a, b) for a, b in pairs)
        if "properties" not in one or "properties" not in other or self._are_disjoint(one, other, set()):
            return False
        return self._leaves_out(one, set()) or self._leaves_out(other, set())

    def _are_disjoint(self, one: Schema, other: Schema, seen: set[tuple[int, int]]) -> bool:
        """Say whether it is certain that no strict value fits both schemas."""
        return all(
            self._are_disjoint_options(a, b, seen) for a, b in product(self.options(one), self.options(other))
        )

    def _are_disjoint_options(self, one: Schema, other: Schema, seen: set[tuple[int, int]]) -> bool:
        for a, b in ((one, other), (other, one)):
            values = [a["const"]] if "const" in a else a.get("enum")
            if values is not None:
                return not any(self.fits_scalar(b, value) for value in values)
        kinds = {one.get("type"), other.get("type")}
        if "properties" not in one or "properties" not in other:
            return None not in kinds and len(kinds) == 2 and kinds != {"integer", "number"}
        mine, theirs = one["properties"], other["properties"]
        if mine.keys() != theirs.keys():
            return True
        if (id(mine), id(theirs)) in seen:
            return False
        seen.add((id(mine), id(theirs)))
        return any(
            not (self._accepts_strict_null(one, key) and self._accepts_strict_null(other, key))
            and self._are_disjoint(mine[key], theirs[key], seen)
            for key in mine
        )

    def _accepts_strict_null(self, schema: Schema, key: str) -> bool:
        return key not in schema.get("required", ()) or self.accepts_null(schema["properties"][key])

    def _leaves_out(self, schema: Schema, seen: set[int]) -> bool:
        """Say whether somewhere in the schema a null can stand for an absent value."""
        for option in self.options(schema):
            properties: Schema = option.get("properties", {})
            if id(properties) in seen:
                continue
            seen.add(id(properties))
            inner = [
                *properties.values(),
                *([option["items"]] if isinstance(option.get("items"), dict) else []),
            ]
            required = option.get("required", ())
            if any(key not in required and not self.accepts_null(properties[key]) for key in properties):
                return True
            if any(self._leaves_out(part, seen) for part in inner):
                return True
        return False


def render_tools(specs: Sequence[ToolSpec], dialect: SchemaDialect) -> list[dict[str, JSON]]:
    """Return tools as a dialect of JSON lists them.

    Raises:
        SchemaDialectError: The dialect cannot express a tool, or is TEXT, whose form is `dialect.describe_tools`.
    """
    if dialect is SchemaDialect.TEXT:
        raise SchemaDialectError("the dialect text is not a list of objects; use describe_tools")
    return [render_tool(spec, dialect) for spec in specs]
