"""Tools: methods of an environment that the agent may call, with their schema and validation."""

from __future__ import annotations

import inspect
import json
import re
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import PydanticJsonSchemaWarning

from canonical.content import JSON, Block, Observation, quote

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
ToolOutput: TypeAlias = str | Observation | Sequence[Block]
"""What a tool returns: text, an observation, or content blocks."""

_MARK = "__rosetta_tool__"
_NO_ARGUMENTS: Mapping[str, JSON] = MappingProxyType({})


class ToolError(Exception):
    """Tell the model that a tool could not do what was asked; raised inside a tool.

    The text becomes the observation, so it must not hold anything secret.
    """


class ToolDefinitionError(TypeError):
    """Tell an author that a tool method cannot be offered, and why."""


class InvalidArgumentsError(ValueError):
    """Say in words what is wrong with the arguments of a call."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """Hold one call of a tool by the agent."""

    name: str
    arguments: Mapping[str, JSON] = field(default_factory=lambda: _NO_ARGUMENTS)

    def to_json(self) -> dict[str, JSON]:
        """Return the call as JSON."""
        return {"name": self.name, "arguments": dict(self.arguments)}


def tool(function: FunctionT) -> FunctionT:
    """Offer a method `(self, state, ...) -> text` of an environment to the agent as a tool.

    Name and description come from the method and its docstring; the lines of the docstring's `Args:` section
    describe the arguments. Types, defaults, enums, optionals, lists and nested pydantic models become JSON Schema.
    The method may be a coroutine function.
    """
    setattr(function, _MARK, True)
    return function


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """Hold what an agent is told of a tool.

    Attributes:
        name: The name that the agent calls.
        description: What the tool does.
        parameters: JSON Schema of the arguments: an object that accepts no further keys.
    """

    name: str
    description: str
    parameters: Mapping[str, JSON]

    def to_json(self) -> dict[str, JSON]:
        """Return the specification as JSON."""
        return {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}


@dataclass(frozen=True, slots=True)
class Tool:
    """Hold a tool: what the agent is told of it, how its arguments are checked, and what it runs.

    Attributes:
        spec: Name, description and schema.
        function: The unbound method: `function(environment, state, **arguments)`.
        is_async: Whether the function is a coroutine function.
        model: The pydantic model that checks the arguments.
    """

    spec: ToolSpec
    function: Callable[..., ToolOutput | Awaitable[ToolOutput]]
    is_async: bool
    model: type[BaseModel]

    @property
    def name(self) -> str:
        """The name that the agent calls."""
        return self.spec.name

    def validate(self, arguments: Mapping[str, JSON]) -> dict[str, Any]:
        """Return the keyword arguments for `function`, with defaults filled in.

        Raises:
            InvalidArgumentsError: The arguments do not fit the schema; the text names each and says what is wanted.
        """
        if type(arguments) is not dict:
            if not isinstance(arguments, Mapping):
                raise InvalidArgumentsError(
                    f"Invalid arguments for {self.name}: the arguments must be an object."
                )
            arguments = dict(arguments)
        try:
            checked = self.model.__pydantic_validator__.validate_python(arguments)
        except ValidationError as error:
            raise InvalidArgumentsError(self._explain(error)) from None
        values: dict[str, Any] = checked.__dict__
        return values

    def _explain(self, error: ValidationError) -> str:
        # The wording is ours, because pydantic's differs between the releases that the six frameworks pin.
        by_place: dict[tuple[str, ...], ErrorDetails] = {}
        places = _Places(self.spec.parameters)
        for detail in error.errors(include_url=False, include_context=False, include_input=False):
            by_place.setdefault(places.path(detail), detail)
        shown: Counter[str] = Counter()
        reasons: list[str] = []
        for path, detail in by_place.items():
            shown[path[0]] += 1
            if shown[path[0]] <= _MAX_IN_ONE and len(reasons) < _MAX_REASONS:
                reasons.append(places.reason(path, detail))
        left = len(by_place) - len(reasons)
        if left:
            reasons.append(f"and {left} more")
        return f"Invalid arguments for {self.name}: {'; '.join(reasons)}."


_MAX_REASONS = 8
_MAX_IN_ONE = 3
"""How many mistakes are told of one argument; a list can hold thousands."""

_MAX_INWARDS = 8
"""How far into a value the place of a mistake is followed; a value that is nested more deeply is named as a whole."""


class _Places:
    """Name the place of a mistake, the item and the field, and say what is wanted there.

    Args:
        parameters: The schema of the arguments.
    """

    def __init__(self, parameters: Mapping[str, JSON]) -> None:
        self._parameters = parameters
        self._definitions = cast("Mapping[str, JSON]", parameters.get("$defs", {}))

    def path(self, detail: ErrorDetails) -> tuple[str, ...]:
        """Return the words for the place: an argument, and the items and fields that lead to what is wrong in it."""
        return self._follow(detail)[0]

    def reason(self, path: tuple[str, ...], detail: ErrorDetails) -> str:
        """Say what is wrong at a place."""
        _, schema, missing, foreign = self._follow(detail)
        *outer, last = path
        place = f"{', '.join(outer)}: " if outer else ""
        if missing:
            return f"{place}{last} is required"
        if foreign is not None:
            known = ", ".join(json.dumps(key) for key in foreign) or "none"
            kind, owner = ("field", "here") if outer else ("argument", "of this tool")
            return f"{place}{last} is not {'a' if outer else 'an'} {kind} {owner} (its {kind}s: {known})"
        return f"{', '.join(path)} must be {_describe(schema, self._definitions)}"

    def _follow(
        self, detail: ErrorDetails
    ) -> tuple[tuple[str, ...], Mapping[str, JSON], bool, Mapping[str, JSON] | None]:
        """Return the words of a place, the schema there, whether it is missing, and what might stand there instead of it."""
        words: list[str] = []
        schema, parts = self._parameters, detail["loc"]
        for number, part in enumerate(parts[:_MAX_INWARDS]):
            whole = self._resolved(schema)
            is_last = number == len(parts) - 1
            inner = self._inside(whole, part)
            if isinstance(part, int):
                word = f"item {part + 1}"
            else:
                word = quote(part)
                fields = cast("Mapping[str, JSON]", whole.get("properties", {}))
                if is_last and detail["type"] == "extra_forbidden" and "properties" in whole:
                    return (*words, word), {}, False, fields
                if is_last and detail["type"] == "missing" and inner is not None:
                    return (*words, word), inner, True, None
            if inner is None or (is_last and detail["type"] == "missing"):
                # An alternative of a union, the key of a mapping: what is outside of it is wrong as a whole.
                break
            words.append(word)
            schema = inner
        return tuple(words) or (quote(str(parts[0]) if parts else ""),), schema, False, None

    @staticmethod
    def _inside(schema: Mapping[str, JSON], part: int | str) -> Mapping[str, JSON] | None:
        inner: object
        match schema, part:
            case {"prefixItems": [*items]}, int() if part < len(items):
                inner = items[part]
            case {"type": "array", "items": inner}, int():
                pass
            case {"properties": {**fields}}, str() if part in fields:
                inner = fields[part]
            case {"type": "object", "additionalProperties": inner}, str():
                pass
            case _:
                return None
        return cast("Mapping[str, JSON]", inner) if isinstance(inner, Mapping) and inner else None

    def _resolved(self, schema: Mapping[str, JSON]) -> Mapping[str, JSON]:
        """Return a schema without references, and without null where that is the only alternative."""
        for _ in range(_MAX_INWARDS):
            match schema:
                case {"$ref": str(reference)}:
                    schema = cast("Mapping[str, JSON]", self._definitions[reference.rpartition("/")[2]])
                case {"anyOf": [{"type": "null"}, {**only}]} | {"anyOf": [{**only}, {"type": "null"}]}:
                    schema = cast("Mapping[str, JSON]", only)
                case {"allOf": [{**only}]}:
                    schema = cast("Mapping[str, JSON]", only)
                case _:
                    break
        return schema


def _describe(schema: Mapping[str, JSON], definitions: Mapping[str, JSON]) -> str:
    def inner(value: object) -> str:
        return _describe(cast("Mapping[str, JSON]", value), definitions)

    match schema:
        case {"$ref": str(reference)}:
            name = reference.rpartition("/")[2]
            target = cast("Mapping[str, JSON]", definitions[name])
            if "enum" in target or "const" in target:
                return inner(target)
            # Anything else may contain itself, so only the names of its fields are said.
            return _describe_fields(target) if target.get("type") == "object" else "as its schema says"
        case {"enum": [*values]}:
            return "one of " + ", ".join(json.dumps(value, ensure_ascii=False) for value in values)
        case {"const": value}:
            return json.dumps(value, ensure_ascii=False)
        case {"anyOf": [*options]}:
            return " or ".join(inner(option) for option in options)
        case {"type": "array", "items": {**items}}:
            return f"a list{_limits(schema)}, each item {inner(items)}"
        case {"type": str(kind)}:
            return _KIND_WORDS.get(kind, kind) + _limits(schema)
        case _:
            return "as its schema says"


def _describe_fields(schema: Mapping[str, JSON]) -> str:
    fields = cast("Mapping[str, JSON]", schema.get("properties", {}))
    required = cast("Sequence[str]", schema.get("required", ()))
    needed = [json.dumps(name) for name in fields if name in required]
    free = [json.dumps(name) for name in fields if name not in required]
    parts = [f"with {', '.join(needed)}"] if needed else []
    parts += [f"perhaps {'with ' if not needed else ''}{', '.join(free)}"] if free else []
    return " ".join(["an object", " and ".join(parts)]).strip()


_KIND_WORDS = {
    "string": "a text",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_LIMIT_WORDS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "above {}",
    "exclusiveMaximum": "below {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "pattern": "matching {}",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
}


def in_words(text: str, limit: JSON) -> str:
    """Return a sentence about a limit, `at least {} items`, with the limit in it; of one, it speaks of one."""
    words = text.format(limit)
    return words.replace("items", "item").replace("characters", "character") if limit == 1 else words


def _limits(schema: Mapping[str, JSON]) -> str:
    words = [in_words(text, schema[key]) for key, text in _LIMIT_WORDS.items() if key in schema]
    return f" ({', '.join(words)})" if words else ""


def _plain(value: JSON) -> JSON:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def collect_tools(owner: type) -> tuple[Tool, ...]:
    """Return the tools of a class, base classes first, in the order of definition.

    Members that are tools already, under whatever name, are taken as they are.

    Raises:
        ToolDefinitionError: A marked method has no description, or a signature that JSON Schema cannot express.
    """
    functions: dict[str, Callable[..., Any] | Tool] = {}
    for base in reversed(owner.__mro__):
        for name, member in vars(base).items():
            if (
                isinstance(member, Tool)
                or getattr(member, _MARK, False)
                or getattr(getattr(member, "__func__", None), _MARK, False)
            ):
                functions[name] = member
            elif name in functions:
                del functions[name]
    return tuple(
        member if isinstance(member, Tool) else _make_tool(name, member) for name, member in functions.items()
    )


_RESERVED = frozenset({"model_config"})
"""Names that pydantic takes for its own settings."""


def _make_tool(name: str, function: Callable[..., Any]) -> Tool:
    place = f"tool {function.__qualname__}"
    if not inspect.isfunction(function):
        raise ToolDefinitionError(f"{place}: a tool must be a plain method, not a {type(function).__name__}")
    docstring = (inspect.getdoc(function) or "").strip()
    if not docstring:
        raise ToolDefinitionError(f"{place}: the docstring is missing; it is what the model reads")
    description, argument_texts = _read_docstring(docstring)
    if not description:
        raise ToolDefinitionError(f"{place}: the docstring does not describe what the tool does")
    signature = list(inspect.signature(function).parameters.values())
    leading = 2  # self and the state
    if len(signature) < leading:
        raise ToolDefinitionError(f"{place}: the first two parameters must be self and the state")
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise ToolDefinitionError(f"{place}: {error} when the program runs; import it for real") from None
    fields: dict[str, Any] = {}
    for parameter in signature[leading:]:
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
            raise ToolDefinitionError(
                f"{place}: parameter {parameter.name!r} must be a plain named parameter"
            )
        if parameter.name.startswith("_"):
            raise ToolDefinitionError(
                f"{place}: parameter {parameter.name!r} must not begin with an underscore"
            )
        if parameter.name in _RESERVED:
            raise ToolDefinitionError(f"{place}: parameter {parameter.name!r} needs another name")
        if parameter.name not in hints:
            raise ToolDefinitionError(f"{place}: parameter {parameter.name!r} has no type annotation")
        annotation = hints[parameter.name]
        text = argument_texts.pop(parameter.name, None)
        if text is not None and not _has_description(annotation):
            annotation = Annotated[annotation, Field(description=text)]
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (annotation, default)
    if argument_texts:
        raise ToolDefinitionError(
            f"{place}: the docstring describes {', '.join(map(repr, argument_texts))}, which the signature lacks"
        )
    try:
        with warnings.catch_warnings():
            # An argument may be called copy or json: the model's own methods of that name are not used.
            warnings.filterwarnings("ignore", "Field name .* shadows an attribute in parent", UserWarning)
            # A default that JSON cannot carry would be lost from the schema, and the model would never learn of it.
            warnings.simplefilter("error", PydanticJsonSchemaWarning)
            model = create_model(
                name, __config__=ConfigDict(extra="forbid", protected_namespaces=()), **fields
            )
            schema = model.model_json_schema(mode="validation")
    except (PydanticUserError, PydanticJsonSchemaWarning, NameError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ToolDefinitionError(f"{place}: its signature has no JSON Schema: {reason}") from error
    clean = cast("dict[str, JSON]", _tidy(schema))
    clean.setdefault("properties", {})
    return Tool(ToolSpec(name, description, clean), function, inspect.iscoroutinefunction(function), model)


def _has_description(annotation: Any) -> bool:
    return get_origin(annotation) is Annotated and any(
        isinstance(extra, FieldInfo) and extra.description for extra in get_args(annotation)[1:]
    )


_DATA = frozenset({"default", "const", "enum", "examples"})


def _tidy(schema: Any) -> Any:
    # pydantic repeats every name as a title, which costs tokens and says nothing. Whether a single value is also an enum,
    # and whether a bound is 1 or 1.0, differs between its releases.
    if isinstance(schema, list):
        return [_tidy(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    tidy: dict[str, Any] = {}
    for key, value in schema.items():
        if key in {"properties", "$defs"}:
            tidy[key] = {name: _tidy(inner) for name, inner in value.items()}
        elif key in _DATA:
            if key != "enum" or "const" not in schema:
                tidy[key] = value
        elif key != "title":
            tidy[key] = _plain(value) if key in _LIMIT_WORDS else _tidy(value)
    return tidy


_SECTION = re.compile(r"^(Args|Arguments|Returns|Raises|Yields|Examples?|Notes?):\s*$")
_ARGUMENT = re.compile(r"^(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")


def _read_docstring(docstring: str) -> tuple[str, dict[str, str]]:
    description: list[str] = []
    arguments: dict[str, str] = {}
    section: str | None = None
    current: str | None = None
    indent = 0
    for line in docstring.splitlines():
        heading = _SECTION.match(line)
        if heading:
            section, current = heading[1], None
        elif section is None:
            description.append(line)
        elif line.strip() and not line[0].isspace():
            section = None
            description.append(line)
        elif section in {"Args", "Arguments"} and line.strip():
            depth = len(line) - len(line.lstrip())
            entry = _ARGUMENT.match(line.strip())
            if entry and (current is None or depth <= indent):
                current, indent = entry[1], depth
                arguments[current] = entry[2].strip()
            elif current is not None:
                arguments[current] = f"{arguments[current]} {line.strip()}".strip()
    paragraphs = re.split(r"\n\s*\n", "\n".join(description).strip())
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs), arguments
