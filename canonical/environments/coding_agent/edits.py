"""Edits of a text: what is replaced by what, and why not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MAX_RESULT = 4 << 20
"""The most characters that a text may have after an edit: a short text in the place of many can fill any memory."""

MANY = 100
"""How many occurrences are counted. In a text that repeats itself, each takes as long as reading the rest of it."""


class Edit(BaseModel):
    """Replace one text by another."""

    model_config = ConfigDict(extra="forbid")

    old: Annotated[str, Field(description="The text to replace, exactly as it stands in the file.")]
    new: Annotated[str, Field(description="The text to put in its place.")]
    replace_all: Annotated[bool, Field(description="Replace every occurrence instead of the only one.")] = (
        False
    )


class EditError(ValueError):
    """Say why an edit cannot be made."""


def apply_edit(text: str, edit: Edit) -> tuple[str, int]:
    """Return the text after an edit, and how many occurrences it replaced.

    Occurrences are replaced from the left and do not overlap. Whether the old text is unique is another question, for
    which overlapping occurrences count: `aa` stands twice in `aaa`.

    Raises:
        EditError: The old text is empty, absent, not unique, or the same as the new one; or the result is too large.
    """
    if not edit.old:
        raise EditError("the old text is empty; to make a file, use write")
    if edit.old == edit.new:
        raise EditError("the old and the new text are the same")
    if edit.replace_all:
        count = text.count(edit.old)
    else:
        count, start = 0, text.find(edit.old)
        while start >= 0 and count < MANY:
            count, start = count + 1, text.find(edit.old, start + 1)
    if not count:
        raise EditError(f"the old text does not occur in the file{_hint(text, edit.old)}")
    if count > 1 and not edit.replace_all:
        raise EditError(
            f"the old text occurs {count if count < MANY else f'{MANY} or more'} times in the file; give more of what stands around it, or set replace_all"
        )
    size = len(text) + count * (len(edit.new) - len(edit.old))
    if size > max(MAX_RESULT, len(text)):
        raise EditError(
            f"the file would have {size} characters, and {MAX_RESULT} is the most that an edit may leave"
        )
    return text.replace(edit.old, edit.new), count


def _hint(text: str, old: str) -> str:
    """Say why an old text is absent that looks as if it were there: its lines end in another way."""
    if old.replace("\r\n", "\n") not in text.replace("\r\n", "\n"):
        return ""
    if "\r\n" in text:
        return "; it does with other line ends: there, lines of the file end with \\r\\n (CRLF)"
    return "; it does with other line ends: lines of the file end with \\n, not with \\r\\n (CRLF)"


def apply_edits(text: str, edits: Sequence[Edit]) -> tuple[str, list[int]]:
    """Return the text after edits, each made on what the one before left, and what each replaced.

    Raises:
        EditError: One of them cannot be made; of several, its number is said, counted from 1.
    """
    counts = []
    for number, edit in enumerate(edits, start=1):
        try:
            text, count = apply_edit(text, edit)
        except EditError as error:
            place = f"edit {number} of {len(edits)}: " if len(edits) > 1 else ""
            raise EditError(f"{place}{error}") from None
        counts.append(count)
    return text, counts
