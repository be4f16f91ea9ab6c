"""What of an agent's workspace is graded: an allow-list of plain files over what the task gave."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from canonical.pattern import matches
from canonical.sandbox.protocol import Snapshot

MAX_FILES = 2_000
MAX_FILE_BYTES = 4 << 20
MAX_BYTES = 16 << 20

_NEVER = frozenset(
    {"conftest.py", "pytest.ini", "tox.ini", "setup.cfg", "sitecustomize.py", "usercustomize.py"}
)
_NEVER_SUFFIXES = (".pth", ".pyc", ".pyo", ".pytest_cache")
_NEVER_FOLDERS = frozenset({"__pycache__", ".pytest_cache", ".git"})


class SubmissionError(ValueError):
    """Report a workspace that is too large to be graded, and what to remove."""


def may_be_carried(path: str, patterns: Sequence[str]) -> bool:
    """Return whether a file of this path is carried into grading.

    It must match one of the patterns, have a name in which nothing is hidden (no control characters, and no characters
    that look like others under Unicode's compatibility forms), and be none of the files that change how Python or a
    test program starts.
    """
    parts = path.split("/")
    return (
        path.isprintable()
        and "\\" not in path
        and unicodedata.normalize("NFKC", path) == path
        and all(part not in {"", ".", ".."} and part == part.strip() for part in parts)
        and parts[-1] not in _NEVER
        and not parts[-1].endswith(_NEVER_SUFFIXES)
        and not _NEVER_FOLDERS.intersection(parts)
        and any(matches(pattern, path) for pattern in patterns)
    )


def submission(workspace: Snapshot, given: Snapshot, patterns: Sequence[str]) -> Snapshot:
    """Return the files to grade: those of the workspace that may be carried, laid over what the task gave.

    A given file that may be carried and is gone from the workspace is gone; any other given file is as it was, and stays
    when the agent has put a folder in its place.

    Args:
        workspace: The agent's workspace at the end.
        given: What the task put there at the start.
        patterns: Globs of the files that the agent's solution consists of.

    Raises:
        SubmissionError: The files are too many or too large.
    """
    carried = {path: data for path, data in workspace.files.items() if may_be_carried(path, patterns)}
    if len(carried) > MAX_FILES:
        raise SubmissionError(f"the solution has {len(carried)} files; at most {MAX_FILES} are graded")
    for path, data in carried.items():
        if len(data) > MAX_FILE_BYTES:
            raise SubmissionError(
                f"{path} has {len(data)} bytes; a file of at most {MAX_FILE_BYTES} is graded"
            )
    total = sum(map(len, carried.values()))
    if total > MAX_BYTES:
        raise SubmissionError(f"the solution has {total} bytes; at most {MAX_BYTES} are graded")
    kept = {path: data for path, data in given.files.items() if not may_be_carried(path, patterns)}
    folders = {folder for path in kept for folder in _folders(path)}
    carried = {
        path: data
        for path, data in carried.items()
        if path not in folders and not any(folder in kept for folder in _folders(path))
    }
    executable = {path for path in kept if path in given.executable}
    executable |= {path for path in carried if path in workspace.executable}
    return Snapshot(files={**kept, **carried}, executable=frozenset(executable))


def _folders(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]
