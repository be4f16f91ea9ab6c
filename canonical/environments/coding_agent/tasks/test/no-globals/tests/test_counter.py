import ast
import json
import random

from grading import same

NAMES = ["b", "a", "a", "b", "c", "a", "c", "c", "b", "b"]


def counted(names):
    """What `hit` answers to these names, and what `top` says then."""
    counts, last, answers = {}, None, []
    for name in names:
        if name != last:
            counts[name] = counts.get(name, 0) + 1
        last = name
        answers.append(counts[name])
    return answers, sorted(counts, key=lambda name: -counts[name])


def assert_counted(solution, seed):
    """An object counts names, and the module's functions do as well, by code that can be read; without this, nothing has been done."""
    solution.readable("counter.py")
    rng = random.Random(seed)
    names = [rng.choice("abcde") for _ in range(40)]
    answers, order = counted(names)
    calls = [("hit", [name]) for name in names]
    assert same(solution.script("counter:Counter", [], [*calls, ("top", [3])]), [*answers, order[:3]])
    assert same(solution.calls("counter:hit", [[name] for name in names]), answers)


def assert_functions_use_a_counter(solution, seed):
    """The functions answer what a Counter answers: where Counters tell other numbers, so do the functions."""
    rng = random.Random(seed)
    more, names = rng.randint(1000, 9999), [rng.choice("abcde") for _ in range(30)]
    tree = ast.parse(solution.read("counter.py"))
    (at,) = [at for at, node in enumerate(tree.body) if isinstance(node, ast.ClassDef) and node.name == "Counter"]
    told = f"(lambda told: lambda *a, **k: told(*a, **k) + {{}})(Counter.{{}})"
    change = f"Counter.hit = {told.format(more, 'hit')}\nCounter.top = {told.format([more], 'top')}"
    tree.body[at + 1 : at + 1] = ast.parse(change).body
    code = "import counter, json, sys\nprint(json.dumps([[counter.hit(name) for name in json.load(sys.stdin)], counter.top(9)]))"
    done = solution.run(["python3", "-c", code], stdin=json.dumps(names), files={"counter.py": ast.unparse(tree)})
    answers, order = counted(names)
    assert same(json.loads(done.stdout), [[answer + more for answer in answers], [*order, more]])


AGAIN = """
import copy, gc, json, sys, types
import counter

def attributes(one):
    kinds = [vars(kind) for kind in type(one).__mro__ if "__slots__" in vars(kind)]
    slots = [name for each in kinds for name, value in each.items() if type(value) is types.MemberDescriptorType]
    return {name: getattr(one, name) for name in [*getattr(one, "__dict__", ()), *slots] if hasattr(one, name)}

def play(names):
    return [[counter.hit(name) for name in names], counter.top(9)]

first, second = json.load(sys.stdin)
counter.top(0)
(one,) = [each for each in gc.get_objects() if type(each) is counter.Counter]
before = copy.deepcopy((attributes(one), dict(one) if isinstance(one, dict) else {}))
results = [play(first)]
for name in set(attributes(one)) - set(before[0]):
    delattr(one, name)
for name, value in before[0].items():
    setattr(one, name, value)
if isinstance(one, dict):
    one.clear()
    one.update(before[1])
print(json.dumps([*results, play(second)]))
"""


def assert_state_is_in_one_object(solution, seed):
    """There is one Counter, and whoever puts it back to its beginning has put back everything."""
    rng = random.Random(seed)
    first, second = ([rng.choice("abcde") for _ in range(30)] for _ in range(2))
    done = solution.run(["python3", "-c", AGAIN], stdin=json.dumps([first, second]))
    assert done.exit_code == 0, done.stderr
    assert same(json.loads(done.stdout), [list(counted(names)) for names in (first, second)])


def test_functions_behave_as_before(solution):
    assert_counted(solution, 1)
    assert_functions_use_a_counter(solution, 11)
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
    assert_functions_use_a_counter(solution, 14)
    result = solution.run(["python3", "client.py"], stdin="x\ny\nx\n")
    assert same((result.exit_code, result.stdout), (0, "x y\n"))


def test_no_module_state(solution):
    assert_counted(solution, 5)
    tree = ast.parse(solution.read("counter.py"))
    assert not any(isinstance(node, ast.Global) for node in ast.walk(tree))
    assert_functions_use_a_counter(solution, 15)
    assert_state_is_in_one_object(solution, 16)
