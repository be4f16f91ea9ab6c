"""Find the modules that others import, by reading them, and rewrite their imports for another home."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

ROOTS = ("canonical", "adapters")
"""The top-level packages that are taken along."""

_DOTTED = re.compile(rf"(?<![\w./-])(?:{'|'.join(ROOTS)})(?:\.\w+)*")
_NAME = r"[A-Za-z0-9_]+"
_IS_NAME = re.compile(rf"{_NAME}(?:\.{_NAME})*")


class VendoringError(ValueError):
    """Report code that cannot be taken along: the file, the line, and what to write instead."""


@dataclass(frozen=True, slots=True)
class Module:
    """Hold a module: its text, and whether it is a package."""

    text: str
    is_package: bool = False

    @classmethod
    def read(cls, path: Path) -> Module:
        """Read a module from its file."""
        return cls(path.read_text(encoding="utf-8"), path.name == "__init__.py")


@dataclass(frozen=True, slots=True)
class Closure:
    """Hold the modules that code needs.

    Attributes:
        modules: By full name, sorted. The packages above a module are among them.
        foreign: Top-level name of what is not of this project -> a module that imports it.
        imported: Every full name that is imported -> a module that does.
        texts: Every text constant that is a name.
    """

    modules: Mapping[str, Module]
    foreign: Mapping[str, str]
    imported: Mapping[str, str]
    texts: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Named:
    """Hold what one module names.

    Attributes:
        imports: What it imports, with what a `from` takes out of it.
        texts: Its text constants.
        patterns: Its f-strings, as regular expressions in which every field stands for a name.
        asked: What is asked of modules whose names are put together so.
    """

    imports: frozenset[str]
    texts: frozenset[str]
    patterns: tuple[re.Pattern[str], ...] = ()
    asked: frozenset[str] = frozenset()

    def may_mean(self, name: str, module: Module) -> bool:
        """Whether a name that is put together may be that of a module: it fits, and the module has what is asked of it."""
        if not any(pattern.fullmatch(name) for pattern in self.patterns):
            return False
        return not self.asked or any(
            re.search(rf"^(?:(?:async )?def |class )?{asked}\b", module.text, re.MULTILINE)
            for asked in self.asked
        )


def modules_below(folder: Path, name: str) -> dict[str, Module]:
    """Return the modules of a package, with the packages in it, by full name; folders without `__init__.py` are no part."""
    found = {name: Module.read(folder / "__init__.py")}
    for path in sorted(folder.iterdir()):
        if path.suffix == ".py" and path.stem != "__init__":
            found[f"{name}.{path.stem}"] = Module.read(path)
        elif (path / "__init__.py").is_file():
            found |= modules_below(path, f"{name}.{path.name}")
    return found


def close_over(first: Iterable[tuple[str, str]], known: Mapping[str, Module]) -> Closure:
    """Return the modules that some code needs, however it gets hold of them.

    Besides the statements that import, a module is needed where its full name is a text (a program that is put together
    elsewhere from the texts of modules names them so), where an f-string can become its name (which is then imported), and
    where a text names its package.

    Args:
        first: Name and text of the code.
        known: Every module that may be taken along, by full name.

    Raises:
        VendoringError: A file is not Python, or imports what is not known.
    """
    taken: dict[str, Module] = {}
    imported: dict[str, str] = {}
    texts: set[str] = set()
    waiting: list[tuple[str, str]] = list(first)

    def take(module: str) -> None:
        parts = module.split(".")
        for end in range(1, len(parts) + 1):
            name = ".".join(parts[:end])
            if name not in taken:
                taken[name] = known[name]
                waiting.append((name, known[name].text))

    while waiting:
        place, text = waiting.pop()
        named = _named(place, text)
        texts |= named.texts
        for name in sorted(named.imports):
            imported.setdefault(name, place)
            if not _is_own(name):
                continue
            if (module := _module_of(name, known)) is not None:
                take(module)
            else:
                raise VendoringError(f"{place} imports {name}, which is not here")
        packages = named.texts - set(ROOTS)
        for module in known:
            is_meant = module in packages or module.rpartition(".")[0] in packages
            if is_meant or named.may_mean(module, known[module]):
                take(module)
    foreign = {name.partition(".")[0]: place for name, place in imported.items() if not _is_own(name)}
    return Closure(dict(sorted(taken.items())), foreign, imported, frozenset(texts))


def rewritten(place: str, text: str, home: str, taken: Mapping[str, Module]) -> str:
    """Return the text of a module with everything that names a module taken along saying where that is now.

    Statements that import, texts and comments are rewritten; everything else stays as it is, to the byte.

    Args:
        place: What the text is called in errors.
        text: The text.
        home: The package that `canonical` and `adapters` lie in from now on.
        taken: The modules that were taken along.

    Raises:
        VendoringError: `import canonical.x` binds a name that there is no more.
    """
    # Lines as Python counts them; other methods of texts know further ends of lines.
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)

    def offset(line: int, column: int) -> int:
        # The trees of Python count bytes.
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode("utf-8", "ignore"))

    insertions: set[int] = set()
    for node in _nodes(text):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and _is_own(node.module or ""):
            start = offset(node.lineno, node.col_offset)
            insertions.add(text.index(str(node.module), start))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _is_own(alias.name) and alias.asname is None:
                    raise VendoringError(
                        f"{place}, line {node.lineno}: `import {alias.name}` cannot be moved; "
                        f"write `from {alias.name} import ...` instead"
                    )
                if _is_own(alias.name):
                    insertions.add(offset(alias.lineno, alias.col_offset))
        elif isinstance(node, ast.JoinedStr | ast.Constant):
            start = offset(node.lineno, node.col_offset)
            stop = offset(node.end_lineno or node.lineno, node.end_col_offset or 0)
            insertions.update(_mentions(text, start, stop, taken))
    for token in tokenize.generate_tokens(io.StringIO(text).readline) if "#" in text else ():
        if token.type == tokenize.COMMENT:
            start = starts[token.start[0] - 1] + token.start[1]
            insertions.update(_mentions(text, start, start + len(token.string), taken))
    for where in sorted(insertions, reverse=True):
        text = f"{text[:where]}{home}.{text[where:]}"
    return text


def _mentions(text: str, start: int, stop: int, taken: Mapping[str, Module]) -> Iterator[int]:
    for found in _DOTTED.finditer(text, start, stop):
        # The name of a top-level package alone is a word like others, unless a field says what is meant of it.
        if _module_of(found.group(), taken) not in {None, *ROOTS} or text.startswith(".{", found.end()):
            yield found.start()


def _is_own(name: str) -> bool:
    return name.partition(".")[0] in ROOTS


def _module_of(name: str, known: Mapping[str, Module]) -> str | None:
    """Return the module that a dotted name begins with: what follows is an attribute of it."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name or None


