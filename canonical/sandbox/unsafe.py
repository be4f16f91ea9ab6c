"""No sandbox at all: the same calls, carried out by an ordinary process with all rights of whoever started it.

For machines where no backend works and every command is trusted. It is never chosen on its own.
"""

from __future__ import annotations

from canonical.sandbox.local.backend import LocalBackend
from canonical.sandbox.local.confinement import Unconfined

BACKEND = LocalBackend("unsafe", Unconfined())
