"""Two reports on the marks of a class."""


def text_report(rows):
    """Return lines `subject  average  best`, best average first."""
    _checked(rows)
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
    _checked(rows)
    marks_of, best_of = {}, {}
    for name, subject, mark in rows:
        marks_of.setdefault(subject, []).append(mark)
        best, names = best_of.get(subject, (mark, []))
        best_of[subject] = (mark, [name]) if mark > best else (best, names + [name] * (mark == best))
    means = {subject: _mean(marks) for subject, marks in marks_of.items()}
    order = sorted(means, key=lambda subject: (-means[subject], subject))
    cells = (
        f"<tr><td>{subject}</td><td>{means[subject]:.2f}</td><td>{', '.join(sorted(best_of[subject][1]))}</td></tr>"
        for subject in order
    )
    return f"<table>{''.join(cells)}</table>"


def _checked(rows):
    return [(name, subject, mark) for name, subject, mark in rows]


def _mean(marks):
    return sum(marks) / len(marks)
