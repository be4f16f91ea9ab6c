"""The catalogue: environment names to environments, found by scanning folders."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from canonical.attack import MakeAttacks
from canonical.bridge.client import SourceGoneError
from canonical.bridge.environment import bridged_environment
from canonical.bridge.wire import SCHEME
from canonical.environment import Environment

_FOLDER = Path(__file__).parent / "environments"


class UnknownEnvironmentError(LookupError):
    """Report a name or path that leads to no environment, and what exists."""


def environment_names() -> tuple[str, ...]:
    """Return the names of the environments in the catalogue, sorted. Nothing is imported."""
    return tuple(sorted(path.parent.name for path in _FOLDER.glob("*/environment.py")))


@cache
def load_environment(source: str) -> Environment[Any]:
    """Return the environment of a catalogue name, of a path to a Python file or an environment's folder, or over a bridge.

    Raises:
        UnknownEnvironmentError: There is no such environment, the file does not define exactly one, or nothing is at the
            other end of the bridge.
    """
    if source.startswith(SCHEME):
        try:
            return bridged_environment(source.removeprefix(SCHEME))
        except (SourceGoneError, ValueError) as error:
            raise UnknownEnvironmentError(str(error)) from error
    if source in environment_names():
        return _only_environment(
            importlib.import_module(f"canonical.environments.{source}.environment"), source
        )
    path = Path(source)
    try:
        path = path / "environment.py" if path.is_dir() else path
        is_there = path.is_file()
    except OSError:  # a name that the file system does not take
        is_there = False
    if not is_there and _looks_like_a_path(source):
        where = (
            f"{path} is missing" if path.suffix == ".py" else f"{path} is neither a Python file nor a folder"
        )
        raise UnknownEnvironmentError(f"there is no environment {source!r:.200}: {where!s:.300}")
    if not is_there:
        raise UnknownEnvironmentError(
            f"there is no environment {source!r:.200}; the catalogue has {', '.join(environment_names())}, "
            "and a path to an environment.py is accepted too"
        )
    return _only_environment(import_file(path.resolve()), source)


def _looks_like_a_path(source: str) -> bool:
    return "\0" not in source and ("/" in source or source.endswith(".py"))


def load_attacks(source: str) -> MakeAttacks | None:
    """Return what makes the attacks on an environment: `ATTACKS` of the `attacks.py` beside it, or None without one.

    Raises:
        UnknownEnvironmentError: There is no such environment, or its `attacks.py` cannot be imported or has no `ATTACKS`.
    """
    path = definition_path(load_environment(source)).with_name("attacks.py")
    if not path.is_file():
        return None
    make = getattr(import_file(path), "ATTACKS", None)
    if not callable(make):
        raise UnknownEnvironmentError(f"{path} defines no ATTACKS")
    attacks: MakeAttacks = make
    return attacks


def definition_path(environment: Environment[Any]) -> Path:
    """Return the Python file that defines an environment.

    Raises:
        UnknownEnvironmentError: It is not defined in a file.
    """
    return Path(inspect.getfile(type(environment).__mro__[_defined_at(environment)]))


def definition_sha256(environment: Environment[Any]) -> str:
    """Return the hash of the Python files that define an environment: its module and those beside it."""
    place = definition_path(environment)
    files = sorted(place.parent.glob("*.py")) if place.name == "environment.py" else [place]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _defined_at(environment: Environment[Any]) -> int:
    # A subclass made at run time has no file; the first class that has one is the definition.
    for index, cls in enumerate(type(environment).__mro__):
        try:
            inspect.getfile(cls)
        except (OSError, TypeError):
            continue
        return index
    raise UnknownEnvironmentError(f"{environment.name} is not defined in a file")


def import_file(path: Path) -> ModuleType:
    """Import a Python file that belongs to an environment, wherever it lies.

    Raises:
        UnknownEnvironmentError: It cannot be imported; the text says why.
    """
    name = f"rosetta_loaded_{abs(hash(path))}"
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise UnknownEnvironmentError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    try:
        specification.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise UnknownEnvironmentError(
            f"{path} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    return module


def _only_environment(module: ModuleType, source: str) -> Environment[Any]:
    defined = [
        member
        for member in vars(module).values()
        if inspect.isclass(member)
        and issubclass(member, Environment)
        and member.__module__ == module.__name__
    ]
    classes = [member for member in defined if not inspect.isabstract(member)]
    if not classes and len(defined) == 1:
        lacking = " and ".join(f"`{name}`" for name in sorted(defined[0].__abstractmethods__))
        raise UnknownEnvironmentError(
            f"{source}: {defined[0].__name__} does not define {lacking}, which every environment must"
        )
    if len(classes) != 1:
        found = ", ".join(cls.__name__ for cls in classes) or "none"
        raise UnknownEnvironmentError(
            f"{source} must define exactly one Environment class; it defines {found}"
        )
    try:
        environment: Environment[Any] = classes[0]()
    except (Exception, SystemExit) as error:
        raise UnknownEnvironmentError(
            f"{source}: {classes[0].__name__}() cannot be made: {type(error).__name__}: {error}"
        ) from error
    return environment
