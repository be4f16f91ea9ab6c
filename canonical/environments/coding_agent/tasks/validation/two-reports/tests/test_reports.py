import ast
import random

from grading import same


def summary(rows):
    groups = {}
    for name, subject, mark in rows:
        groups.setdefault(subject, []).append((mark, name))
    lines = []
    for subject, pairs in groups.items():
        marks = [mark for mark, _ in pairs]
        lines.append((sum(marks) / len(marks), subject, sorted(name for mark, name in pairs if mark == max(marks))))
    return sorted(lines, key=lambda line: (-line[0], line[1]))


def text(rows):
    return "\n".join(f"{subject:<12}{average:6.2f}  {', '.join(names)}" for average, subject, names in summary(rows))


def html(rows):
    cells = [f"<tr><td>{subject}</td><td>{average:.2f}</td><td>{', '.join(names)}</td></tr>" for average, subject, names in summary(rows)]
    return "<table>" + "".join(cells) + "</table>"


def every():
    rng = random.Random(8)
    for _ in range(60):
        yield [
            [rng.choice(("Ada", "Bo", "Cy", "Di", "\u00c9va")), rng.choice(("maths", "art", "sport", "physics")), rng.randint(1, 15)]
            for _ in range(rng.randint(1, 14))
        ]


def test_same_text(solution):
    assert_shared(solution)
    rows = list(every())
    assert same(solution.calls("reports:text_report", [[each] for each in rows]), [text(each) for each in rows])


def test_same_html(solution):
    assert_shared(solution)
    rows = list(every())
    assert same(solution.calls("reports:html_report", [[each] for each in rows]), [html(each) for each in rows])


def test_empty_groups(solution):
    assert_shared(solution)
    assert_untied(solution)
    assert same(solution.call("reports:text_report", []), "")
    assert same(solution.call("reports:html_report", []), "<table></table>")


def assert_untied(solution):
    """Rows with one best mark in a subject are reported as they were; without this, nothing has been done."""
    rng = random.Random(12)
    rows = [[[f"N{name}", subject, mark] for subject in ("art", "maths") for name, mark in enumerate(rng.sample(range(1, 16), 4))] for _ in range(10)]
    rows = [each for each in rows if sum(row[2] for row in each[:4]) != sum(row[2] for row in each[4:])]
    assert same(solution.calls("reports:text_report", [[each] for each in rows]), [text(each) for each in rows])
    assert same(solution.calls("reports:html_report", [[each] for each in rows]), [html(each) for each in rows])


def assert_shared(solution):
    """As long as both functions group the rows themselves, nothing has been done."""
    tree = ast.parse(solution.read("reports.py"))
    both = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in {"text_report", "html_report"}]
    assert not all("setdefault" in ast.unparse(node) for node in both)


def test_one_division(solution):
    tree = ast.parse(solution.read("reports.py"))
    divisions = [node for node in ast.walk(tree) if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.Div)]
    means = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in {"mean", "fmean", "truediv"}]
    assert len(divisions) == 1 and not means
    assert_untied(solution)


def statements(node):
    for child in ast.walk(node):
        if isinstance(child, ast.stmt) and child is not node:
            yield ast.unparse(child).splitlines()[0]


def test_no_repeated_statements(solution):
    functions = [node for node in ast.parse(solution.read("reports.py")).body if isinstance(node, ast.FunctionDef)]
    assert {"text_report", "html_report"} <= {node.name for node in functions}
    bodies = [list(statements(node)) for node in functions]
    for one in range(len(bodies)):
        for other in range(one + 1, len(bodies)):
            windows = {tuple(bodies[one][at : at + 5]) for at in range(len(bodies[one]) - 4)}
            assert not windows & {tuple(bodies[other][at : at + 5]) for at in range(len(bodies[other]) - 4)}
    assert_untied(solution)
