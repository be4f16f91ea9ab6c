"""Paragraphs of plain text."""


def wrap(text, width, indent=0):
    """Return the lines of a paragraph, each at most `width` characters long."""
    if indent < 0 or width - indent < 1:
        raise ValueError("the width leaves no room")
    lines = []
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) <= width:
            line = f"{line} {word}"
            continue
        if line:
            lines.append(line)
        while len(word) > width:
            lines.append(word[:width])
            word = word[width:]
        line = word
    if line:
        lines.append(line)
    return lines[:1] + [" " * indent + other for other in lines[1:]]
