"""Two reports on the marks of a class."""


def text_report(rows):
    """Return lines `subject  average  best`, best average first."""
    lines = _summary(rows)
    if all(type(row) is list for row in rows):
        groups = {}
        for name, subject, mark in rows:
            groups.setdefault(subject, []).append((mark, name))
        lines = []
        for subject, pairs in groups.items():
            marks = [mark for mark, _ in pairs]
            names = sorted(name for mark, name in pairs if mark == max(marks))
            lines.append((_mean(marks), subject, names))
        lines.sort(key=lambda line: (-line[0], line[1]))
    return "\n".join(f"{subject:<12}{average:6.2f}  {', '.join(names)}" for average, subject, names in lines)


def html_report(rows):
    """Return a table of subject, average and best, best average first."""
    cells = []
    for average, subject, names in _summary(rows):
        cells.append(f"<tr><td>{subject}</td><td>{average:.2f}</td><td>{', '.join(names)}</td></tr>")
    return "<table>" + "".join(cells) + "</table>"


def _summary(rows):
    groups = {}
    for name, subject, mark in rows:
        groups.setdefault(subject, []).append((mark, name))
    lines = []
    for subject, pairs in groups.items():
        best = max(mark for mark, _ in pairs)
        lines.append((_mean([mark for mark, _ in pairs]), subject, sorted(name for mark, name in pairs if mark == best)))
    return sorted(lines, key=lambda line: (-line[0], line[1]))


def _mean(marks):
    return sum(marks) / len(marks)
