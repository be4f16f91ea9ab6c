"""The environment that `orwd init` writes, from the file of the installed `openreward`: it asks for a sum.

It is the platform's own, so what can be done with it can be done with what people begin their environments with.
`ors-sdk` holds no such file.
"""

from __future__ import annotations

import sys
import tempfile
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any


def write_template(path: Path) -> None:
    """Write the module."""
    template = files("openreward.templates.basic") / "server.py.tmpl"
    path.write_text(template.read_text("utf-8"), encoding="utf-8")


# Removed when the process ends.
_FOLDER = tempfile.TemporaryDirectory(prefix="rosetta-ors-")
write_template(Path(_FOLDER.name) / "orwd_template.py")
sys.path.append(_FOLDER.name)

BasicEnvironment: Any = import_module("orwd_template").BasicEnvironment
