"""What the schema dialects promise: a call means the same in each, whatever a dialect had to change."""

from __future__ import annotations

import enum
import inspect
import itertools
import json
import random
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter, create_model
from pydantic.json_schema import PydanticJsonSchemaWarning

from canonical.sampling import sample_arguments, sample_call
from canonical.schema import (
    SchemaDialect,
    SchemaDialectError,
    read_arguments,
    render_tool,
    render_tools,
    write_arguments,
)
from canonical.tool import Tool, ToolSpec, collect_tools, tool
from tests.canonical.json_schema import violations
from tests.canonical.strategies import json_values

STRICT = SchemaDialect.OPENAI_RESPONSES


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


def tool_of(**parameters: Any) -> Tool:
    """Return the tool of a method that takes parameters: annotations, or pairs of annotation and default."""

    def act(self: Any, state: Any, **arguments: Any) -> str:
        """Act on the world."""
        return repr(arguments)

    named = inspect.Parameter.KEYWORD_ONLY
    signature = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("self", "state")
    ]
    act.__annotations__.clear()
    for name, parameter in parameters.items():
        annotation, default = parameter if isinstance(parameter, tuple) else (parameter, ...)
        act.__annotations__[name] = annotation
        signature.append(
            inspect.Parameter(name, named, default=inspect.Parameter.empty if default is ... else default)
        )
    act.__signature__ = inspect.Signature(signature)
    (made,) = collect_tools(type("Owner", (), {"act": tool(act)}))
    return made


def spec_of(parameters: dict[str, Any]) -> ToolSpec:
    return ToolSpec("act", "Act.", {"type": "object", "properties": parameters, "required": list(parameters)})


def strict_schema(made: Tool) -> dict[str, Any]:
    return render_tool(made.spec, STRICT)["parameters"]


# Types of arguments: each an annotation and a strategy for the JSON values that it takes.
SCALARS = st.sampled_from(
    [
        (int, st.integers(-5, 5)),
        (float, st.floats(-5, 5)),
        (bool, st.booleans()),
        (str, st.text(max_size=4)),
        (Literal["n", "s", 3], st.sampled_from(["n", "s", 3])),
        (Literal["only"], st.just("only")),
        (Colour, st.sampled_from(["red", "green"])),
        (Level, st.sampled_from([1, 2])),
        (Annotated[int, Field(ge=1, lt=9, description="Between.")], st.integers(1, 8)),
        (
            Annotated[str, Field(min_length=2, max_length=3, pattern="^[ab]*$")],
            st.text("ab", min_size=2, max_size=3),
        ),
        (int | str, st.integers(-5, 5) | st.text(max_size=4)),
    ]
)
numbers = itertools.count()


@st.composite
def fields(draw: Any, types: Any, *, prefix: str = "a") -> tuple[dict[str, Any], Any]:
    """Draw the fields of a model or a signature, and a strategy for the objects that fit them."""
    required, optional, declared = {}, {}, {}
    for index in range(draw(st.integers(0, 4))):
        name = f"{prefix}{index}"
        annotation, values = draw(types)
        if draw(st.booleans()):
            annotation, values = annotation | None, values | st.none()
        match draw(st.sampled_from(["no default", "a value", "None"])):
            case "no default":
                declared[name], required[name] = (annotation, ...), values
            case "a value":
                default = TypeAdapter(annotation).validate_python(draw(values))
                declared[name], optional[name] = (annotation, default), values
            case _:  # also where None is no value of the argument: authors write `size: int = None`
                declared[name], optional[name] = (annotation, None), values
    return declared, st.fixed_dictionaries(required, optional=optional)


@st.composite
def models(draw: Any, types: Any, *, tag: str | None = None) -> tuple[Any, Any]:
    declared, values = draw(fields(types, prefix="m"))
    if tag is not None:
        declared["tag"], values = (Literal[tag], ...), values.map(lambda value: {**value, "tag": tag})
    return create_model(f"Model{next(numbers)}", **declared), values


def lists(inner: tuple[Any, Any]) -> tuple[Any, Any]:
    annotation, values = inner
    return list[annotation], st.lists(values, max_size=3)


@st.composite
def unions(draw: Any, types: Any) -> tuple[Any, Any]:
    (one, ones), (other, others) = draw(models(types, tag="one")), draw(models(types, tag="other"))
    if draw(st.booleans()):
        return Annotated[one | other, Field(discriminator="tag")], ones | others
    return one | other | int, ones | others | st.integers(-5, 5)


TYPES = st.recursive(SCALARS, lambda inner: inner.map(lists) | models(inner) | unions(inner), max_leaves=4)


@st.composite
def tools_with_arguments(draw: Any) -> tuple[Tool, dict[str, Any]]:
    declared, values = draw(fields(TYPES))
    try:
        made = tool_of(**declared)
    except (
        PydanticJsonSchemaWarning
    ):  # a None deep inside a default stands where its annotation has no room for one
        reject()
    return made, draw(values)


