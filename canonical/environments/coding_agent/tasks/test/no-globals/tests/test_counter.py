import ast
import random

from grading import same

NAMES = ["b", "a", "a", "b", "c", "a", "c", "c", "b", "b"]


def assert_counted(solution, seed):
    """An object counts names, and the module's functions do as well; without this, nothing has been done."""
    rng = random.Random(seed)
    names = [rng.choice("abcde") for _ in range(40)]
    counts, last, expected = {}, None, []
    for name in names:
        if name != last:
            counts[name] = counts.get(name, 0) + 1
        last = name
        expected.append(counts[name])
    expected.append(sorted(counts, key=lambda name: -counts[name])[:3])
    assert same(solution.script("counter:Counter", [], [("hit", [name]) for name in names] + [("top", [3])]), expected)
    assert same(solution.calls("counter:hit", [[name] for name in names]), expected[:-1])


def test_functions_behave_as_before(solution):
    assert_counted(solution, 1)
    assert "class Counter" in solution.read("counter.py")
    code = f"import counter\nprint([counter.hit(n) for n in {NAMES!r}])\nprint(counter.top(2), counter.top(0), counter.top(9))\n"
    code += "counter.reset()\nprint(counter.top(3), counter.hit('b'), counter.hit('b'))"
    expected = "[1, 1, 1, 2, 1, 2, 2, 2, 3, 3]\n['b', 'a'] [] ['b', 'a', 'c']\n[] 1 1\n"
    assert same(solution.run(["python3", "-c", code]).stdout, expected)


def test_objects_are_apart(solution):
    assert_counted(solution, 2)
    code = "from counter import Counter\na, b = Counter(), Counter()\nprint(a.hit('x'), b.hit('x'), a.hit('y'), a.hit('x'), b.hit('x'))\n"
    code += "a.reset()\nprint(a.top(5), b.top(5), a.hit('x'))"
    assert same(solution.run(["python3", "-c", code]).stdout, "1 1 1 2 1\n[] ['x'] 1\n")
    assert same(solution.script("counter:Counter", [], [("hit", [name]) for name in NAMES] + [("top", [3])])[-1], ["b", "a", "c"])


def test_module_and_object_are_apart(solution):
    assert_counted(solution, 3)
    code = "import counter\nc = counter.Counter()\nc.hit('q')\nprint(counter.top(3))\ncounter.hit('z')\nprint(c.top(3))"
    assert same(solution.run(["python3", "-c", code]).stdout, "[]\n['q']\n")


def test_client(solution):
    assert_counted(solution, 4)
    assert "class Counter" in solution.read("counter.py")
    result = solution.run(["python3", "client.py"], stdin="x\ny\nx\n")
    assert same((result.exit_code, result.stdout), (0, "x y\n"))


def test_no_module_state(solution):
    assert_counted(solution, 5)
    tree = ast.parse(solution.read("counter.py"))
    assert not any(isinstance(node, (ast.Global, ast.Nonlocal)) for node in ast.walk(tree))
    assigned = [node for node in tree.body if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign))]
    mutable = [node for node in assigned if isinstance(node.value, (ast.Dict, ast.List, ast.Set, ast.Call, ast.DictComp, ast.ListComp))]
    assert len(mutable) <= 1
    owner = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Counter")
    for node in owner.body:
        assert not (isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, (ast.Dict, ast.List, ast.Set, ast.Call)))
    assert same(solution.run(["python3", "-c", "import counter; print(counter.hit('a'))"]).stdout, "1\n")
