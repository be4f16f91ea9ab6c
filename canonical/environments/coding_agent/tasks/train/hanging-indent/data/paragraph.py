"""Paragraphs of plain text."""


def wrap(text, width, indent=0):
    """Return the lines of a paragraph, each at most `width` characters long.

    Words are separated by any white space in `text`, and by single spaces in the result. As many words as fit stand on
    each line. Every line but the first begins with `indent` spaces, which count towards the width. A word that is longer
    than a line is cut: the line before it is ended, and pieces of the word fill whole lines; the words after it go on
    where its last piece ends. A text without words gives no lines at all.

    Raises:
        ValueError: `indent` is negative, or `width` leaves no room for a character beside the indent.
    """
    raise NotImplementedError
