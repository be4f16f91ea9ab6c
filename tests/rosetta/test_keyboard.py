"""What a person types becomes the call that they mean, and what they mistype costs no turn."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canonical.catalogue import load_environment
from canonical.environments.coding_agent.environment import CodingAgent
from canonical.environments.wordle.environment import Wordle
from canonical.tool import ToolCall
from rosetta.keyboard import Keyboard, Misspelled

TOOLS = CodingAgent().tools


def typed(*lines: str, tools: Any = TOOLS) -> ToolCall:
    rest = iter(lines[1:])

    def ask(_: str) -> str:
        try:
            return next(rest)
        except StopIteration:
            raise EOFError from None

    action = Keyboard(tools, ask).action(lines[0])
    assert list(rest) == []
    return action


@pytest.mark.parametrize(
    ("lines", "name", "arguments"),
    [
        (["ls"], "ls", {}),
        (["ls src"], "ls", {"path": "src"}),
        (["  read   a b.py "], "read", {"path": "a b.py"}),
        (["read", "stats.py"], "read", {"path": "stats.py"}),
        (['bash echo "{}" | wc -c'], "bash", {"command": 'echo "{}" | wc -c'}),
        (['read{"path": "x y"}'], "read", {"path": "x y"}),
        (['grep [a-z]"'], "grep", {"pattern": '[a-z]"'}),
        (['read {"path": "x", "limit": 3}'], "read", {"path": "x", "limit": 3}),
        (["write x", "one", "", "."], "write", {"path": "x", "content": "one\n"}),
        (["write x", "."], "write", {"path": "x", "content": ""}),
        (["edit x", " a", "b", ".", "c", "."], "edit", {"path": "x", "old": " a\nb", "new": "c"}),
        (["multi_edit x", '[{"old": "a", "new": "b"}]'], "multi_edit", {"path": "x", "edits": [{"old": "a", "new": "b"}]}),
        (["todo_write []"], "todo_write", {"todos": []}),
        (["submit_solution"], "submit_solution", {}),
    ],
)  # fmt: skip
def test_a_line_and_what_is_asked_for_after_it_are_a_call(
    lines: list[str], name: str, arguments: dict[str, Any]
) -> None:
    assert typed(*lines) == ToolCall(name, arguments)


@given(
    st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=30),
    st.text("a.\n ", max_size=20),
)
def test_any_text_of_lines_can_be_typed(path: str, content: str) -> None:
    if "." in content.split("\n"):
        return
    assert typed("write", path, *content.split("\n"), ".") == ToolCall(
        "write", {"path": path, "content": content}
    )


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["foo"], "there is no tool 'foo'; the tools are read, write, edit"),
        (["read {'path'}"], 'write arguments as in read {"path": "..."}; these are not JSON'),
        (['{"path": "x"}'], 'write the name of the tool before its arguments: read {"path": "..."}'),
        (["todo_write look"], "todos is not JSON"),
        (["todo_write", "["], "todos is not JSON"),
        (["submit_solution now"], "submit_solution takes no argument"),
        (['read {"path": "x"'], "not JSON: Expecting ',' delimiter at column 13, where it ends"),
        (['read "path": "x"}'], "not JSON: Extra data at column 7, where it goes on with"),
        (
            ['multi_edit [{"old": "a", "new": }]'],
            "not JSON: Expecting value at column 22, where it goes on with",
        ),
        (
            ['multi_edit [{"old": "a", "new": "b"}]'],
            "write arguments as in multi_edit .* these are JSON, but no object",
        ),
    ],
)
def test_a_line_that_is_no_call_is_told(lines: list[str], told: str) -> None:
    with pytest.raises(Misspelled, match=told):
        typed(*lines)


def test_input_that_ends_in_the_middle_of_a_call_makes_none() -> None:
    with pytest.raises(EOFError):
        typed("write x", "one")


def test_help_names_every_tool_and_every_argument_with_what_it_means() -> None:
    keyboard = Keyboard(TOOLS, input)
    assert all(f"  {tool.name}(" in keyboard.how_to_act() for tool in TOOLS)
    assert keyboard.help("ls") is None
    assert keyboard.help("help") == keyboard.how_to_act()
    assert keyboard.help("help nobody") == (
        f"There is no tool 'nobody'; the tools are {', '.join(tool.name for tool in TOOLS)}."
    )
    for tool in TOOLS:
        told = keyboard.help(f"help {tool.name}")
        assert told is not None
        properties: Any = tool.spec.parameters["properties"]
        assert all(
            argument in told and schema["description"] in told for argument, schema in properties.items()
        )
    assert "replace_all?" in (keyboard.help("help edit") or "")


@pytest.mark.parametrize(
    ("tool", "fields"),
    [
        ("multi_edit", ["old  The text to replace", "new  The text to put", "replace_all?  Replace every"]),
        ("todo_write", ["content  What is to be done.", 'status  How far it has come. (one of "pending", "in_progress", ']),
    ],
)  # fmt: skip
def test_help_shows_the_fields_of_the_objects_in_a_list(tool: str, fields: list[str]) -> None:
    told = Keyboard(TOOLS, input).help(f"help {tool}") or ""
    assert "    each item is an object of:\n" in told
    assert all(f"\n      {field}" in told for field in fields)


def test_with_one_tool_of_one_argument_a_line_is_that_argument() -> None:
    keyboard = Keyboard(Wordle().tools, input)
    assert keyboard.action(" help ") == ToolCall("guess", {"word": "help"})
    assert keyboard.help("help") is None


@pytest.mark.parametrize("line", ["50", "guess 50", '{"number": 50}', 'guess {"number": 50}'])
def test_the_number_of_the_only_tool_may_be_written_as_beside_others(line: str) -> None:
    assert typed(line, tools=load_environment("docs/examples/higher_lower.py").tools) == ToolCall(
        "guess", {"number": 50}
    )


def test_what_is_no_number_is_answered_with_how_to_write_one() -> None:
    with pytest.raises(Misspelled, match="write the number alone"):
        typed("fifty", tools=load_environment("docs/examples/higher_lower.py").tools)
