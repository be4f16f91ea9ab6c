"""How far a load run has come, as a small file beside its samples: replaced as a whole, so never half-written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, ValidationError

if TYPE_CHECKING:
    from pathlib import Path

PROGRESS_FILE = "progress.json"

Stage: TypeAlias = Literal["starting", "opening", "playing", "finished"]
"""`opening` until every session has opened or failed to; then `playing`."""


class LoadProgress(BaseModel):
    """How far the generator processes have come together."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: Stage
    sessions: int
    opened: int = 0
    failed: int = 0
    """Sessions that did not open."""
    steps: int = 0
    steps_planned: int
    """Fewer come when sessions fail."""
    ended: int = 0
    """Sessions that are over."""
    elapsed_s: float = 0.0


def write_whole(file: Path, text: str) -> None:
    """Write a file so that a reader sees the old or the new content, never a part.

    Raises:
        OSError: The file system refuses.
    """
    unfinished = file.with_name(file.name + ".part")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(file)


def read_progress(folder: Path) -> LoadProgress | None:
    """Return what the generator last wrote; None when it has not written yet."""
    try:
        return LoadProgress.model_validate_json((folder / PROGRESS_FILE).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
