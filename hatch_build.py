"""Read the optional dependencies of the distribution from the adapter folders."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class AdapterExtras(MetadataHookInterface):
    """Offer one extra per framework package line named in `adapters/*/adapter.toml`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill `optional-dependencies` from `[tool.rosetta.extras]` and from every adapter's `[extras]` table."""
        root = Path(self.root)
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
        extras: dict[str, list[str]] = dict(project["tool"]["rosetta"]["extras"])
        for facts in sorted(root.glob("adapters/*/adapter.toml")):
            extras.update(tomllib.loads(facts.read_text(encoding="utf-8"))["extras"])
        metadata["optional-dependencies"] = extras
