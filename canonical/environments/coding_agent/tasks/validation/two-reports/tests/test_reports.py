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


# Rows whose values tell where they are looked at. Marks are numbers of a kind of their own, and what is computed from them is, too,
# so that nobody gets at a plain number but by a division. A place is an instruction of the submission's own code; what the standard
# library does counts for the place that asked for it. The same instructions must run for plain rows as for these.
WATCHED = """
import json, math, operator, statistics, sys

OPENED, COMPUTED = set(), set()

def note(places):
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename != reports.__file__:
        frame = frame.f_back
    if frame is not None:
        places.add((id(frame.f_code), frame.f_lasti))

class Number:
    def __init__(self, value, is_average=False):
        self.value, self.is_average = value, is_average

    def __hash__(self):
        return hash(self.value)

    def __bool__(self):
        note(COMPUTED)
        return bool(self.value)

    def __round__(self, digits=None):
        return Number(round(self.value, digits), self.is_average)

    def shown(self):
        if not self.is_average:
            raise TypeError("marks are computed with, and averages alone are shown")
        return self.value

    def __format__(self, form):
        return format(self.shown(), form)

    def __str__(self):
        return str(self.shown())

    def __float__(self):
        return float(self.shown())

def plain(value):
    return value.value if type(value) is Number else value

def computing(function, is_average=False):
    def compute(self, *others):
        note(COMPUTED)
        return Number(function(self.value, *map(plain, others)), is_average or any(type(one) is Number and one.is_average for one in (self, *others)))
    return compute

def comparing(function):
    def compare(self, other):
        note(COMPUTED)
        return function(plain(self), plain(other))
    return compare

for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    function = getattr(operator, name)
    setattr(Number, f"__{name}__", computing(function, name == "truediv"))
    setattr(Number, f"__r{name}__", computing(lambda one, other, function=function: function(other, one), name == "truediv"))
for name in ("neg", "pos", "abs"):
    setattr(Number, f"__{name}__", computing(getattr(operator, name)))
for name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Number, f"__{name}__", comparing(getattr(operator, name)))

class Text(str):
    pass

for name in ("lt", "le", "gt", "ge"):
    setattr(Text, f"__{name}__", comparing(getattr(str, f"__{name}__")))

class Row(list):
    def __iter__(self):
        note(OPENED)
        return super().__iter__()

    def __getitem__(self, at):
        note(OPENED)
        return super().__getitem__(at)

def averaging(function, is_average):
    def average(numbers, *more, **named):
        numbers = list(numbers)
        result = function(map(plain, numbers), *more, **named)
        if not any(type(one) is Number for one in numbers):
            return result
        note(COMPUTED)
        return Number(result, is_average)
    return average

statistics.mean, statistics.fmean = averaging(statistics.mean, True), averaging(statistics.fmean, True)
math.fsum = averaging(math.fsum, False)

class Instances(type):
    def __instancecheck__(cls, one):
        return isinstance(one, cls.__base__)

def kept(kind):
    # Such a number stays one when it is made an int or a float.
    def new(cls, *args):
        (value,) = args or (0,)
        return Number(kind(value.value), value.is_average) if type(value) is Number else kind(*args)
    return Instances(kind.__name__, (kind,), {"__new__": new})

import reports

for kind in (int, float):
    vars(reports).setdefault(kind.__name__, kept(kind))

def played(report, rows):
    steps = set()
    def step(frame, event, _):
        if frame.f_code.co_filename != reports.__file__:
            return None
        frame.f_trace_opcodes = True
        if event in {"line", "opcode"}:
            steps.add((id(frame.f_code), frame.f_lasti))
        return step
    sys.settrace(step)
    try:
        return report(rows), steps
    finally:
        sys.settrace(None)

every, told = json.load(sys.stdin), []
for report in (reports.text_report, reports.html_report):
    OPENED.clear(), COMPUTED.clear()
    said, differ = [], set()
    for rows in [*every, *every]:
        plain_text, steps = played(report, rows)
        text, others = played(report, [Row([Text(name), Text(subject), Number(mark)]) for name, subject, mark in rows])
        said.append([plain_text, text])
        differ = {*differ, *(steps ^ others)} if len(said) > len(every) else set()
    told.append([said, sorted(OPENED), sorted(COMPUTED), sorted(differ)])
print(json.dumps([TOKEN, *told]))
"""