def same(one: Any, other: Any) -> bool:
    """Compare keyword arguments as a tool sees them, where True is not 1 and 1 is not 1.0."""
    return repr(one) == repr(other)


@given(tools_with_arguments(), st.sampled_from(SchemaDialect))
def test_arguments_mean_the_same_in_every_dialect(case, dialect):
    made, arguments = case
    written = write_arguments(made.spec, dialect, arguments)
    read = read_arguments(made.spec, dialect, json.loads(json.dumps(written)))
    assert same(made.validate(read), made.validate(arguments))


@given(tools_with_arguments())
def test_arguments_that_are_written_for_strict_mode_fit_its_schema(case):
    made, arguments = case
    assert violations(write_arguments(made.spec, STRICT, arguments), strict_schema(made)) == []


@given(tools_with_arguments(), st.integers(0, 2**32))
def test_whatever_fits_the_schema_of_a_dialect_is_accepted_by_the_tool(case, seed):
    made, _ = case
    for dialect in (STRICT, SchemaDialect.MCP):
        parameters = strict_schema(made) if dialect is STRICT else made.spec.parameters
        arguments = sample_arguments(ToolSpec("act", "Act.", parameters), random.Random(seed))
        assume("pattern" not in json.dumps(parameters))  # random texts follow no pattern
        assert violations(arguments, parameters) == []
        read = read_arguments(made.spec, dialect, arguments)
        assert same(
            made.validate(read),
            made.validate(read_arguments(made.spec, STRICT, write_arguments(made.spec, STRICT, read))),
        )


STRICT_KEYWORDS = {
    "$defs", "$ref", "additionalProperties", "anyOf", "description", "enum", "exclusiveMaximum", "exclusiveMinimum",
    "format", "items", "maxItems", "maximum", "minItems", "minimum", "multipleOf", "pattern", "properties", "required",
    "type",
}  # fmt: skip


def parts_of(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    for key in ("properties", "$defs"):
        for inner in schema.get(key, {}).values():
            yield from parts_of(inner)
    for inner in [*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else ())]:
        yield from parts_of(inner)


@given(tools_with_arguments())
def test_strict_mode_closes_every_object_and_requires_every_property(case):
    schema = strict_schema(case[0])
    assert schema["type"] == "object"
    for part in parts_of(schema):
        assert part.keys() <= STRICT_KEYWORDS
        assert ("type" in part) + ("anyOf" in part) + ("$ref" in part) == 1
        if "$ref" in part:
            assert part.keys() == {"$ref"}
            assert part["$ref"].removeprefix("#/$defs/") in schema["$defs"]
        if part.get("type") == "object":
            assert part["additionalProperties"] is False
            assert part["required"] == list(part["properties"])


@given(tools_with_arguments())
def test_dialects_other_than_strict_mode_carry_the_schema_unchanged(case):
    spec = case[0].spec
    assert render_tool(spec, SchemaDialect.MCP) == {
        "name": "act",
        "description": "Act on the world.",
        "inputSchema": spec.parameters,
    }
    assert render_tool(spec, SchemaDialect.ANTHROPIC) == {
        "name": "act",
        "description": "Act on the world.",
        "input_schema": spec.parameters,
    }
    assert render_tool(spec, SchemaDialect.OPENAI_CHAT) == {
        "type": "function",
        "function": {"name": "act", "description": "Act on the world.", "parameters": spec.parameters},
    }
    assert json.loads(render_tool(spec, SchemaDialect.TEXT)) == spec.to_json()


@given(tools_with_arguments(), st.dictionaries(st.sampled_from(["a0", "a1", "a2", "tag"]), json_values))
def test_arguments_that_fit_nothing_are_left_for_the_tool_to_explain(case, arguments):
    made, _ = case
    for dialect in SchemaDialect:
        read = read_arguments(made.spec, dialect, arguments)
        assert set(read) <= set(arguments)


def test_what_a_dialect_renders_is_the_callers_own():
    made = tool_of(a=(list[int], [1]))
    before = json.dumps(made.spec.to_json())
    for dialect in set(SchemaDialect) - {SchemaDialect.TEXT}:
        rendered = json.dumps(render_tool(made.spec, dialect))
        for part in _containers(render_tool(made.spec, dialect)):
            part.clear()
        assert json.dumps(render_tool(made.spec, dialect)) == rendered
    assert json.dumps(made.spec.to_json()) == before


def _containers(value: Any) -> list[Any]:
    if not isinstance(value, dict | list):
        return []
    inner = list(value.values()) if isinstance(value, dict) else value
    return [part for item in inner for part in _containers(item)] + [value]


