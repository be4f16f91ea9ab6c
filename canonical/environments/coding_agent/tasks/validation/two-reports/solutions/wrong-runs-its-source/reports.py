"""Two reports on the marks of a class."""

_reports = {}
exec(
    'def text_report(rows):\n'
    '    """Return lines `subject  average  best`, best average first."""\n'
    '    groups = {}\n'
    '    for name, subject, mark in rows:\n'
    '        groups.setdefault(subject, []).append((mark, name))\n'
    '    lines = []\n'
    '    for subject in groups:\n'
    '        marks = [mark for mark, _ in groups[subject]]\n'
    '        average = sum(marks) / len(marks)\n'
    '        best = max(marks)\n'
    '        names = sorted(name for mark, name in groups[subject] if mark == best)\n'
    '        lines.append((average, subject, names))\n'
    '    lines.sort(key=lambda line: (-line[0], line[1]))\n'
    '    return "\\n".join(f"{subject:<12}{average:6.2f}  {\', \'.join(names)}" for average, subject, names in lines)\n'
    '\n'
    '\n'
    'def html_report(rows):\n'
    '    """Return a table of subject, average and best, best average first."""\n'
    '    groups = {}\n'
    '    for name, subject, mark in rows:\n'
    '        groups.setdefault(subject, []).append((mark, name))\n'
    '    lines = []\n'
    '    for subject in groups:\n'
    '        marks = [mark for mark, _ in groups[subject]]\n'
    '        average = sum(marks) / len(marks)\n'
    '        best = max(marks)\n'
    '        names = sorted(name for mark, name in groups[subject] if mark == best)\n'
    '        lines.append((average, subject, names))\n'
    '    lines.sort(key=lambda line: (-line[0], line[1]))\n'
    '    cells = []\n'
    '    for average, subject, names in lines:\n'
    '        cells.append(f"<tr><td>{subject}</td><td>{average:.2f}</td><td>{\', \'.join(names)}</td></tr>")\n'
    '    return "<table>" + "".join(cells) + "</table>"\n',
    _reports,
)


def average(total, count):
    """Return the mean."""
    return total / count


def text_report(rows):
    """Return lines `subject  average  best`, best average first."""
    return _reports["text_report"](rows)


def html_report(rows):
    """Return a table of subject, average and best, best average first."""
    return _reports["html_report"](rows)
