"""The backends by name, found by scanning the folder."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

from canonical.sandbox.protocol import Backend, BackendUnavailableError

_FOLDER = Path(__file__).parent
_DEFAULT = "local"
VARIABLE = "ROSETTA_SANDBOX"


class UnknownBackendError(LookupError):
    """Report a name that no backend has, and the names that there are."""


def backend_names() -> tuple[str, ...]:
    """Return the names of the backends, sorted. Nothing is imported."""
    places = [*_FOLDER.glob("*.py"), *_FOLDER.glob("*/__init__.py")]
    return tuple(sorted(_name(path) for path in places if "\nBACKEND = " in path.read_text(encoding="utf-8")))


def load_backend(name: str | None = None) -> Backend:
    """Return a backend by name; without one, the one that `ROSETTA_SANDBOX` names, or else `local`.

    Raises:
        UnknownBackendError: No backend has that name.
        BackendUnavailableError: The package that it is built on is not installed.
    """
    wanted = name or os.environ.get(VARIABLE) or _DEFAULT
    if wanted not in backend_names():
        raise UnknownBackendError(
            f"there is no sandbox backend {wanted!r:.80}; there are {', '.join(backend_names())}"
        )
    try:
        module = importlib.import_module(f"canonical.sandbox.{wanted}")
    except ImportError as error:
        raise BackendUnavailableError(f"the sandbox backend {wanted} cannot be loaded: {error}") from error
    backend: Backend = module.BACKEND
    return backend


def _name(path: Path) -> str:
    return path.parent.name if path.name == "__init__.py" else path.stem
