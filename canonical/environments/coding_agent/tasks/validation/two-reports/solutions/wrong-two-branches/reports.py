"""Two reports on the marks of a class."""


def text_report(rows):
    """Return lines `subject  average  best`, best average first."""
    return _report(rows, "text")


def html_report(rows):
    """Return a table of subject, average and best, best average first."""
    return _report(rows, "html")


def _report(rows, kind):
    groups = {}
    for name, subject, mark in rows:
        groups.setdefault(subject, []).append((mark, name))
    lines = []
    if kind == "text":
        for subject in groups:
            marks = [mark for mark, _ in groups[subject]]
            average = _mean(marks)
            best = max(marks)
            names = sorted(name for mark, name in groups[subject] if mark == best)
            lines.append((average, subject, names))
        lines.sort(key=lambda line: (-line[0], line[1]))
        return "\n".join(f"{subject:<12}{average:6.2f}  {', '.join(names)}" for average, subject, names in lines)
    for subject in groups:
        marks = [mark for mark, _ in groups[subject]]
        average = _mean(marks)
        best = max(marks)
        names = sorted(name for mark, name in groups[subject] if mark == best)
        lines.append((average, subject, names))
    lines.sort(key=lambda line: (-line[0], line[1]))
    cells = []
    for average, subject, names in lines:
        cells.append(f"<tr><td>{subject}</td><td>{average:.2f}</td><td>{', '.join(names)}</td></tr>")
    return "<table>" + "".join(cells) + "</table>"


def _mean(marks):
    return sum(marks) / len(marks)
