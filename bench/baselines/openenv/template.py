"""The environment that `openenv init echo_env` writes, which echoes: made of the same files of the installed package.

It is OpenEnv's own, so what can be done with it can be done with what people begin their environments with. Its `app` admits
one session at a time.
"""

from __future__ import annotations

import sys
import tempfile
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

_NAMES = {"__ENV_NAME__": "echo_env", "__ENV_CLASS_NAME__": "Echo", "__ENV_TITLE_NAME__": "Echo Env"}


def write_template(folder: Path) -> None:
    """Write the modules of the package `echo_env` into a folder that is not there yet."""
    template = files("openenv.cli.templates") / "openenv_env"
    for held, place in ((template, folder), (template / "server", folder / "server")):
        place.mkdir()
        for module in held.iterdir():
            if module.name.endswith(".py"):
                (place / _named(module.name)).write_text(_named(module.read_text("utf-8")), encoding="utf-8")


def _named(text: str) -> str:
    for placeholder, name in _NAMES.items():
        text = text.replace(placeholder, name)
    return text


# Removed when the process ends.
_FOLDER = tempfile.TemporaryDirectory(prefix="rosetta-openenv-")
write_template(Path(_FOLDER.name) / "echo_env")
sys.path.append(_FOLDER.name)

EchoEnvironment: Any = import_module("echo_env.server").EchoEnvironment
app: Any = import_module("echo_env.server.app").app
