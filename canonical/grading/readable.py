"""What in a Python source hides which code runs, so that a test that reads the source would be deceived.

A test of a source's shape (no long functions, no copies, none of these functions) judges the code that it sees. It is worth
something only while all code that runs can be seen: no code made from texts, none reached by a name that is computed, and
no module but those that neither run nor load code. What slips through here ends at `watch`, when it runs. This module also
runs inside sandboxes.
"""

from __future__ import annotations

import importlib
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

PLAIN_MODULES = frozenset({
    "__future__", "abc", "bisect", "collections", "collections.abc", "contextlib", "copy", "dataclasses", "datetime", "decimal",
    "enum", "fractions", "functools", "heapq", "html", "itertools", "json", "logging", "math", "numbers", "operator", "re",
    "statistics", "string", "sys", "textwrap", "types", "typing",
})  # fmt: skip
"""Modules that neither run texts nor load, reach or change code, but for the names that are refused below."""

# Of these modules, what is named here alone is plain. Handlers of `logging` hold streams and open files, and from a stream it is
# two attributes to the class that writes files.
_PLAIN_NAMES = {
    "logging": frozenset({
        "CRITICAL", "DEBUG", "ERROR", "INFO", "Logger", "NOTSET", "NullHandler", "WARNING", "getLogger",
    }),
    "sys": frozenset({"argv", "byteorder", "exit", "float_info", "maxsize", "version_info"}),
    "types": frozenset({"MappingProxyType", "NoneType", "SimpleNamespace"}),
}  # fmt: skip
_STREAMS = frozenset({"stderr", "stdin", "stdout"})
_OF_STREAMS = frozenset({"flush", "isatty", "read", "readline", "readlines", "write", "writelines"})

# The first of them make or reach code; the others do so for whoever gives them a text: a name, a path, an annotation.
_NAMES = frozenset({
    "__import__", "breakpoint", "builtins", "compile", "delattr", "eval", "exec", "globals", "importlib", "locals", "open",
    "runpy", "setattr", "vars",
    "attrgetter", "evaluate_forward_ref", "ForwardRef", "Formatter", "get_field", "get_type_hints", "help", "methodcaller",
    "singledispatch", "singledispatchmethod", "update_wrapper", "wraps",
})  # fmt: skip
# They put an object, a class or the names of its parts in the place of others, by texts.
_NAMES |= {
    "chdir", "EnumMeta", "EnumType", "make_dataclass", "new_class", "redirect_stderr", "redirect_stdout",
}  # fmt: skip
_FRAMES = ("ag_", "co_", "cr_", "f_", "gi_", "tb_")
_OPERATORS = (
    "add", "and", "divmod", "floordiv", "lshift", "matmul", "mod", "mul", "or", "pow", "rshift", "sub", "truediv", "xor",
)  # fmt: skip
_HARMLESS = frozenset({
    "__abs__", "__aenter__", "__aexit__", "__aiter__", "__all__", "__anext__", "__bool__", "__call__", "__ceil__", "__contains__",
    "__copy__", "__deepcopy__", "__delitem__", "__doc__", "__enter__", "__eq__", "__exit__", "__float__", "__floor__",
    "__format__", "__ge__", "__getitem__", "__gt__", "__hash__", "__index__", "__init__", "__int__", "__invert__", "__iter__",
    "__le__", "__len__", "__lt__", "__missing__", "__name__", "__ne__", "__neg__", "__new__", "__next__", "__pos__",
    "__post_init__", "__repr__", "__reversed__", "__round__", "__setitem__", "__slots__", "__str__", "__trunc__", "__version__",
    "__author__", "__debug__",
    *(f"__{before}{name}__" for name in _OPERATORS for before in ("", "i", "r")),
})  # fmt: skip
# Harmless to read as attributes: what `type` returns for one object, texts, and exceptions.
_HARMLESS_TO_READ = frozenset({"__cause__", "__class__", "__context__", "__module__", "__qualname__"})
# Refused but in a call in which all names that they reach are written out.
_WRITTEN_OUT = frozenset({"attrgetter", "getattr", "methodcaller", "wraps"})
# The private names that the standard library means for others.
_PUBLIC = frozenset({
    "_", "_asdict", "_field_defaults", "_fields", "_generate_next_value_", "_ignore_", "_make", "_missing_", "_name_", "_order_",
    "_replace", "_value_",
})  # fmt: skip
_BUILT_IN = frozenset({
    "bool", "bytearray", "bytes", "dict", "float", "frozenset", "int", "list", "set", "str", "tuple",
})  # fmt: skip
_COOKIE = re.compile(r"coding[:=][ \t]*([-\w.]+)", re.ASCII)
_UTF_8 = frozenset({"u8", "utf", "utf8", "utf-8"})
# Where a node binds a name that is no node of its own.
_BINDING = {
    "AsyncFunctionDef": "name", "ClassDef": "name", "ExceptHandler": "name", "FunctionDef": "name", "MatchAs": "name",
    "MatchMapping": "rest", "MatchStar": "name", "TypeVar": "name", "alias": "asname", "arg": "arg",
}  # fmt: skip


