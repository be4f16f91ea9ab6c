"""Programs of this project that run inside sandboxes, where it is not installed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path

# Whatever lies in the folder where the program starts must not be found before the standard library.
_START = """\
import sys
sys.path[:] = [place for place in sys.path if place]
import types
for name, text in {modules!r}:
    module = types.ModuleType(name)
    module.__path__ = []
    sys.modules[name] = module
    exec(compile(text, "<" + name + ">", "exec"), module.__dict__)
{aliases}
sys.modules[{main!r}].main()
"""


@cache
def python_program(
    modules: tuple[str, ...], aliases: tuple[tuple[str, str], ...] = (), *, with_packages: bool = False
) -> tuple[str, ...]:
    """Return the command that runs modules of this project in a sandbox: `main()` of the last one.

    Args:
        modules: Full names, each after those that it imports. They import the standard library and each other alone.
        aliases: Pairs of a further name and the module that is imported by it.
        with_packages: Whether packages installed in the sandbox can be imported, too; it starts faster without.
    """
    texts = [(package, "") for package in _packages(modules)]
    texts += [(module, _text(module)) for module in modules]
    lines = "\n".join(f"sys.modules[{alias!r}] = sys.modules[{module!r}]" for alias, module in aliases)
    program = _START.format(modules=texts, aliases=lines, main=modules[-1])
    return ("python3", *(() if with_packages else ("-S",)), "-s", "-B", "-c", program)


def _packages(modules: Sequence[str]) -> list[str]:
    packages: dict[str, None] = {}
    for module in modules:
        parts = module.split(".")
        packages.update(dict.fromkeys(".".join(parts[:count]) for count in range(1, len(parts))))
    return list(packages)


def _text(module: str) -> str:
    package, _, name = module.rpartition(".")
    return Path(str(resources.files(package) / f"{name}.py")).read_text(encoding="utf-8")
