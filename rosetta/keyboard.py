"""Keyboard: what a person types, as actions, and what they are told about typing."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from canonical.schema import Definitions, Schema
from canonical.tool import Tool, ToolCall

with contextlib.suppress(ImportError):
    # Where it is there, `input` lets lines be edited and repeated.
    import readline  # noqa: F401

END = "."
"""The line that ends an argument of several lines."""

_SHOWN = 20
_EXAMPLES: Mapping[Any, Any] = {"array": [], "object": {}, "boolean": True}

Ask = Callable[[str], str]
"""Show a prompt and return the next line; raises EOFError when there is none."""


class Misspelled(ValueError):  # noqa: N818 - it is the line that is wrong, and nothing has failed
    """Report a line that is no action: what was wrong, and how to write it."""


class Keyboard:
    """Read actions from lines.

    With one tool that takes one argument, a line is that argument. Otherwise it is the name of a tool, and then its
    arguments as a JSON object, or its first argument alone; whatever else the tool needs is asked for.

    Args:
        tools: The tools of the environment.
        ask: Reads further lines.
    """

    def __init__(self, tools: Sequence[Tool], ask: Ask) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._ask = ask
        self._sole = _sole_argument(tools)

    def how_to_act(self) -> str:
        """Say how to write actions, and what tools there are."""
        if self._sole is not None:
            return f"Each line is the {self._sole[1]} of {self._sole[0]}."
        lines = [
            "Write the name of a tool and its first argument; for what else it needs you are asked. Or write the name and then",
            f'all arguments as JSON: {self._example()}. "help TOOL" says more of a tool.',
            "The tools (an argument with ? may be left out):",
        ]
        for tool in self._tools.values():
            arguments = ", ".join(
                name if name in _required(tool) else f"{name}?" for name in _properties(tool)
            )
            lines.append(f"  {tool.name}({arguments})  {tool.spec.description.splitlines()[0]}")
        return "\n".join(lines)

    def help(self, line: str) -> str | None:
        """Return the answer to a line that asks for help, or None when it is an action."""
        word, _, name = line.strip().partition(" ")
        if word != "help" or word in self._tools or (self._sole is not None and self._sole[2]):
            return None
        name = name.strip()
        tool = self._tools.get(name)
        if tool is None:
            return (
                f"There is no tool {name!r}; the tools are {', '.join(self._tools)}."
                if name
                else self.how_to_act()
            )
        definitions = Definitions(tool.spec.parameters)
        return "\n".join(
            [
                f"{tool.name}: {tool.spec.description}",
                *_fields(definitions, tool.spec.parameters, "  ", ()),
            ]
        )

    def action(self, line: str) -> ToolCall:
        """Return the call that a line stands for; may ask for further lines.

        Raises:
            Misspelled: The line is no call.
            EOFError: There are no further lines.
        """
        if self._sole is not None:
            return self._of_sole(*self._sole, line.strip())
        name, rest = _split(line.strip())
        tool = self._tools.get(name)
        if tool is None and name.startswith("{"):
            raise Misspelled(f"write the name of the tool before its arguments: {self._example()}")
        if tool is None:
            raise Misspelled(f"there is no tool {name!r}; the tools are {', '.join(self._tools)}")
        if not _is_meant_as_json(tool, rest):
            return ToolCall(name, self._asked(tool, rest))
        how = f"write arguments as in {_example_of(tool)}; these are"
        arguments = _json(rest, how)
        if not isinstance(arguments, dict):
            raise Misspelled(f"{how} JSON, but no object")
        return ToolCall(name, arguments)

    def _example(self) -> str:
        """Return a call with arguments as JSON, of the first tool that has any."""
        tools = list(self._tools.values())
        return _example_of(next((tool for tool in tools if _properties(tool)), tools[0]))

    @staticmethod
    def _of_sole(tool: str, argument: str, is_text: bool, line: str) -> ToolCall:
        if is_text:
            return ToolCall(tool, {argument: line})
        # Whatever is no text may be written as it would be beside other tools, too.
        value = _json(line.removeprefix(f"{tool} "), f"write the {argument} alone; what you wrote is")
        if isinstance(value, dict) and set(value) == {argument}:
            return ToolCall(tool, value)
        return ToolCall(tool, {argument: value})

    def _asked(self, tool: Tool, first: str) -> dict[str, Any]:
        properties, required = _properties(tool), _required(tool)
        arguments: dict[str, Any] = {}
        for number, (name, schema) in enumerate(properties.items()):
            if number == 0 and first:
                arguments[name] = first if _is_text(schema) else _json(first, f"{name} is")
            elif name not in required:
                continue
            elif number == 0 and _is_text(schema):
                arguments[name] = self._ask(f"{name}: ")
            elif _is_text(schema):
                arguments[name] = self._lines(name)
            else:
                arguments[name] = _json(self._ask(f"{name}, as JSON: "), f"{name} is")
        if first and not properties:
            raise Misspelled(f"{tool.name} takes no argument")
        return arguments

    def _lines(self, name: str) -> str:
        lines = []
        how = f"a line with only {END!r} ends it; for a newline at its end, leave an empty line before that"
        line = self._ask(f"{name} ({how}):\n")
        while line != END:
            lines.append(line)
            line = self._ask("")
        return "\n".join(lines)


def _split(line: str) -> tuple[str, str]:
    """Return the name of a tool and what follows it; a brace may follow at once."""
    name, _, rest = line.partition(" ")
    before, brace, inside = name.partition("{")
    return (name, rest.strip()) if not brace or not before else (before, f"{{{inside} {rest}".strip())


def _is_meant_as_json(tool: Tool, text: str) -> bool:
    """Say whether a text is an object of JSON, perhaps a broken one, and not a first argument alone."""
    inner = text.lstrip("[{ ")
    return text.startswith(("{", '[{"')) or any(
        inner.startswith((f'"{name}":', f'"{name}" :', f'"{name}"]')) for name in _properties(tool)
    )


def _fields(
    definitions: Definitions, schema: Schema, indent: str, inside: tuple[Schema, ...]
) -> Iterator[str]:
    """Yield a line for each property of an object, and those of the objects that it holds below it."""
    for name, field in schema.get("properties", {}).items():
        kind = "" if name in schema.get("required", ()) else "?"
        default = f" (default {json.dumps(field['default'])})" if field.get("default") is not None else ""
        values = "".join(
            f" (one of {', '.join(map(json.dumps, option['enum']))})"
            for option in definitions.options(field)
            if "enum" in option
        )
        yield f"{indent}{name}{kind}  {field.get('description', '')}{values}{default}"
        for option in definitions.options(field):
            is_list = isinstance(option.get("items"), Mapping)
            for held in definitions.options(option["items"]) if is_list else [option]:
                if "properties" in held and held not in inside:
                    yield f"{indent}  {'each item' if is_list else 'it'} is an object of:"
                    yield from _fields(definitions, held, f"{indent}    ", (*inside, held))


def _properties(tool: Tool) -> Mapping[str, Schema]:
    properties = tool.spec.parameters.get("properties")
    return (
        {name: dict(schema) for name, schema in properties.items() if isinstance(schema, Mapping)}
        if isinstance(properties, Mapping)
        else {}
    )


def _example_of(tool: Tool) -> str:
    named = [name for name in _properties(tool) if name in _required(tool)] or [*_properties(tool)][:1]
    values = {
        name: "..." if _is_text(schema := _properties(tool)[name]) else _EXAMPLES.get(schema.get("type"), 1)
        for name in named
    }
    return f"{tool.name} {json.dumps(values)}"


def _required(tool: Tool) -> Sequence[Any]:
    required = tool.spec.parameters.get("required", [])
    return required if isinstance(required, list) else []


def _is_text(schema: Schema) -> bool:
    kinds = [schema, *schema.get("anyOf", ())]
    return any(kind.get("type") == "string" for kind in kinds)


def _sole_argument(tools: Sequence[Tool]) -> tuple[str, str, bool] | None:
    """Return tool, argument and whether it is text, when there is one tool with one argument."""
    if len(tools) != 1 or len(_properties(tools[0])) != 1:
        return None
    ((name, schema),) = _properties(tools[0]).items()
    return tools[0].name, name, _is_text(schema)


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        reason = error.msg.removesuffix(" at")
        rest = text[error.pos : error.pos + _SHOWN]
        place = f"where it goes on with {rest!r}" if rest else "where it ends"
        raise Misspelled(f"{what} not JSON: {reason} at column {error.colno}, {place}") from error
