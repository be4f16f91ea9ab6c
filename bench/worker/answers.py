"""Answer questions about a stack from inside of it: `python -P -m bench.worker.answers FILE < questions.json`.

The answers go to a file, because frameworks print. Each expression is evaluated by itself, in names of its own.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, TypedDict

from bench.worker.inspection import inspect_name


class Questions(TypedDict):
    """What is asked."""

    package: str
    """A distribution, whose metadata is wanted."""
    names: list[str]
    """What to resolve, as `module:name`."""
    expressions: list[str]
    """Statements, the last of them an expression."""
    definitions: list[str]
    """Regular expressions for names of classes and functions in the distribution."""


class Answers(TypedDict):
    """What is answered, each list in the order of the questions."""

    metadata: dict[str, Any]
    symbols: list[dict[str, Any]]
    values: list[Any]
    """The value of an expression, or `{"raises": name, "saying": text}`."""
    definitions: list[list[str]]
    """Where each was found, as `file:line name`."""


def answer(questions: Questions) -> Answers:
    """Answer."""
    return {
        "metadata": dict(distribution(questions["package"]).metadata.json),
        "symbols": [inspect_name(name).model_dump() for name in questions["names"]],
        "values": [evaluate(text) for text in questions["expressions"]],
        "definitions": find_definitions(questions["package"], questions["definitions"]),
    }


def evaluate(text: str) -> Any:
    """Return what statements give, as JSON can have it: the value of their last expression, or what they raise."""
    body = ast.parse(text).body
    last = body.pop()
    names: dict[str, Any] = {}
    try:
        exec(compile(ast.Module(body, []), "<claim>", "exec"), names)  # noqa: S102 - the project's own file
        if not isinstance(last, ast.Expr):
            raise SyntaxError("the last statement is no expression")  # noqa: TRY004, TRY301 - told like any other
        found = eval(compile(ast.Expression(last.value), "<claim>", "eval"), names)  # noqa: S307 - as above
    except Exception as error:  # noqa: BLE001 - what it raises is the answer
        return {"raises": type(error).__name__, "saying": str(error).strip().partition("\n")[0][:200]}
    return json.loads(json.dumps(found, default=str))


def find_definitions(package: str, wanted: list[str]) -> list[list[str]]:
    """Return where a distribution defines classes and functions whose names match each expression, tests left out."""
    expressions = [re.compile(one) for one in wanted]
    found: list[list[str]] = [[] for _ in wanted]
    if not wanted:
        return found
    installed = distribution(package)
    for file in installed.files or ():
        if file.suffix != ".py" or "tests" in file.parts:
            continue
        try:
            tree = ast.parse(Path(str(installed.locate_file(file))).read_text(encoding="utf-8"))
        except (OSError, SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                for number, expression in enumerate(expressions):
                    if expression.search(node.name):
                        found[number].append(f"{file}:{node.lineno} {node.name}")
    return found


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(answer(json.load(sys.stdin))), encoding="utf-8")
