"""Places in source, found by name and not by number, so that they stay right when lines move."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TypeAlias

from bench.facts import Code
from bench.stacks import ROOT
from canonical.adapter import Feature

Definition: TypeAlias = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class NoSuchPlace(LookupError):  # noqa: N818 - named for what it is
    """Report a place that is not there: the file, and what was looked for in it."""


@cache
def _source(file: Path) -> tuple[tuple[str, ...], ast.Module]:
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise NoSuchPlace(f"{_shown(file)}: {error.strerror}") from error
    return tuple(text.splitlines()), ast.parse(text)


def _shown(file: Path) -> str:
    return file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else file.name


def find_definition(file: Path, name: str) -> Definition:
    """Return the class or function of a qualified name; functions inside of functions count too.

    Raises:
        NoSuchPlace: There is none.
    """
    scope: ast.AST = _source(file)[1]
    for part in name.split("."):
        found = next(
            (node for node in ast.walk(scope) if isinstance(node, Definition) and node.name == part), None
        )
        if found is None:
            raise NoSuchPlace(f"{_shown(file)} defines no {name}")
        scope = found
    assert isinstance(scope, Definition)  # noqa: S101 - a name has a part
    return scope


def code_of(file: Path, name: str, text: str = "") -> Code:
    """Return the place of a definition, or of the first line in it that holds a text.

    Args:
        file: The file.
        name: A qualified name, or a name that the module assigns.
        text: What the line holds.

    Raises:
        NoSuchPlace: There is no such definition, or it does not hold the text.
    """
    lines, module = _source(file)
    try:
        node: ast.stmt = find_definition(file, name)
    except NoSuchPlace:
        assigned = next((one for one in module.body if name in _assigned(one)), None)
        if assigned is None:
            raise
        node = assigned
    first, last = node.lineno, node.end_lineno or node.lineno
    if text:
        line = next((number for number in range(first, last + 1) if text in lines[number - 1]), None)
        if line is None:
            raise NoSuchPlace(f"{_shown(file)}: {name} holds no {text!r}")
        first = last = line
    return Code(file=_shown(file), first=first, last=last, name=name, text=lines[first - 1].strip())


def _assigned(node: ast.stmt) -> list[str]:
    targets = (
        node.targets
        if isinstance(node, ast.Assign)
        else [node.target]
        if isinstance(node, ast.AnnAssign)
        else []
    )
    return [target.id for target in targets if isinstance(target, ast.Name)]


def probe_of(feature: Feature) -> Code:
    """Return the method that proves a feature in conformance.

    Raises:
        NoSuchPlace: There is none.
    """
    file = ROOT / "bench" / "features.py"
    try:
        return code_of(file, f"_Probes._{feature}")
    except NoSuchPlace:
        # What an episode shows is seen by one method for all such features.
        return code_of(file, "_Probes._shown")


def find_place(folder: Path, place: str) -> Code:
    """Return the place that an `adapter.toml` names as `module:name:text`.

    Raises:
        NoSuchPlace: It is not there.
    """
    module, _, rest = place.partition(":")
    name, _, text = rest.partition(":")
    return code_of(folder / f"{module}.py", name, text)


def line_of(file: Path, text: str) -> Code:
    """Return the first line of a file, of whatever kind, that holds a text.

    Raises:
        NoSuchPlace: No line does.
    """
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if text in line:
            return Code(file=_shown(file), first=number, last=number, text=line.strip())
    raise NoSuchPlace(f"{_shown(file)} holds no {text!r}")
