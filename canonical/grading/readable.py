"""What in a Python source hides which code runs, so that a test that reads the source would be deceived.

A test of a source's shape (no long functions, no copies, none of these functions) judges the code that it sees. It is worth
something only while all code that runs can be seen: no code made from texts, none reached by a name that is computed, and
no module but those that neither run nor load code. This module also runs inside sandboxes.
"""

from __future__ import annotations

import importlib
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

PLAIN_MODULES = frozenset({
    "__future__", "abc", "bisect", "collections", "collections.abc", "contextlib", "copy", "dataclasses", "decimal",
    "enum", "fractions", "functools", "heapq", "itertools", "math", "numbers", "operator", "re", "statistics", "string", "typing",
})  # fmt: skip
"""Modules that neither run texts nor load, reach or change code, but for the names that are refused below."""

# The first of them make or reach code; the others do so for whoever gives them a text: a name, a path, an annotation.
_NAMES = frozenset({
    "__import__", "breakpoint", "builtins", "compile", "delattr", "eval", "exec", "globals", "importlib", "locals", "open",
    "runpy", "setattr", "vars",
    "attrgetter", "evaluate_forward_ref", "ForwardRef", "Formatter", "get_field", "get_type_hints", "help", "methodcaller",
    "singledispatch", "singledispatchmethod", "update_wrapper", "wraps",
})  # fmt: skip
_FRAMES = ("ag_", "co_", "cr_", "f_", "gi_", "tb_")
_HARMLESS = frozenset({
    "__add__", "__all__", "__and__", "__bool__", "__call__", "__contains__", "__delitem__", "__doc__", "__enter__", "__eq__",
    "__exit__", "__ge__", "__getitem__", "__gt__", "__hash__", "__init__", "__iter__", "__le__", "__len__", "__lt__",
    "__match_args__", "__name__", "__ne__", "__neg__", "__new__", "__next__", "__post_init__", "__repr__", "__setitem__",
    "__slots__", "__str__", "__version__",
})  # fmt: skip


def hidden_code(source: str) -> list[str]:
    """Return what in a source hides which code runs, one text for each place; an empty list when nothing does.

    Refused are `exec`, `eval`, `compile`, `globals` and their like under any name by which they can be reached, as names, as
    attributes and as texts for `getattr`; `getattr` of a computed name; imports of other modules than PLAIN_MODULES, and
    modules as values; frames, code objects, and names between double underscores that lead to them. `re.compile` is allowed.

    Raises:
        SyntaxError: The source is not Python.
    """
    # It starts slowly, and most tests read no source; so nodes are told apart by the names of their kinds.
    import ast  # noqa: PLC0415

    nodes = list(ast.walk(ast.parse(source)))
    reader = _Reader(nodes)
    return [f"line {getattr(node, 'lineno', 0)}: {what}" for node in nodes for what in reader.suspects(node)]


class _Reader:
    """Find what is suspect in the nodes of one source."""

    def __init__(self, nodes: list[Any]) -> None:
        self._modules: dict[str, str] = {
            alias.asname or alias.name: alias.name
            for node in nodes
            if _kind(node) == "Import"
            for alias in node.names
        }
        self._with_attribute = {id(node.value) for node in nodes if _kind(node) == "Attribute"}
        self._written_out = {
            id(node.func)
            for node in nodes
            if _kind(node) == "Call" and len(node.args) > 1 and _kind(node.args[1]) == "Constant"
        }

    def suspects(self, node: Any) -> Iterator[str]:
        """Yield what is suspect in one node itself."""
        match _kind(node):
            case "Import":
                names = [alias.name for alias in node.names]
                yield from (f"import {name}" for name in names if name not in PLAIN_MODULES or "." in name)
            case "ImportFrom":
                yield from _of_import(
                    f"{'.' * node.level}{node.module or ''}", [one.name for one in node.names]
                )
            case "Name":
                yield from self._of_name(node)
            case "arg" if node.arg in self._modules or _is_refused(node.arg):
                yield f"the parameter {node.arg}"
            case "Attribute":
                yield from self._of_attribute(node.attr, node.value)
            case "Call" if id(node.func) in self._written_out and getattr(node.func, "id", "") == "getattr":
                yield from self._of_attribute(str(node.args[1].value), node.args[0])
            case "MatchClass":
                for name in node.kwd_attrs:
                    yield from self._of_attribute(name, node.cls)

    def _of_name(self, node: Any) -> Iterator[str]:
        if node.id == "getattr":
            if id(node) not in self._written_out:
                yield "getattr of a name that is computed"
        elif node.id in self._modules:
            if id(node) not in self._with_attribute or _kind(node.ctx) != "Load":
                yield f"the module {node.id} as a value"
        elif _is_refused(node.id):
            yield node.id

    def _of_attribute(self, name: str, owner: Any) -> Iterator[str]:
        module = self._modules.get(getattr(owner, "id", ""))
        if module == "re" and name == "compile":
            return
        is_inner = module is not None and _is_inner(module, name)
        if _is_refused(name) or name == "getattr" or name.startswith(_FRAMES) or is_inner:
            yield f".{name}"


def _kind(node: Any) -> str:
    return type(node).__name__


def _of_import(module: str, names: list[str]) -> Iterator[str]:
    if module not in PLAIN_MODULES:
        yield f"from {module} import"
        return
    for name in names:
        if name == "*" or _is_refused(name) or _is_inner(module, name):
            yield f"from {module} import {name}"


def _is_inner(module: str, name: str) -> bool:
    """Say whether what a module has of this name is private, or a module that it uses."""
    if module not in PLAIN_MODULES:
        return False  # it is refused where it is imported
    inner = getattr(importlib.import_module(module), name, None)
    return name.startswith("_") or isinstance(inner, type(sys))


def _is_refused(name: str) -> bool:
    return name in _NAMES or (name.startswith("__") and name.endswith("__") and name not in _HARMLESS)
