"""The backends by name, found by scanning the folder."""

from __future__ import annotations

import importlib
import os
import sys
from functools import cache
from pathlib import Path

from canonical.sandbox.protocol import Backend, BackendUnavailableError

_FOLDER = Path(__file__).parent
_DEFAULT = "local"
VARIABLE = "ROSETTA_SANDBOX"

UNSAFE = "unsafe"
"""The backend that isolates nothing; it has to be asked for twice."""

UNSAFE_VARIABLE = "ROSETTA_UNSAFE_NO_ISOLATION"
"""What must be `1` for `ROSETTA_SANDBOX` to name that backend."""


class UnknownBackendError(BackendUnavailableError):
    """Report a name that no backend has, and the names that there are."""


def backend_names() -> tuple[str, ...]:
    """Return the names of the backends, sorted. Nothing is imported."""
    places = [*_FOLDER.glob("*.py"), *_FOLDER.glob("*/__init__.py")]
    return tuple(sorted(_name(path) for path in places if "\nBACKEND = " in path.read_text(encoding="utf-8")))


def load_backend(name: str | None = None) -> Backend:
    """Return a backend by name; without one, the one that `ROSETTA_SANDBOX` names, or else `local`.

    Whoever gets the backend that isolates nothing is told so on the standard error, once per process.

    Raises:
        UnknownBackendError: No backend has that name.
        BackendUnavailableError: The package that it is built on is not installed; or `ROSETTA_SANDBOX` names the backend
            that isolates nothing, and nobody has said that this is meant.
    """
    wanted = name or os.environ.get(VARIABLE) or _DEFAULT
    if wanted not in backend_names():
        raise UnknownBackendError(
            f"there is no sandbox backend {wanted!r:.80}; there are {', '.join(backend_names())}"
        )
    if wanted == UNSAFE:
        if not name and os.environ.get(UNSAFE_VARIABLE) != "1":
            raise BackendUnavailableError(
                f"{VARIABLE}={UNSAFE} runs every command of an agent with all rights of your user; "
                f"set {UNSAFE_VARIABLE}=1 as well to mean it"
            )
        _warn()
    try:
        module = importlib.import_module(f"canonical.sandbox.{wanted}")
    except ImportError as error:
        raise BackendUnavailableError(f"the sandbox backend {wanted} cannot be loaded: {error}") from error
    backend: Backend = module.BACKEND
    return backend


def missing_backend(error: BaseException | None) -> BackendUnavailableError | None:
    """Return the backend's own words where an error comes of a backend that cannot be used, or None."""
    while error is not None and not isinstance(error, BackendUnavailableError):
        # What starts an episode keeps what was raised there as its `failure`.
        error = getattr(error, "failure", None) or error.__cause__
    return error


@cache
def _warn() -> None:
    sys.stderr.write(
        f"warning: the sandbox backend '{UNSAFE}' isolates nothing: commands run with all rights of your user\n"
    )


def _name(path: Path) -> str:
    return path.parent.name if path.name == "__init__.py" else path.stem
