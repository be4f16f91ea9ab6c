"""Make a session for the target that the installed release of Verifiers has."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from adapters.verifiers.compiler import targets
from canonical.adapter import Session


def make_session(compiled: Any) -> Session:
    """Return a session over what `compiler.compile_environment` returned."""
    session: Session = import_module(f"adapters.verifiers.{targets()[0]}_session").make_session(compiled)
    return session
