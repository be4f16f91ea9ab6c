"""Inspection: say what a dotted name is in this stack, and where it is defined."""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

from bench import protocol

_SHORT = 300


class _AbsentError(LookupError):
    """Report which part of a name is not there."""


def inspect_names(request: protocol.Inspect) -> protocol.Inspected:
    """Resolve every name of a request; one that does not resolve says why."""
    return protocol.Inspected(seq=request.seq, symbols=[inspect_name(name) for name in request.names])


def inspect_name(name: str) -> protocol.Inspection:
    """Return what a name is: `module:name`, with dots in the name for what is inside a class, or a module alone.

    A field of a class that only its annotations know, as of a pydantic model or a `TypedDict`, resolves too. A method
    is a function here.
    """
    module_name, _, path = name.partition(":")
    try:
        module = importlib.import_module(module_name)
        owner, found, field = _resolve(module, path)
    except ImportError as error:
        return protocol.Inspection(name=name, missing=f"no module: {error}")
    except _AbsentError as error:
        return protocol.Inspection(name=name, missing=str(error))
    plain = _unwrapped(found)
    last = field or path.rpartition(".")[2]
    file, line = _place(module, owner, plain, last, is_field=bool(field))
    has_module = _what(plain) != "value" and not field
    distribution, root = _distribution(_module_of(plain, module_name) if has_module else module_name)
    return protocol.Inspection(
        name=name,
        what="field" if field else _what(found),
        signature=_field_type(owner, field) if field else _signature(plain),
        distribution=distribution,
        version=None if distribution is None else version(distribution),
        file=None if file is None else _relative(file, root),
        line=line,
    )


def _resolve(module: Any, path: str) -> tuple[Any, Any, str]:
    """Return the owner of a name, what it is, and the name again when only annotations know it."""
    owner, found = module, module
    parts = path.split(".") if path else []
    for position, part in enumerate(parts):
        owner = found
        try:
            # Of a class, the descriptor itself and not what it gives.
            found = inspect.getattr_static(owner, part) if inspect.isclass(owner) else getattr(owner, part)
        except AttributeError:
            is_last = position == len(parts) - 1 and inspect.isclass(owner)
            if is_last and (part in _annotations(owner) or _field_place(owner, part) != (None, None)):
                return owner, None, part
            raise _AbsentError(f"{getattr(owner, '__name__', owner)} has no {part}") from None
        if position == len(parts) - 1 and inspect.isclass(owner) and part in _annotations(owner):
            return owner, found, part
    return owner, found, ""


def _annotations(owner: type) -> Mapping[str, Any]:
    # pydantic's own record of fields first: it has those of the bases too.
    known = dict(getattr(owner, "model_fields", None) or {})
    for base in reversed(owner.__mro__):
        known |= vars(base).get("__annotations__", {})
    return known


def _unwrapped(found: Any) -> Any:
    if isinstance(found, property):
        return found.fget
    if isinstance(found, staticmethod | classmethod):
        return found.__func__
    return inspect.unwrap(found) if callable(found) else found


def _what(found: Any) -> Any:
    if isinstance(found, property):
        return "property"
    if inspect.ismodule(found):
        return "module"
    if inspect.isclass(found):
        return "class"
    is_function = inspect.isroutine(found) or isinstance(found, staticmethod | classmethod)
    return "function" if is_function else "value"


def _signature(found: Any) -> str | None:
    if inspect.ismodule(found):
        return None
    if _what(found) == "value":
        return _shortened(repr(found))
    try:
        return _shortened(str(inspect.signature(found)))
    except (TypeError, ValueError):
        return None


def _shortened(text: str) -> str:
    # Addresses differ between two runs.
    return "" if " at 0x" in text else text if len(text) <= _SHORT else f"{text[:_SHORT]} ..."


def _field_type(owner: Any, name: str) -> str | None:
    annotations = _annotations(owner)
    if name not in annotations:
        return None
    written = annotations[name]
    written = getattr(written, "annotation", written)
    text = written if isinstance(written, str) else getattr(written, "__forward_arg__", None)
    return _shortened(text or inspect.formatannotation(written))


def _place(
    module: Any, owner: Any, found: Any, name: str, *, is_field: bool
) -> tuple[Path | None, int | None]:
    if is_field:
        return _field_place(owner, name)
    if _what(found) == "value":
        file = getattr(module, "__file__", None)
        return (None, None) if file is None else (Path(file), _line_of_value(Path(file), name))
    try:
        if inspect.ismodule(found):
            return Path(inspect.getfile(found)), 1
        source = inspect.getsourcefile(found)
        _, line = inspect.getsourcelines(found)
    except (OSError, TypeError):
        return None, None
    return None if source is None else Path(source), line or 1


def _line_of_value(file: Path, name: str) -> int | None:
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AnnAssign)
            else []
        )
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return node.lineno
    return None


def _field_place(owner: Any, name: str) -> tuple[Path | None, int | None]:
    """Return where a class, or one that it derives from, annotates a name, or gives it to its objects."""
    for base in owner.__mro__:
        try:
            file = inspect.getsourcefile(base)
            lines, first = inspect.getsourcelines(base)
        except (OSError, TypeError):
            continue
        body = ast.parse(textwrap.dedent("".join(lines))).body
        if file is None or not body or not isinstance(body[0], ast.ClassDef):
            continue
        for node in ast.walk(body[0]):
            if name in _given(node):
                return Path(file), first + node.lineno - 1  # type: ignore[attr-defined] # of an assignment
    return None, None


def _given(node: ast.AST) -> list[str]:
    if isinstance(node, ast.AnnAssign):
        targets: list[ast.expr] = [node.target]
    else:
        targets = node.targets if isinstance(node, ast.Assign) else []
    names = [
        target.id for target in targets if isinstance(target, ast.Name) and isinstance(node, ast.AnnAssign)
    ]
    attributes = [
        target.attr
        for target in targets
        if isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Name)
        and target.value.id == "self"
    ]
    return names + attributes


def _module_of(found: Any, default: str) -> str:
    name = found.__name__ if inspect.ismodule(found) else getattr(found, "__module__", None)
    return name if isinstance(name, str) else default


@cache
def _packages() -> Mapping[str, list[str]]:
    return packages_distributions()


def _distribution(module_name: str) -> tuple[str | None, Path | None]:
    top = module_name.partition(".")[0]
    names = _packages().get(top)
    if not names:
        return None, None
    origin = getattr(importlib.import_module(top), "__path__", None)
    return names[0], Path(next(iter(origin))).parent if origin else None


def _relative(file: Path, root: Path | None) -> str:
    if root is not None and file.is_relative_to(root):
        return file.relative_to(root).as_posix()
    # Outside of what its distribution installs: the name alone, since places differ between machines.
    return file.name
