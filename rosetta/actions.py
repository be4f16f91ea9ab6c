"""The files of `rosetta rollout --actions`: actions one per line, or transcripts one per line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from canonical.strict_json import read_json
from canonical.transcript import Action, Transcript, action_from_json

ReadT = TypeVar("ReadT")


class ActionsError(ValueError):
    """Report a file that holds no actions or no transcripts: the file, the line, the reason."""


def read_actions(path: Path) -> list[Action]:
    """Read actions, one per line: a call as JSON with `name` and `arguments`, or a JSON text.

    Raises:
        ActionsError: The file cannot be read, is empty, or a line of it is no action.
    """
    return list(
        _each(
            path,
            lambda line: action_from_json(read_json(line)),
            "transcripts are played with --policy replay",
        )
    )


def read_transcripts(path: Path) -> list[Transcript]:
    """Read transcripts, one per line, as `rosetta rollout --out` writes them.

    Raises:
        ActionsError: The file cannot be read, is empty, or a line of it is no transcript.
    """
    return list(_each(path, Transcript.from_line, "actions are played with --policy scripted"))


def _each(path: Path, read: Callable[[str], ReadT], other: str) -> Iterator[ReadT]:
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise ActionsError(f"{path} is not text: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise ActionsError(f"{path} cannot be read: {error.strerror}") from error
    rows = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not rows:
        raise ActionsError(f"{path} is empty")
    for number, line in rows:
        try:
            yield read(line)
        except ValueError as error:
            raise ActionsError(f"{path}, line {number}: {error}; {other}") from error
