"""Read the optional dependencies of the distribution from the folders of adapters and libraries of tasks."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class AdapterExtras(MetadataHookInterface):
    """Offer the extras that each `adapters/*/adapter.toml` and `libraries/*/library.toml` names."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill `optional-dependencies` from `[tool.rosetta.extras]` and from the `[extras]` table of each folder."""
        root = Path(self.root)
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
        extras: dict[str, list[str]] = dict(project["tool"]["rosetta"]["extras"])
        for facts in sorted([*root.glob("adapters/*/adapter.toml"), *root.glob("libraries/*/library.toml")]):
            extras.update(tomllib.loads(facts.read_text(encoding="utf-8"))["extras"])
        metadata["optional-dependencies"] = extras