def places(solution):
    """For each report: where it opens rows, and where it computes with what stands in them."""
    solution.readable("reports.py")
    rng = random.Random()
    rows = [*list(every())[:8], [[rng.choice("abc"), rng.choice(("art", "maths")), rng.randint(1, 9)] for _ in range(12)]]
    # Whoever reads the rows and answers in the place of this code does not know what stands in it.
    token = rng.randint(10**9, 10**10)
    done = solution.run(["python3", "-c", f"TOKEN = {token}\n{WATCHED}"], stdin=json.dumps(rows))
    assert done.exit_code == 0, done.stderr
    known, *told = json.loads(done.stdout.splitlines()[-1])
    assert same(known, token)
    for said, _, _, differ in told:
        assert len(said) == 2 * len(rows) and all(same(plain, watched) for plain, watched in said)
        assert same(differ, []), "other code runs for other types"
    return [(opened, computed) for _, opened, computed, _ in told]


def assert_shared(solution):
    """As long as both functions open the rows themselves, or nobody can read what they do, nothing has been done."""
    (one, _), (other, _) = places(solution)
    assert one and one == other, "the reports take rows apart at different places"


MEANS = {"mean", "fmean", "truediv"}


def is_division(node):
    return isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.Div)


def averages(tree):
    """Where an average is computed: the divisions, and what stands for a function of MEANS."""
    froms = [alias for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
    names = {alias.asname or alias.name for alias in froms if alias.name in MEANS}
    for node in ast.walk(tree):
        is_name = isinstance(node, ast.Name) and node.id in names and isinstance(node.ctx, ast.Load)
        if is_division(node) or is_name or (isinstance(node, ast.Attribute) and node.attr in MEANS):
            yield node


class Shifted(ast.NodeTransformer):
    """Adds a number to an average."""

    def __init__(self, node, more):
        self.node, self.more = node, ast.Constant(more)

    def visit(self, node):
        if node is not self.node:
            return self.generic_visit(node)
        if isinstance(node, ast.AugAssign):
            return [node, ast.AugAssign(node.target, ast.Add(), self.more)]
        if isinstance(node, ast.BinOp):
            return ast.BinOp(node, ast.Add(), self.more)
        function = ast.parse("lambda *args, **named: mean(*args, **named)", mode="eval").body
        function.body.func = node
        function.body = ast.BinOp(function.body, ast.Add(), self.more)
        return function


def test_one_average(solution):
    assert_shared(solution)
    tree = ast.parse(solution.read("reports.py"))
    (node,) = averages(tree)
    assert_untied(solution)
    # Both reports show what this one place gives: with another one, both show other averages.
    rng = random.Random(31)
    more = rng.randint(100, 400)
    rows = list(every())[:20]
    code = "import json, reports, sys\nprint(json.dumps([[reports.text_report(r), reports.html_report(r)] for r in json.load(sys.stdin)]))"
    other = ast.unparse(ast.fix_missing_locations(Shifted(node, more).visit(tree)))
    done = solution.run(["python3", "-c", code], stdin=json.dumps(rows), files={"reports.py": other})
    assert same(json.loads(done.stdout), [[text(each, more), html(each, more)] for each in rows])


class Nameless(ast.NodeTransformer):
    """Forgets what variables are called."""

    def visit_Name(self, node):
        return ast.Name("_", node.ctx)

    def visit_arg(self, node):
        return ast.arg("_")


def statements(function):
    """The first lines of the statements of a function, but for those of functions in it, which stand for themselves."""
    waiting = list(Nameless().visit(function).body)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.stmt):
            yield ast.unparse(ast.fix_missing_locations(node)).splitlines()[0]
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            waiting += [each for each in ast.iter_child_nodes(node) if isinstance(each, (ast.stmt, ast.ExceptHandler, ast.match_case))]


def test_nothing_is_computed_twice(solution):
    """Marks, averages and names are computed with, compared and sorted at the same places for both reports."""
    (opened, one), (opened_too, other) = places(solution)
    assert opened and opened == opened_too, "the reports take rows apart at different places"
    assert one and one == other, "the reports compute at different places"
    source = solution.read("reports.py")
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    bodies = [list(statements(node)) for node in functions]
    for one in range(len(bodies)):
        for other in range(one + 1, len(bodies)):
            windows = {tuple(bodies[one][at : at + 5]) for at in range(len(bodies[one]) - 4)}
            assert not windows & {tuple(bodies[other][at : at + 5]) for at in range(len(bodies[other]) - 4)}
    assert_untied(solution)