@lru_cache(maxsize=512)
def _nodes(text: str) -> tuple[ast.AST, ...]:
    """Return what a module consists of, as far as it can name another; the same for all packages, so it is kept."""
    kinds = (ast.Import, ast.ImportFrom, ast.JoinedStr)
    return tuple(
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, kinds) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
    )


def _named(place: str, text: str) -> _Named:
    try:
        nodes = _nodes(text)
    except (SyntaxError, ValueError) as error:
        raise VendoringError(f"{place} is not Python: {error}") from None
    imports: set[str] = set()
    texts: set[str] = set()
    patterns: list[re.Pattern[str]] = []
    for node in nodes:
        match node:
            case ast.Import(names=names):
                imports.update(alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                imports.add(module)
                imports.update(f"{module}.{alias.name}" for alias in names if alias.name != "*")
            case ast.ImportFrom():
                raise VendoringError(f"{place}, line {node.lineno}: a relative import cannot be followed")
            case ast.Constant(value=str(value)) if _IS_NAME.fullmatch(value):
                texts.add(value)
            case ast.JoinedStr(values=values) if _begins_own(values):
                patterns.append(re.compile("".join(map(_pattern, values))))
    asked = _asked_of_imports(ast.parse(text)) if patterns else frozenset[str]()
    return _Named(frozenset(imports), frozenset(texts), tuple(patterns), asked)


def _asked_of_imports(tree: ast.Module) -> frozenset[str]:
    """Return the attributes that are read from what `import_module` returned for names that are put together."""

    def is_import(node: ast.AST | None) -> bool:
        match node:
            case ast.Call(
                func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"), args=[name, *_]
            ):
                return isinstance(name, ast.JoinedStr)
            case _:
                return False

    bound = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and is_import(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return frozenset(
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and (is_import(node.value) or (isinstance(node.value, ast.Name) and node.value.id in bound))
    )


def _begins_own(values: list[ast.expr]) -> bool:
    match values:
        case [ast.Constant(value=str(value)), *_]:
            return value.startswith(tuple(f"{root}." for root in ROOTS))
        case _:
            return False


def _pattern(value: ast.expr) -> str:
    return re.escape(str(value.value)) if isinstance(value, ast.Constant) else _NAME
