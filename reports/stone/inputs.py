"""What the site shows beside the facts: hand-written environments as they stand, published runs, the published ports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.porting.records import PortMatrix
    from bench.records import Run

_WRITTEN_BY_AUTHORS = "wordle*.py"
"""Which files are the hand-written environment; others let a worker drive it, or are sources of other people."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of source.

    Attributes:
        path: Relative to the checkout, with slashes.
        text: What it holds.
    """

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """A run that is committed with its report.

    Attributes:
        folder: Its folder under `reports/published`.
        run: Its records.
    """

    folder: str
    run: Run

    @property
    def framework(self) -> str:
        """Folder name of the adapter."""
        return self.run.header.adapter


@dataclass(frozen=True, slots=True)
class Inputs:
    """Hold what the site is made of beside the facts.

    Attributes:
        handwritten: Folder name of the adapter -> the files of its hand-written environment.
        runs: The published runs, by folder.
        ports: The published matrix of ports, where there is one.
    """

    handwritten: Mapping[str, tuple[SourceFile, ...]]
    runs: tuple[PublishedRun, ...]
    ports: PortMatrix | None = None


NOTHING = Inputs({}, ())
"""No source and no runs: the site says that it has none."""


def read_inputs(checkout: Path) -> Inputs:
    """Read the hand-written environments, the published runs and the published ports of a checkout.

    Raises:
        RunError: The records of a published run cannot be used.
        PortError: The published matrix of ports cannot be used.
    """
    # Records need numpy and pyarrow, and whoever only asks for a table needs neither.
    from bench.porting.records import MATRIX_FILE, read_matrix  # noqa: PLC0415
    from bench.records import RECORDS_FILE, read_run  # noqa: PLC0415

    handwritten = {
        folder.name: tuple(
            SourceFile(file.relative_to(checkout).as_posix(), file.read_text(encoding="utf-8"))
            for file in sorted(folder.glob(_WRITTEN_BY_AUTHORS))
        )
        for folder in sorted((checkout / "bench" / "baselines").iterdir())
        if (folder / "__init__.py").is_file()
    }
    published = checkout / "reports" / "published"
    ports = published / "ports" / MATRIX_FILE
    return Inputs(
        handwritten,
        tuple(
            PublishedRun(file.parent.name, read_run(file.parent))
            for file in sorted(published.glob(f"*/{RECORDS_FILE}"))
        ),
        read_matrix(ports) if ports.is_file() else None,
    )
