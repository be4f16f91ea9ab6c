"""Tools: one signature and one docstring become name, description, schema, validation and messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum, IntEnum, StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field, JsonValue

from canonical.content import JSON, ErrorCode
from canonical.environments.coding_agent.edits import Edit
from canonical.episode import Episode
from canonical.tool import (
    InvalidArgumentsError,
    Tool,
    ToolCall,
    ToolDefinitionError,
    ToolSpec,
    collect_tools,
    tool,
)
from tests.canonical.miniatures import Counter
from tests.canonical.strategies import any_text, json_values

if TYPE_CHECKING:
    from decimal import Decimal


class Colour(StrEnum):
    """Name a colour."""

    RED = "red"
    GREEN = "green"


class Level(IntEnum):
    """Name a level."""

    LOW = 1
    HIGH = 2


class Mixed(Enum):
    """Name values of several types."""

    A = "a"
    B = 2


class Point(BaseModel):
    """Hold a point."""

    x: int
    y: int = 0
    label: str | None = Field(None, description="What stands there.", max_length=5)


class Tree(BaseModel):
    """Hold a tree."""

    title: str
    children: list[Tree] = []


def only(owner: type) -> Tool:
    (found,) = collect_tools(owner)
    return found


def tool_of(function: Callable[..., Any]) -> Tool:
    return only(type("Owner", (), {function.__name__: tool(function)}))


def example(
    self: Any,
    state: Any,
    *,
    text: str,
    number: int,
    ratio: float = 0.5,
    flag: bool = False,
    colour: Colour = Colour.RED,
    mode: Literal["fast", "slow"] = "fast",
    maybe: int | None = None,
    names: list[str] | None = None,
    table: dict[str, int] | None = None,
    point: Point | None = None,
    bounded: Annotated[int, Field(ge=1, le=9)] = 3,
) -> str:
    """Do an example
    of many things.

    A second paragraph.

    Args:
        text: The text, which is described
            in two lines.
        number (int): The number: it has a colon.
        ratio: The ratio.

    Returns:
        Nothing that matters.
    """
    return ""


EXAMPLE = tool_of(example)


class TestSchema:
    def test_the_schema_of_every_type_is_as_expected(self) -> None:
        """Written out in full, because models are trained on these bytes."""
        assert EXAMPLE.spec.name == "example"
        assert dict(EXAMPLE.spec.parameters) == {
            "$defs": {
                "Colour": {"description": "Name a colour.", "enum": ["red", "green"], "type": "string"},
                "Point": {
                    "description": "Hold a point.",
                    "properties": {
                        "x": {"type": "integer"},
                        "y": {"default": 0, "type": "integer"},
                        "label": {
                            "anyOf": [{"maxLength": 5, "type": "string"}, {"type": "null"}],
                            "default": None,
                            "description": "What stands there.",
                        },
                    },
                    "required": ["x"],
                    "type": "object",
                },
            },
            "additionalProperties": False,
            "properties": {
                "text": {"description": "The text, which is described in two lines.", "type": "string"},
                "number": {"description": "The number: it has a colon.", "type": "integer"},
                "ratio": {"default": 0.5, "description": "The ratio.", "type": "number"},
                "flag": {"default": False, "type": "boolean"},
                "colour": {"$ref": "#/$defs/Colour", "default": "red"},
                "mode": {"default": "fast", "enum": ["fast", "slow"], "type": "string"},
                "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
                "names": {
                    "anyOf": [{"items": {"type": "string"}, "type": "array"}, {"type": "null"}],
                    "default": None,
                },
                "table": {
                    "anyOf": [
                        {"additionalProperties": {"type": "integer"}, "type": "object"},
                        {"type": "null"},
                    ],
                    "default": None,
                },
                "point": {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}], "default": None},
                "bounded": {"default": 3, "maximum": 9, "minimum": 1, "type": "integer"},
            },
            "required": ["text", "number"],
            "type": "object",
        }

    def test_the_description_is_the_docstring_without_its_sections(self) -> None:
        assert EXAMPLE.spec.description == "Do an example of many things.\n\nA second paragraph."

    def test_a_tool_without_arguments_has_an_empty_closed_schema(self) -> None:
        @tool
        def nothing(self: Any, state: Any) -> str:
            """Do nothing."""
            return ""

        assert dict(tool_of(nothing).spec.parameters) == {
            "additionalProperties": False,
            "properties": {},
            "type": "object",
        }

    def test_a_schema_is_json_and_equal_at_every_call(self) -> None:
        assert json.loads(json.dumps(EXAMPLE.spec.to_json())) == EXAMPLE.spec.to_json()
        assert tool_of(example).spec == EXAMPLE.spec

    def test_a_schema_does_not_depend_on_the_release_of_pydantic(self) -> None:
        def f(
            self: Any,
            state: Any,
            kind: Literal["one"],
            share: Annotated[float, Field(ge=0, lt=1.0)] = 0.5,
            steps: Annotated[list[Annotated[float, Field(multiple_of=0.5)]], Field(max_length=3)] = [],  # noqa: B006
        ) -> str:
            """Do."""
            return ""

        schema: Any = tool_of(f).spec.parameters
        assert json.dumps(schema["properties"], sort_keys=True) == json.dumps(
            {
                "kind": {"const": "one", "type": "string"},
                "share": {"default": 0.5, "exclusiveMaximum": 1, "minimum": 0, "type": "number"},
                "steps": {
                    "default": [],
                    "items": {"multipleOf": 0.5, "type": "number"},
                    "maxItems": 3,
                    "type": "array",
                },
            },
            sort_keys=True,
        )

    def test_a_property_or_a_default_called_title_stays(self) -> None:
        def write(
            self: Any,
            state: Any,
            *,
            title: str,
            tree: Tree,
            options: dict[str, str] = {"title": "x"},  # noqa: B006
            kind: Literal["title"] = "title",
        ) -> str:
            """Write."""
            return ""

        schema: Any = tool_of(write).spec.parameters
        assert schema["properties"]["title"] == {"type": "string"}
        assert schema["properties"]["options"]["default"] == {"title": "x"}
        assert set(schema["$defs"]["Tree"]["properties"]) == {"title", "children"}
        assert '"title": "T' not in json.dumps(schema)

    def test_a_description_in_the_annotation_wins_over_the_docstring(self) -> None:
        def f(self: Any, state: Any, x: Annotated[int, Field(description="From the annotation.")]) -> str:
            """Do.

            Args:
                x: From the docstring.
            """
            return ""

        schema: Any = tool_of(f).spec.parameters
        assert schema["properties"]["x"]["description"] == "From the annotation."

    def test_a_described_argument_keeps_its_bounds(self) -> None:
        def f(self: Any, state: Any, x: Annotated[int, Field(ge=1)]) -> str:
            """Do.

            Args:
                x: A number.
            """
            return ""

        schema: Any = tool_of(f).spec.parameters
        assert schema["properties"]["x"] == {"description": "A number.", "minimum": 1, "type": "integer"}

    @pytest.mark.parametrize(
        "name", ["schema", "json", "copy", "dict", "validate", "model_name", "construct", "fields"]
    )
    def test_an_argument_may_have_a_name_that_pydantic_uses_itself(self, name: str) -> None:
        space: dict[str, Any] = {"Any": Any}
        exec(f'def f(self, state, {name}: str = "a") -> str:\n    """Do."""\n    return {name}', space)  # noqa: S102
        found = tool_of(space["f"])
        assert found.validate({name: "b"}) == {name: "b"}
        assert found.validate({}) == {name: "a"}


class TestDocstring:
    def read(self, docstring: str) -> Tool:
        def f(self: Any, state: Any, first: int = 0, second: int = 0) -> str:
            return ""

        f.__doc__ = docstring
        return tool_of(f)

    def described(self, docstring: str) -> dict[str, str]:
        properties: Any = self.read(docstring).spec.parameters["properties"]
        return {name: schema["description"] for name, schema in properties.items() if "description" in schema}

    def test_arguments_are_read_from_args_and_arguments(self) -> None:
        for heading in ("Args:", "Arguments:"):
            text = f"Do.\n\n    {heading}\n        first: One.\n        second: Two.\n    "
            assert self.described(text) == {"first": "One.", "second": "Two."}

    def test_continued_lines_belong_to_their_argument_even_with_a_colon(self) -> None:
        text = """Do.

        Args:
            first: One of
                these: a or b.
            second: Two.
        """
        assert self.described(text) == {"first": "One of these: a or b.", "second": "Two."}

    def test_other_sections_are_not_shown(self) -> None:
        text = """Do.

        Raises:
            ValueError: Never.

        Args:
            first: One.

        Example:
            second: not an argument
        """
        assert self.described(text) == {"first": "One."}
        assert self.read(text).spec.description == "Do."

    def test_a_paragraph_after_the_arguments_belongs_to_the_description(self) -> None:
        text = """Do.

        Args:
            first: One.

        Mind the gap.
        """
        assert self.described(text) == {"first": "One."}
        assert self.read(text).spec.description == "Do.\n\nMind the gap."

    def test_line_breaks_inside_a_paragraph_and_deep_indents_vanish(self) -> None:
        assert self.read("Do\n      this\n    and   that.").spec.description == "Do this and that."


class TestDefinitionErrors:
    def refused(self, function: Callable[..., Any], reason: str) -> None:
        with pytest.raises(ToolDefinitionError) as caught:
            tool_of(function)
        assert function.__qualname__ in str(caught.value)
        assert reason in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_a_missing_docstring(self) -> None:
        def f(self: Any, state: Any) -> str:
            return ""

        self.refused(f, "the docstring is missing; it is what the model reads")

    @pytest.mark.parametrize(
        "docstring", ["\n    Args:\n        x: One.\n", "   ", "\n    Returns:\n        Nothing.\n"]
    )
    def test_a_docstring_that_describes_nothing(self, docstring: str) -> None:
        def f(self: Any, state: Any, x: int = 0) -> str:
            return ""

        f.__doc__ = docstring
        self.refused(
            f, "the docstring is missing" if not docstring.strip() else "the docstring does not describe"
        )

    def test_too_few_parameters(self) -> None:
        def f(self: Any) -> str:
            """Do."""
            return ""

        self.refused(f, "the first two parameters must be self and the state")

    def test_a_parameter_without_a_type(self) -> None:
        def f(self: Any, state: Any, x) -> str:  # type: ignore[no-untyped-def]
            """Do."""
            return ""

        self.refused(f, "parameter 'x' has no type annotation")

    def test_open_ended_and_positional_parameters(self) -> None:
        def args(self: Any, state: Any, *x: int) -> str:
            """Do."""
            return ""

        def kwargs(self: Any, state: Any, **x: int) -> str:
            """Do."""
            return ""

        def positional(self: Any, state: Any, x: int, /) -> str:
            """Do."""
            return ""

        for function in (args, kwargs, positional):
            self.refused(function, "parameter 'x' must be a plain named parameter")

    def test_a_description_of_something_else(self) -> None:
        def f(self: Any, state: Any, x: int) -> str:
            """Do.

            Args:
                y: Not there.
            """
            return ""

        self.refused(f, "the docstring describes 'y', which the signature lacks")

    def test_a_type_without_a_schema(self) -> None:
        class Opaque:
            pass

        def f(self: Any, state: Any, x: Opaque) -> str:
            """Do."""
            return ""

        f.__annotations__["x"] = Opaque
        self.refused(f, "its signature has no JSON Schema")

        def g(self: Any, state: Any, x: Callable[[int], int]) -> str:
            """Do."""
            return ""

        self.refused(g, "its signature has no JSON Schema")

    def test_a_type_that_exists_for_the_type_checker_only(self) -> None:
        def f(self: Any, state: Any, x: Decimal) -> str:
            """Do."""
            return ""

        self.refused(f, "name 'Decimal' is not defined")

    def test_a_hidden_parameter(self) -> None:
        def f(self: Any, state: Any, _x: int) -> str:
            """Do."""
            return ""

        self.refused(f, "parameter '_x' must not begin with an underscore")

    def test_a_name_that_pydantic_would_swallow(self) -> None:
        def f(self: Any, state: Any, model_config: int) -> str:
            """Do."""
            return ""

        self.refused(f, "parameter 'model_config' needs another name")

    def test_a_default_that_json_cannot_carry(self) -> None:
        def f(self: Any, state: Any, x: Any = object()) -> str:  # noqa: B008 - what is tested
            """Do."""
            return ""

        self.refused(f, "its signature has no JSON Schema")

    def test_a_static_or_class_method(self) -> None:
        def f(state: Any, x: int) -> str:
            """Do."""
            return ""

        for wrap in (staticmethod, classmethod):
            with pytest.raises(ToolDefinitionError, match="must be a plain method"):
                collect_tools(type("Owner", (), {"f": wrap(tool(f))}))

    def test_the_whole_environment_is_refused(self) -> None:
        class Careless(Counter):
            name = "careless"

            @tool
            def undo(self, state: Any) -> str:
                return ""

        with pytest.raises(ToolDefinitionError, match=r"Careless\.undo: the docstring is missing"):
            _ = Careless().tools


class TestInheritance:
    def test_tools_come_in_the_order_of_definition_base_classes_first(self) -> None:
        class More(Counter):
            name = "more"

            @tool
            def zero(self, state: Any) -> str:
                """Set to zero."""
                return ""

            @tool
            def again(self, state: Any) -> str:
                """Do it again."""
                return ""

        assert [t.name for t in More().tools] == ["add", "refuse", "zero", "again"]

    def test_an_overriding_tool_replaces_the_old_one_in_its_place(self) -> None:
        class Louder(Counter):
            name = "louder"

            @tool
            def add(self, state: Any, amount: int = 1) -> str:
                """Add loudly."""
                return "!"

        assert [t.name for t in Louder().tools] == ["add", "refuse"]
        assert Louder().tools[0].spec.description == "Add loudly."
        assert Episode.open(Louder(), "train/7").step(ToolCall("add")).observation.text == "!"

    def test_an_overriding_method_that_is_no_tool_takes_it_away(self) -> None:
        class Fewer(Counter):
            name = "fewer"

            def refuse(self, state: Any) -> str:
                return ""

        assert [t.name for t in Fewer().tools] == ["add"]


class TestValidation:
    def complete(self, **arguments: JSON) -> dict[str, Any]:
        return EXAMPLE.validate({"text": "t", "number": 1, **arguments})

    def test_defaults_are_filled_in(self) -> None:
        assert self.complete() == {
            "text": "t",
            "number": 1,
            "ratio": 0.5,
            "flag": False,
            "colour": Colour.RED,
            "mode": "fast",
            "maybe": None,
            "names": None,
            "table": None,
            "point": None,
            "bounded": 3,
        }

    def test_values_arrive_as_the_annotated_types(self) -> None:
        values = self.complete(colour="green", point={"x": 1}, names=["a"], table={"k": 2})
        assert values["colour"] is Colour.GREEN
        assert values["point"] == Point(x=1)
        assert isinstance(values["point"], Point)
        assert (values["names"], values["table"]) == (["a"], {"k": 2})

    def test_explicit_null_is_an_absent_optional(self) -> None:
        assert self.complete(maybe=None, names=None, point=None)["maybe"] is None

    def test_a_mutable_default_is_not_shared_between_calls(self) -> None:
        def collect(self: Any, state: Any, items: list[int] = []) -> str:  # noqa: B006
            """Collect."""
            items.append(1)
            return str(items)

        found = tool_of(collect)
        assert [found.function(None, None, **found.validate({})) for _ in range(3)] == ["[1]"] * 3

    def test_the_arguments_of_the_call_are_not_changed(self) -> None:
        arguments: dict[str, JSON] = {"text": "t", "number": 1, "names": ["a"]}
        values = EXAMPLE.validate(arguments)
        values["names"].append("b")
        values["text"] = "u"
        assert arguments == {"text": "t", "number": 1, "names": ["a"]}

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({}, '"text" is required; "number" is required'),
            ({"text": "t"}, '"number" is required'),
            ({"text": 1, "number": 1}, '"text" must be a text'),
            ({"text": "t", "number": 1.5}, '"number" must be an integer'),
            ({"text": "t", "number": "one"}, '"number" must be an integer'),
            ({"text": "t", "number": None}, '"number" must be an integer'),
            ({"text": "t", "number": []}, '"number" must be an integer'),
            ({"text": "t", "number": 1, "ratio": "x"}, '"ratio" must be a number'),
            ({"text": "t", "number": 1, "flag": "maybe"}, '"flag" must be true or false'),
            ({"text": "t", "number": 1, "colour": "blue"}, '"colour" must be one of "red", "green"'),
            ({"text": "t", "number": 1, "mode": "FAST"}, '"mode" must be one of "fast", "slow"'),
            ({"text": "t", "number": 1, "maybe": "x"}, '"maybe" must be an integer or null'),
            ({"text": "t", "number": 1, "names": [1]}, '"names", item 1 must be a text'),
            ({"text": "t", "number": 1, "names": "abc"}, '"names" must be a list, each item a text or null'),
            ({"text": "t", "number": 1, "table": {"a": "x"}}, '"table", "a" must be an integer'),
            ({"text": "t", "number": 1, "point": {}}, '"point": "x" is required'),
            ({"text": "t", "number": 1, "point": 1}, '"point" must be an object with "x" and perhaps "y", "label" or null'),
            ({"text": "t", "number": 1, "point": {"x": 1, "label": "toolong"}}, '"point", "label" must be a text (at most 5 characters) or null'),
            ({"text": "t", "number": 1, "bounded": 0}, '"bounded" must be an integer (at least 1, at most 9)'),
            (
                {"text": "t", "number": 1, "nmae": 1},
                (
                    '"nmae" is not an argument of this tool (its arguments: "text", "number", "ratio", "flag", '
                    '"colour", "mode", "maybe", "names", "table", "point", "bounded")'
                ),
            ),
        ],
    )  # fmt: skip
    def test_a_message_names_each_argument_and_what_is_wanted(self, arguments: Any, message: str) -> None:
        with pytest.raises(InvalidArgumentsError) as caught:
            EXAMPLE.validate(arguments)
        assert str(caught.value) == f"Invalid arguments for example: {message}."

    def test_every_wrong_argument_is_named_once_and_three_places_in_it(self) -> None:
        wrong: dict[str, JSON] = {"text": 1, "number": "x", "names": [1, 2, 3, 4, 5], "extra": 0}
        with pytest.raises(InvalidArgumentsError) as caught:
            EXAMPLE.validate(wrong)
        assert [str(caught.value).count(f'"{name}" ') for name in ("text", "number", "extra")] == [1, 1, 1]
        assert str(caught.value).count('"names", item ') == 3
        assert str(caught.value).endswith("; and 2 more.")

    @pytest.mark.parametrize(
        ("annotation", "wrong", "wanted"),
        [
            (Annotated[str, Field(min_length=2, max_length=4)], "a", "a text (at least 2 characters, at most 4 characters)"),
            (Annotated[str, Field(pattern="^a+$")], "b", "a text (matching ^a+$)"),
            (Annotated[float, Field(gt=0, lt=1)], 1, "a number (above 0, below 1)"),
            (Annotated[int, Field(multiple_of=3)], 4, "an integer (a multiple of 3)"),
            (Annotated[list[int], Field(min_length=1, max_length=2)], [], "a list (at least 1 item, at most 2 items), each item an integer"),
            (list[Colour], "x", 'a list, each item one of "red", "green"'),
            (Level, 3, "one of 1, 2"),
            (Mixed, "c", 'one of "a", 2'),
            (Literal["one"], "two", '"one"'),
            (Literal[1, "a"] | None, 2, 'one of 1, "a" or null'),
            (int | list[int], {}, "an integer or a list, each item an integer"),
            (dict[str, Point], [], "an object"),
            (tuple[int, str], [1], "a list (at least 2 items, at most 2 items)"),
            (Tree, 1, 'an object with "title" and perhaps "children"'),
            (list[Point], 1, 'a list, each item an object with "x" and perhaps "y", "label"'),
            (None, 1, "null"),
        ],
        ids=repr,
    )  # fmt: skip
    def test_each_kind_of_schema_has_its_words(self, annotation: Any, wrong: Any, wanted: str) -> None:
        def f(self: Any, state: Any, x: Any) -> str:
            """Do."""
            return ""

        f.__annotations__["x"] = annotation
        with pytest.raises(InvalidArgumentsError) as caught:
            tool_of(f).validate({"x": wrong})
        assert str(caught.value) == f'Invalid arguments for f: "x" must be {wanted}.'

    @pytest.mark.parametrize(
        ("annotation", "wrong", "told"),
        [
            (list[Point], [{"x": 1}, {}], '"x", item 2: "x" is required'),
            (list[Point], [{"x": 1, "z": 2}, {"x": "a"}], '"x", item 2, "x" must be an integer'),
            (list[Edit], [{"old": "a", "new": "b", "z": 2}], '"x", item 1: "z" is not a field here (its fields: "old", "new", "replace_all")'),
            (list[Point], [1], '"x", item 1 must be an object with "x" and perhaps "y", "label"'),
            (list[Colour], ["red", "x"], '"x", item 2 must be one of "red", "green"'),
            (list[list[int]], [[1], [1, "a"]], '"x", item 2, item 2 must be an integer'),
            (dict[str, Point], {"a": {"x": 1}, "b": {}}, '"x", "b": "x" is required'),
            (tuple[int, str], [1, 2], '"x", item 2 must be a text'),
            (Tree, {}, '"x": "title" is required'),
            (Tree, {"title": "t", "children": [{"title": "t", "children": [{}]}]}, '"x", "children", item 1, "children", item 1: "title" is required'),
            (Tree | None, {"title": 1, "children": [{}]}, '"x", "title" must be a text; "x", "children", item 1: "title" is required'),
            (int | list[int], ["a"], '"x" must be an integer or a list, each item an integer'),
            (Point | Tree, {"y": 1}, '"x" must be an object with "x" and perhaps "y", "label" or an object with "title" and perhaps "children"'),
        ],
        ids=repr,
    )  # fmt: skip
    def test_a_mistake_inside_an_argument_is_named_by_item_and_field(
        self, annotation: Any, wrong: Any, told: str
    ) -> None:
        def f(self: Any, state: Any, x: Any) -> str:
            """Do."""
            return ""

        f.__annotations__["x"] = annotation
        with pytest.raises(InvalidArgumentsError) as caught:
            tool_of(f).validate({"x": wrong})
        assert str(caught.value) == f"Invalid arguments for f: {told}."

    @given(
        st.dictionaries(
            any_text | st.sampled_from(["text", "number", "point", "names"]), json_values, max_size=5
        )
    )
    def test_any_arguments_are_accepted_or_refused_in_words(self, arguments: dict[str, JSON]) -> None:
        try:
            values = EXAMPLE.validate(arguments)
        except InvalidArgumentsError as error:
            str(error).encode("utf-8")
            assert str(error).startswith("Invalid arguments for example: ")  # noqa: PT017 - both ways are right
        else:
            assert set(values) == set(
                json.loads(json.dumps(EXAMPLE.spec.to_json()))["parameters"]["properties"]
            )

    def test_a_giant_list_is_refused_in_one_short_sentence(self) -> None:
        with pytest.raises(InvalidArgumentsError) as caught:
            self.complete(names=list(range(50_000)))
        assert len(str(caught.value)) < 200

    def test_many_unknown_names_do_not_make_an_endless_message(self) -> None:
        with pytest.raises(InvalidArgumentsError) as caught:
            self.complete(**{f"extra{index}": index for index in range(10_000)})
        assert len(str(caught.value)) < 3_000

    def test_deep_arguments_are_handled(self) -> None:
        def f(self: Any, state: Any, x: JsonValue, tree: Tree | None = None) -> str:
            """Do."""
            return ""

        deep: Any = []
        tree: Any = {"title": "leaf"}
        for _ in range(2000):
            deep = [deep]
            tree = {"title": "t", "children": [tree]}
        with pytest.raises(InvalidArgumentsError, match='"x" must be as its schema says'):
            tool_of(f).validate({"x": deep})
        with pytest.raises(InvalidArgumentsError, match='"tree", "children", item 1, "children"') as told:
            tool_of(f).validate({"x": 1, "tree": tree})
        assert len(str(told.value)) < 300

    @pytest.mark.parametrize("key", [1, None, ("a",)], ids=repr)
    def test_keys_that_are_no_text_are_refused(self, key: Any) -> None:
        with pytest.raises(InvalidArgumentsError):
            EXAMPLE.validate({"text": "t", "number": 1, key: 1})


def explode(value: str) -> str:
    raise LookupError(value)


class Picky(Counter):
    """Check an argument with a validator that raises what no validator should."""

    name = "picky"

    @tool
    def spell(self, state: Any, word: Annotated[str, AfterValidator(explode)] = "x") -> str:
        """Spell a word.

        Args:
            word: Whatever.
        """
        return word


def test_a_validator_of_the_author_that_fails_is_an_internal_error() -> None:
    episode = Episode.open(Picky(), "train/7")
    result = episode.step(ToolCall("spell", {"word": "canary"}))
    assert result.observation.error is ErrorCode.INTERNAL_ERROR
    assert "canary" not in result.observation.text
    assert isinstance(episode.failure, LookupError)


def test_a_specification_is_written_and_read_unchanged() -> None:
    from canonical.transcript import spec_from_json

    spec: ToolSpec = spec_from_json(json.loads(json.dumps(EXAMPLE.spec.to_json())))
    assert spec == EXAMPLE.spec


def test_a_tool_stays_an_ordinary_method() -> None:
    counter = Counter()
    state: Any = Episode.open(counter, "train/7").state
    assert counter.add(state, 2) == "The counter is at 2."
