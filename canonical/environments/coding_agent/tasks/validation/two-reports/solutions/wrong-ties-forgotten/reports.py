"""Two reports on the marks of a class."""


def text_report(rows):
    """Return lines `subject  average  best`, best average first."""
    return "\n".join(
        f"{subject:<12}{average:6.2f}  {', '.join(names)}" for average, subject, names in _summary(rows)
    )


def html_report(rows):
    """Return a table of subject, average and best, best average first."""
    cells = [
        f"<tr><td>{subject}</td><td>{average:.2f}</td><td>{', '.join(names)}</td></tr>"
        for average, subject, names in _summary(rows)
    ]
    return "<table>" + "".join(cells) + "</table>"


def _summary(rows):
    groups = {}
    for name, subject, mark in rows:
        groups.setdefault(subject, []).append((mark, name))
    lines = []
    for subject, pairs in groups.items():
        marks = [mark for mark, _ in pairs]
        lines.append((sum(marks) / len(marks), subject, [max(pairs)[1]]))
    return sorted(lines, reverse=True)
