"""Paragraphs of plain text."""

import textwrap


def wrap(text, width, indent=0):
    """Return the words of a text as lines of at most `width` characters, all but the first indented."""
    if width < 1 or not 0 <= indent < width:
        raise ValueError("too narrow")
    return textwrap.wrap(" ".join(text.split()), width, subsequent_indent=" " * indent, break_on_hyphens=False)