def hidden_code(source: str) -> list[str]:
    """Return what in a source hides which code runs, one text for each place; an empty list when nothing does.

    Refused are `exec`, `eval`, `compile`, `globals` and their like under any name by which they can be reached, as names, as
    attributes and as texts for `getattr` and `attrgetter`; those two with a computed name; imports of other modules than
    PLAIN_MODULES, and modules and the streams of `sys` as values; frames, code objects, and names between double underscores that lead to them or change what a class is;
    metaclasses, and classes made by a call of `type`; private names of others; and any encoding but UTF-8, because Python
    would read another text. `re.compile` is allowed.

    Raises:
        SyntaxError: The source is not Python.
    """
    # It starts slowly, and most tests read no source; so nodes are told apart by the names of their kinds.
    import ast  # noqa: PLC0415

    nodes = list(ast.walk(ast.parse(source.removeprefix("\ufeff"))))
    reader = _Reader(nodes)
    found = [f"line {getattr(node, 'lineno', 0)}: {what}" for node in nodes for what in reader.suspects(node)]
    return [*_of_encoding(source), *found]


def _of_encoding(source: str) -> Iterator[str]:
    """Yield what the first two lines say that would make Python read another text; it looks at comments there alone."""
    for number, line in enumerate(re.split(r"\r\n|\r|\n", source.removeprefix("\ufeff"), maxsplit=2)[:2], 1):
        if line.lstrip(" \t\f").startswith("#"):
            for name in _COOKIE.findall(line):
                if name.lower().replace("_", "-") not in _UTF_8:
                    yield f"line {number}: the encoding {name}"


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
            id(node.func) for node in nodes if _kind(node) == "Call" and _has_constant_names(node)
        }
        self._streams = {id(one) for node in nodes for one in self._plain_streams(node)}
        self._names_print = any("print" in _bound(node) for node in nodes)
        self._private = {name for node in nodes for name in _defined(node)}
        self._classes = {node.name for node in nodes if _kind(node) == "ClassDef"}

    def suspects(self, node: Any) -> Iterator[str]:
        """Yield what is suspect in one node itself."""
        match _kind(node):
            case "Import":
                names = [alias.name for alias in node.names]
                yield from (f"import {name}" for name in names if name not in PLAIN_MODULES or "." in name)
            case "ImportFrom":
                yield from _of_import(f"{'.' * node.level}{node.module or ''}", node.names)
            case "Name":
                yield from self._of_name(node)
            case "Attribute":
                if not self._is_plain(node):
                    yield from self._of_attribute(node.attr, node.value)
                if getattr(node.value, "id", "") in self._modules and _kind(node.ctx) != "Load":
                    yield f"a change of the module {node.value.id}"
            case "Call":
                yield from self._of_call(node)
            case "MatchClass":
                for name in node.kwd_attrs:
                    yield from self._of_attribute(name, node.cls)
                if node.patterns and getattr(node.cls, "id", "") not in self._classes | _BUILT_IN:
                    yield "a pattern by position, of parts whose names cannot be read"
        yield from self._of_binding(node)

    def _of_binding(self, node: Any) -> Iterator[str]:
        name = getattr(node, _BINDING.get(_kind(node), ""), None)
        # An import binds the names of modules, and what it imports is looked at as a whole.
        is_module = name in self._modules and _kind(node) != "alias"
        if name is not None and (is_module or name == "getattr" or _is_refused(name)):
            yield f"the name {name}"
        if _kind(node) == "ClassDef":
            for word in node.keywords:
                is_abstract = word.arg == "metaclass" and _last_name(word.value) == "ABCMeta"
                if word.arg in {None, "metaclass"} and not is_abstract:
                    yield f"the class keyword {word.arg or '**'}"
            yield from (
                "a class of classes" for base in node.bases if _last_name(base) in {"type", "ABCMeta"}
            )

    def _of_call(self, node: Any) -> Iterator[str]:
        called = getattr(node.func, "id", "")
        if id(node.func) in self._written_out:
            owner = node.args[0] if called == "getattr" else None
            for name in _constant_names(node):
                yield from self._of_attribute(name, owner)
        if called == "type" and (len(node.args) != 1 or node.keywords or _kind(node.args[0]) == "Starred"):
            yield "a class that a call makes"

    def _of_name(self, node: Any) -> Iterator[str]:
        if id(node) in self._written_out:
            return
        if node.id == "getattr":
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
        is_of_others = (
            name.startswith("_") and not name.endswith("__") and name not in self._private | _PUBLIC
        )
        if _is_refused(name) or name == "getattr" or name.startswith(_FRAMES) or is_inner or is_of_others:
            yield f".{name}"

    def _is_plain(self, node: Any) -> bool:
        """Say whether an attribute is plain here, though its name is refused elsewhere."""
        module = self._modules.get(getattr(node.value, "id", ""))
        if _kind(node.ctx) != "Load":
            return False
        if module is None:
            return node.attr in _HARMLESS_TO_READ
        if module == "sys" and node.attr in _STREAMS:
            return id(node) in self._streams and not self._names_print
        return id(node) in self._written_out and module in {"functools", "operator"}

    def _plain_streams(self, node: Any) -> Iterator[Any]:
        """Yield what stands where a stream of `sys` is read or written, and nobody gets hold of it."""
        match _kind(node):
            case "Attribute" if node.attr in _OF_STREAMS:
                yield node.value
            case "For" | "comprehension":
                yield node.iter
            case "Call" if getattr(node.func, "id", "") == "print":
                yield from (word.value for word in node.keywords if word.arg == "file")
            case "Call" if self._modules.get(getattr(getattr(node.func, "value", None), "id", "")) == "json":
                # What is written is shown to functions of the source, where it is written to is not.
                yield from {"load": node.args[:1], "dump": node.args[1:2]}.get(node.func.attr, [])


