"""Sandboxes on this machine: bubblewrap around a small program that serves files and starts commands."""

from __future__ import annotations

from canonical.sandbox.local.backend import LocalBackend, LocalSandbox
from canonical.sandbox.local.confinement import Bubblewrap

__all__ = ["BACKEND", "LocalBackend", "LocalSandbox"]

BACKEND = LocalBackend("local", Bubblewrap())