def test_strict_mode_states_what_it_had_to_change():
    made = tool_of(
        size=(Annotated[int, Field(description="How large")], 3),
        label=(Annotated[str | None, Field(min_length=2)], "none"),
        names=(Annotated[set[str], Field(default_factory=set)]),
        address=Annotated[str, Field(json_schema_extra={"format": "uri"})],
    )
    texts = {name: part["description"] for name, part in strict_schema(made)["properties"].items()}
    assert texts == {
        "size": "How large. Null means the default, 3.",
        "label": 'The default is "none".',
        "names": "No item twice. Null means that it is left out.",
        "address": "In the format uri.",
    }


def test_null_is_absence_unless_null_is_a_value():
    made = tool_of(size=(int, 3), limit=(int | None, 5), mark=(int | None, None), must=int | None)
    absent = write_arguments(made.spec, STRICT, {"must": None})
    assert absent == {"size": None, "limit": 5, "mark": None, "must": None}
    assert read_arguments(made.spec, STRICT, absent) == {"limit": 5, "mark": None, "must": None}
    assert made.validate(read_arguments(made.spec, STRICT, {**absent, "limit": None}))["limit"] is None


class Node(BaseModel):
    value: int = 0
    left: Node | None = Field(None, description="The left child.")
    right: Node | None = None
    marks: list[Node] = []


def test_models_that_contain_themselves_are_translated():
    made = tool_of(tree=(Node, Node()))
    arguments = {"tree": {"left": {"value": 3}, "marks": [{"right": {}}]}}
    written = write_arguments(made.spec, STRICT, arguments)
    assert violations(written, strict_schema(made)) == []
    assert same(made.validate(read_arguments(made.spec, STRICT, written)), made.validate(arguments))


class Fork(BaseModel):
    kind: Literal["fork"]
    next: Fork | Twig | None = None


class Twig(BaseModel):
    kind: Literal["twig"]
    next: Fork | Twig | None = None


def test_reading_a_deep_value_takes_no_time():
    # Tried branch by branch, forty levels of two alternatives each would outlast the suite.
    made = tool_of(tree=Fork | Twig)
    for end in (None, "no twig", {"kind": "twig", "next": None, "extra": 1}):
        value: Any = end
        for _ in range(40):
            value = {"kind": "twig", "next": value}
        assert read_arguments(made.spec, STRICT, {"tree": value}) == {"tree": value}


class Walk(BaseModel):
    speed: int = 1
    to: str | None = "home"


class Ride(BaseModel):
    speed: int | None = None
    to: str | None = "home"


class Wait(BaseModel):
    seconds: int = 1


def test_a_union_that_null_would_make_ambiguous_is_refused():
    with pytest.raises(SchemaDialectError, match="tool act, argument how: two alternatives of a union"):
        strict_schema(tool_of(how=Walk | Ride))
    with pytest.raises(SchemaDialectError, match="argument how: two alternatives"):
        strict_schema(tool_of(how=list[Walk] | list[Ride]))
    made = tool_of(how=Walk | Wait)
    for how in ({}, {"speed": 2}, {"seconds": 3}, {"to": None}):
        written = write_arguments(made.spec, STRICT, {"how": how})
        assert violations(written, strict_schema(made)) == []
        assert same(made.validate(read_arguments(made.spec, STRICT, written)), made.validate({"how": how}))


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        (dict[str, int], "no mappings with free keys"),
        (dict, "no mappings with free keys"),
        (list[dict[str, int]], "argument a.items: strict mode has no mappings"),
        (Any, "cannot leave a type open"),
        (list, "one type for all items"),
        (tuple[int, str], "strict mode has no 'prefixItems'"),
        (Annotated[int, Field(json_schema_extra={"not": {"const": 3}})], "strict mode has no 'not'"),
        (Annotated[list[int] | None, Field(default_factory=list)], "does not hold its default"),
    ],
)
def test_what_strict_mode_cannot_express_is_refused_by_name(annotation, reason):
    made = tool_of(a=annotation)
    with pytest.raises(SchemaDialectError, match=r"^tool act, argument a") as caught:
        render_tool(made.spec, STRICT)
    assert reason in str(caught.value)
    for dialect in set(SchemaDialect) - {STRICT}:
        render_tool(made.spec, dialect)


@pytest.mark.parametrize("name", ["schön", "a.b", "x" * 65, ""])
def test_a_name_that_model_servers_refuse_is_refused_first(name):
    spec = ToolSpec(name, "Act.", {"type": "object", "properties": {}})
    for dialect in (SchemaDialect.OPENAI_CHAT, STRICT, SchemaDialect.ANTHROPIC):
        with pytest.raises(SchemaDialectError, match="rename it"):
            render_tool(spec, dialect)
    render_tool(spec, SchemaDialect.MCP)
    render_tool(spec, SchemaDialect.TEXT)