def _kind(node: Any) -> str:
    return type(node).__name__


def _has_constant_names(call: Any) -> bool:
    """Say whether a call is like `getattr(one, "name")`, perhaps with a third argument, and nothing computes them.

    So may calls of `attrgetter` and `methodcaller` be; `wraps` copies names of its own, unless it is told others.
    """
    called, count = _last_name(call.func), len(call.args)
    if called not in _WRITTEN_OUT or any(_kind(one) == "Starred" for one in call.args):
        return False
    is_named = bool(call.keywords)
    texts = [_kind(one) == "Constant" and type(one.value) is str for one in call.args]
    match called:
        case "getattr":
            return not is_named and count in {2, 3} and texts[1] and _kind(call.func) == "Name"
        case "attrgetter":
            return not is_named and count > 0 and all(texts)
        case "methodcaller":
            return count > 0 and texts[0] and all(word.arg for word in call.keywords)
        case _:
            return not is_named and count == 1


def _constant_names(call: Any) -> list[str]:
    """Return the names that a call reaches of which `_has_constant_names` is true."""
    match _last_name(call.func):
        case "getattr":
            return [call.args[1].value]
        case "attrgetter":
            return [name for one in call.args for name in one.value.split(".")]
        case "methodcaller":
            return [call.args[0].value]
        case _:
            return []


def _bound(node: Any) -> Iterator[str]:
    """Yield the names that a node gives to something, wherever that is."""
    if _kind(node) == "Name" and _kind(node.ctx) != "Load":
        yield node.id
    if _kind(node) in _BINDING:
        yield from (str(getattr(node, part, None)) for part in ("name", "rest", "asname", "arg"))


def _defined(node: Any) -> Iterator[str]:
    """Yield the names that a node gives to what belongs to the source itself."""
    match _kind(node):
        case "FunctionDef" | "AsyncFunctionDef" | "ClassDef":
            yield node.name
        case "Attribute" if _kind(node.ctx) == "Store":
            yield node.attr
        case "Name" if _kind(node.ctx) == "Store":
            yield node.id
        case "Assign" if any(getattr(target, "id", "") == "__slots__" for target in node.targets):
            values = getattr(node.value, "elts", None) or getattr(node.value, "keys", None) or [node.value]
            yield from (str(getattr(one, "value", "")) for one in values)


def _last_name(node: Any) -> str:
    return str(getattr(node, "id", getattr(node, "attr", "")))


def _of_import(module: str, aliases: list[Any]) -> Iterator[str]:
    if module not in PLAIN_MODULES:
        yield f"from {module} import"
        return
    for name, other in ((alias.name, alias.asname) for alias in aliases):
        # Where these are called, it must be seen that they are.
        is_refused = _is_refused(name) and (name not in _WRITTEN_OUT or other not in {None, name})
        if name == "*" or is_refused or _is_inner(module, name):
            yield f"from {module} import {name}"


def _is_inner(module: str, name: str) -> bool:
    """Say whether what a module has of this name is private, a module that it uses, or more than is plain there."""
    if module not in PLAIN_MODULES:
        return False  # it is refused where it is imported
    if name not in _PLAIN_NAMES.get(module, {name}):
        return True
    inner = getattr(importlib.import_module(module), name, None)
    return name.startswith("_") or isinstance(inner, type(sys))


def _is_refused(name: str) -> bool:
    return name in _NAMES or (name.startswith("__") and name.endswith("__") and name not in _HARMLESS)
