import ast
import json
import random

from grading import same


def summary(rows, more=0):
    groups = {}
    for name, subject, mark in rows:
        groups.setdefault(subject, []).append((mark, name))
    lines = []
    for subject, pairs in groups.items():
        marks = [mark for mark, _ in pairs]
        lines.append((sum(marks) / len(marks) + more, subject, sorted(name for mark, name in pairs if mark == max(marks))))
    return sorted(lines, key=lambda line: (-line[0], line[1]))


def text(rows, more=0):
    return "\n".join(f"{subject:<12}{average:6.2f}  {', '.join(names)}" for average, subject, names in summary(rows, more))


def html(rows, more=0):
    cells = [f"<tr><td>{subject}</td><td>{average:.2f}</td><td>{', '.join(names)}</td></tr>" for average, subject, names in summary(rows, more)]
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


REPORTS = ("text_report", "html_report")
WORK = {"setdefault", "defaultdict", "groupby", "sum", "max", "min", "sorted", "sort"}


def parts(tree):
    """What stands at the top of the file, by name: functions, classes, and what else is given a name there."""
    found = {}
    for node in tree.body:
        names = [node.name] if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else []
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            names = [each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
        found.update(dict.fromkeys(names, node))
    return found


def used(found, name):
    """The names of the parts that a part leads to, itself among them."""
    reached, waiting = set(), [name]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += [node.id for node in ast.walk(found[name]) if isinstance(node, ast.Name) and node.id in found]
    return reached


def hands_over(report, shared):
    """Whether a report gives its rows to what is shared, as they are, and looks at them in no other way."""
    if any(isinstance(node, ast.Name) and node.id in shared for each in report.decorator_list for node in ast.walk(each)):
        return True
    rows = report.args.args[0].arg
    given, tested = set(), set()
    for node in ast.walk(report):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in shared:
            given |= {id(each) for each in (*node.args, *(word.value for word in node.keywords))}
        if isinstance(node, (ast.If, ast.IfExp)):
            tested |= {id(node.test), id(getattr(node.test, "operand", None))}
    uses = [id(node) for node in ast.walk(report) if isinstance(node, ast.Name) and node.id == rows]
    return any(each in given for each in uses) and all(each in given | tested for each in uses)


def assert_shared(solution):
    """As long as both functions look at the rows themselves, or nobody can read what they do, nothing has been done."""
    source = solution.readable("reports.py")
    found = parts(ast.parse(source))
    shared = used(found, REPORTS[0]) & used(found, REPORTS[1])
    assert all(isinstance(found[name], ast.FunctionDef) and hands_over(found[name], shared) for name in REPORTS)


def is_division(node):
    return isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.Div)


class Shifted(ast.NodeTransformer):
    """Adds a number to what is divided."""

    def __init__(self, more):
        self.more = ast.Constant(more)

    def visit_BinOp(self, node):
        self.generic_visit(node)
        return ast.BinOp(node, ast.Add(), self.more) if is_division(node) else node

    def visit_AugAssign(self, node):
        self.generic_visit(node)
        return [node, ast.AugAssign(node.target, ast.Add(), self.more)] if is_division(node) else node


def test_one_division(solution):
    assert_shared(solution)
    tree = ast.parse(solution.read("reports.py"))
    divisions = [node for node in ast.walk(tree) if is_division(node)]
    means = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in {"mean", "fmean", "truediv"}]
    imported = [alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert len(divisions) == 1 and not means and not {"mean", "fmean", "truediv"} & set(imported)
    assert_untied(solution)
    # Both reports show what the one division gives: with another one, both show other averages.
    rng = random.Random(31)
    more = rng.randint(100, 400)
    rows = list(every())[:20]
    code = "import json, reports, sys\nprint(json.dumps([[reports.text_report(r), reports.html_report(r)] for r in json.load(sys.stdin)]))"
    other = ast.unparse(ast.fix_missing_locations(Shifted(more).visit(tree)))
    done = solution.run(["python3", "-c", code], stdin=json.dumps(rows), files={"reports.py": other})
    assert same(json.loads(done.stdout), [[text(each, more), html(each, more)] for each in rows])


class Nameless(ast.NodeTransformer):
    """Forgets what variables are called."""

    def visit_Name(self, node):
        return ast.Name("_", node.ctx)

    def visit_arg(self, node):
        return ast.arg("_")


def statements(node):
    for child in ast.walk(Nameless().visit(node)):
        if isinstance(child, ast.stmt) and child is not node:
            yield ast.unparse(ast.fix_missing_locations(child)).splitlines()[0]


def test_no_repeated_statements(solution):
    assert_shared(solution)
    source = solution.read("reports.py")
    found = parts(ast.parse(source))
    one, other = (used(found, name) for name in REPORTS)
    for name in one ^ other:
        names = {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(found[name])}
        assert not names & WORK, name
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    bodies = [list(statements(node)) for node in functions]
    for one in range(len(bodies)):
        for other in range(one + 1, len(bodies)):
            windows = {tuple(bodies[one][at : at + 5]) for at in range(len(bodies[one]) - 4)}
            assert not windows & {tuple(bodies[other][at : at + 5]) for at in range(len(bodies[other]) - 4)}
    assert_untied(solution)