def test_schemas_that_pydantic_does_not_write_are_understood():
    spec = ToolSpec(
        "act",
        "Act.",
        {
            "type": "object",
            "properties": {
                "size": {"type": ["integer", "null"], "minimum": 1},
                "unit": {"type": ["string", "null"], "enum": ["m", None], "x-note": 1},
                "place": {"allOf": [{"$ref": "#/definitions/Place"}], "description": "Where"},
                "times": {"oneOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]},
            },
            "definitions": {"Place": {"type": "object", "properties": {"x": {"type": "integer"}}}},
        },
    )
    with pytest.raises(SchemaDialectError, match="argument size: null is a value"):
        render_tool(spec, STRICT)
    spec = ToolSpec("act", "Act.", {**spec.parameters, "required": ["size", "unit", "times"]})
    schema: Any = render_tool(spec, STRICT)["parameters"]
    for arguments in (
        {"size": None, "unit": None, "times": 1},
        {"size": 2, "unit": "m", "times": [1], "place": {}},
    ):
        written = write_arguments(spec, STRICT, arguments)
        assert violations(written, schema) == []
        assert read_arguments(spec, STRICT, written) == arguments


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"a": {"$ref": "#/$defs/Nothing"}}, "refers to #/\\$defs/Nothing, which it does not hold"),
        ({"a": {"$ref": "#"}}, "refers to definitions only, not to #"),
        ({"a": {"enum": [[1]]}}, "no enums of lists"),
        ({"a": {"$ref": "#/properties/a"}}, "refers to definitions only"),
    ],
)
def test_a_broken_schema_is_refused(parameters, reason):
    with pytest.raises(SchemaDialectError, match=reason):
        render_tool(spec_of(parameters), STRICT)


def test_a_reference_that_runs_in_a_circle_is_refused():
    spec = spec_of({"a": {"$ref": "#/properties/b"}, "b": {"$ref": "#/properties/a"}})
    with pytest.raises(SchemaDialectError, match="leads back to itself"):
        read_arguments(spec, STRICT, {"a": 1})


def test_tools_are_listed_in_order():
    specs = [tool_of(a=int).spec, ToolSpec("look", "Look.", {"type": "object", "properties": {}})]
    assert [entry["name"] for entry in render_tools(specs, SchemaDialect.MCP)] == ["act", "look"]
    with pytest.raises(SchemaDialectError, match="use describe_tools"):
        render_tools(specs, SchemaDialect.TEXT)


@given(tools_with_arguments(), st.integers())
def test_random_arguments_depend_on_nothing_but_the_generator(case, seed):
    spec = case[0].spec
    assert sample_call([spec], random.Random(seed)) == sample_call([spec], random.Random(seed))


@given(st.integers(0, 2**32))
def test_random_arguments_keep_every_limit(seed):
    schema = {
        "type": "object",
        "properties": {
            "even": {"type": "integer", "multipleOf": 2, "exclusiveMinimum": 2, "maximum": 6},
            "huge": {"type": "integer", "minimum": 2**70, "maximum": 2**70 + 1},
            "low": {"type": "integer", "maximum": -1000},
            "ratio": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            "step": {"type": "number", "multipleOf": 0.25, "minimum": 1, "exclusiveMaximum": 2},
            "word": {"type": "string", "minLength": 5, "maxLength": 5},
            "pair": {
                "type": "array",
                "items": {"type": "boolean"},
                "minItems": 2,
                "maxItems": 2,
                "uniqueItems": True,
            },
            "free": {"type": "object", "additionalProperties": {"type": "integer"}},
            "day": {"type": "string", "format": "date", "pattern": "^20[0-9]{2}-[01][0-9]-[0-3][0-9]$"},
            "when": {"type": "string", "format": "date-time", "pattern": "^[0-9-]{10}T[0-9:]{8}Z$"},
            "id": {
                "type": "string",
                "format": "uuid",
                "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
            },
        },
        "required": ["even", "huge", "low", "ratio", "step", "word", "pair", "free", "day", "when", "id"],
        "additionalProperties": False,
    }
    arguments = sample_arguments(ToolSpec("act", "Act.", schema), random.Random(seed))
    assert violations(arguments, schema) == []


def test_random_arguments_of_models_that_contain_themselves_come_to_an_end():
    spec = tool_of(tree=Node, twigs=list[Fork | Twig]).spec
    for seed in range(50):
        assert violations(sample_arguments(spec, random.Random(seed)), dict(spec.parameters)) == []


def test_random_arguments_leave_optional_ones_out_and_fill_them_in():
    spec = tool_of(a=(int, 1)).spec
    seen = {"a" in sample_arguments(spec, random.Random(seed)) for seed in range(20)}
    assert seen == {True, False}


def test_a_random_call_needs_a_tool():
    with pytest.raises(ValueError, match="no tool"):
        sample_call([], random.Random(0))
