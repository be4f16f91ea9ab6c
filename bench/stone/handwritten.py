"""What code one writes: base class, tool, reward and entry point of the hand-written Wordles, read from their source.

Nothing is run. A concept is a name of the framework that the file uses: imported by itself, or reached through an imported
module. Names of other packages that the framework makes an author use are counted apart.
"""

from __future__ import annotations

import ast
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import JsonValue

from bench.facts import Code, Fact
from bench.stacks import ROOT
from bench.stone.places import Definition, NoSuchPlace, code_of, find_definition
from bench.stone.subject import Subject
from canonical.stone import Handwritten

TABLE = "code"
BASELINES = ROOT / "bench" / "baselines"
FILE = "wordle.py"

_DATA = {"canonical"}
"""The word lists, which all of them read from the same place."""


def gather(subject: Subject) -> list[Fact]:
    """Return what the hand-written environment of a framework consists of.

    Raises:
        NoSuchPlace: The file does not hold what `adapter.toml` says.
    """
    said, file = subject.stone.handwritten, BASELINES / subject.name / FILE
    if said is None or not file.is_file():
        return []
    whole = _whole(file)
    own = {name.partition(".")[0] for name in subject.stack.facts.imports} & _modules(subject)
    names = used_names(file)
    theirs = sorted(name for name in names if name.partition(".")[0] in own)
    others = sorted(name for name in names if name.partition(".")[0] not in own | _DATA)
    shown = [
        ("base class", *_class_line(file, said)),
        ("tool declaration", *_signature_of(file, said.tool)),
        ("what gives the reward", *_signature_of(file, said.reward)),
        ("entry point", *_entry(file, said)),
    ]
    counts: list[tuple[str, str, JsonValue]] = [
        ("files", "1", 1),
        ("lines with code", str(code_lines(file)), code_lines(file)),
        ("concepts of the framework", _counted(theirs), list(theirs)),
        ("names of other packages", _counted(others), list(others)),
    ]
    return [
        *(subject.fact(TABLE, row, value, "introspected", [place]) for row, value, place in shown),
        *(subject.fact(TABLE, row, value, "introspected", [whole], data) for row, value, data in counts),
    ]


def _counted(names: list[str]) -> str:
    short = [name.rpartition(".")[2] for name in names]
    return f"{len(names)}: {', '.join(short)}" if names else "0"


def _modules(subject: Subject) -> set[str]:
    """Top-level modules of the framework's own distributions, whichever of them are installed."""
    packages = {release.package for release in subject.stack.facts.releases}
    return {
        symbol.name.partition(":")[0].partition(".")[0]
        for symbol in subject.symbols.values()
        if symbol.distribution.partition(" ")[0] in packages
    }


def _whole(file: Path) -> Code:
    last = len(file.read_text(encoding="utf-8").splitlines())
    return Code(file=file.relative_to(ROOT).as_posix(), first=1, last=last, name=file.stem)


def code_lines(file: Path) -> int:
    """Count the lines that hold code: neither empty, nor a comment or documentation alone."""
    documentation = {
        number
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, Definition | ast.Module) and ast.get_docstring(node) is not None
        for number in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    skipped = {
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
        tokenize.ENDMARKER,
    }  # fmt: skip
    with file.open("rb") as source:
        held = {
            number
            for token in tokenize.tokenize(source.readline)
            if token.type not in skipped
            for number in range(token.start[0], token.end[0] + 1)
        }
    return len(held - documentation)


def used_names(file: Path) -> set[str]:
    """Return every name that a file uses of packages outside the standard library, with its module.

    A name is `module.name`, as it was imported, or as it is reached through an imported module: `gem.Env`. What is imported
    only when another import fails is another release's name for the same, and counts once.
    """
    tree = ast.parse(file.read_text(encoding="utf-8"))
    modules: dict[str, str] = {}
    found: set[str] = set()
    second = {
        node
        for handler in ast.walk(tree)
        if isinstance(handler, ast.ExceptHandler)
        for node in ast.walk(handler)
    }
    for node in ast.walk(tree):
        if node in second:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                modules[alias.asname or alias.name.partition(".")[0]] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and _is_foreign(node.module):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    foreign = {name: module for name, module in modules.items() if _is_foreign(module)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in foreign:
            found.add(f"{foreign[node.value.id]}.{node.attr}")
    return found


def _is_foreign(module: str) -> bool:
    return module.partition(".")[0] not in sys.stdlib_module_names


def _class_line(file: Path, said: Handwritten) -> tuple[str, Code]:
    node = find_definition(file, said.environment)
    if not isinstance(node, ast.ClassDef):
        raise NoSuchPlace(f"{file.name}: {said.environment} is no class")
    return f"class {node.name}({', '.join(map(ast.unparse, node.bases))})", code_of(file, said.environment)


def _signature_of(file: Path, name: str) -> tuple[str, Code]:
    node = find_definition(file, name)
    decorated = [f"@{ast.unparse(one)}" for one in node.decorator_list]
    if isinstance(node, ast.ClassDef):
        return "\n".join([*decorated, f"class {node.name}"]), code_of(file, name)
    kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    returns = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    return "\n".join([*decorated, f"{kind} {node.name}({ast.unparse(node.args)}){returns}"]), code_of(
        file, name
    )


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from node.body


def _entry(file: Path, said: Handwritten) -> tuple[str, Code]:
    text = file.read_text(encoding="utf-8")
    for node in _statements(ast.parse(text).body):
        written = ast.unparse(node)
        if written.startswith(said.entry) and not isinstance(node, Definition):
            place = Code(
                file=file.relative_to(ROOT).as_posix(), first=node.lineno, last=node.end_lineno or node.lineno,
                name=said.entry, text=text.splitlines()[node.lineno - 1].strip(),
            )  # fmt: skip
            return written, place
    raise NoSuchPlace(f"{file.name} has no statement that begins with {said.entry!r}")
