"""Paragraphs of plain text."""


def wrap(text, width, indent=0):
    """Return the lines of a paragraph, each at most `width` characters long."""
    if indent < 0 or width - indent < 1:
        raise ValueError("the width leaves no room")
    lines = []
    line = None
    for word in text.split():
        if line is not None and len(line) + 1 + len(word) <= width:
            line = f"{line} {word}"
            continue
        if line is not None:
            lines.append(line)
        line = " " * (indent if lines else 0) + word
    if line is not None:
        lines.append(line)
    return lines
