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
import copy, dataclasses, enum, functools, gc, json, logging, operator, re, sys, types
import counter

CONSTANTS = (
    type(None), bool, int, float, complex, str, bytes, range, object, type(...), type(NotImplemented), types.ModuleType, re.Pattern,
    types.GenericAlias, types.UnionType, types.MethodDescriptorType, types.WrapperDescriptorType,
    operator.itemgetter, operator.attrgetter, operator.methodcaller, functools.lru_cache(len).__class__, logging.Logger,
)
VALUES = {"datetime": ("date", "datetime", "time", "timedelta", "timezone"), "decimal": ("Decimal",), "fractions": ("Fraction",)}
OF_PYTHON = (
    "__annotate__", "__annotate_func__", "__annotations__", "__builtins__", "__cached__", "__conditional_annotations__", "__file__",
    "__loader__", "__package__", "__spec__",
)

def is_fixed(value):
    # Whether a variable with this value holds no state, but for that of the one Counter.
    kind = type(value)
    if value is one or kind in CONSTANTS or isinstance(value, (type, enum.Enum)) or kind.__name__ in VALUES.get(kind.__module__, ()):
        return True
    if kind.__module__ in ("typing", "typing_extensions", "__future__"):
        return True
    if isinstance(value, (tuple, frozenset)):
        return all(map(is_fixed, value))
    if kind is types.MappingProxyType:
        return all(map(is_fixed, value.values()))
    if kind is types.FunctionType:
        return all(map(is_fixed, vars(value).values()))
    if isinstance(value, (types.MethodType, types.BuiltinFunctionType)):
        return is_fixed(value.__self__)
    if kind is functools.partial:
        return all(map(is_fixed, (value.func, *value.args, *value.keywords.values())))
    if dataclasses.is_dataclass(value) and kind.__dataclass_params__.frozen:
        return all(map(is_fixed, attributes(value).values()))
    return kind.__module__ == "counter" and kind.__bases__ == (object,) and not attributes(value)

def variables():
    for name, value in vars(counter).items():
        is_list_of_names = name == "__all__" and type(value) in (list, tuple) and all(type(each) is str for each in value)
        was_there = name in ("_counts", "_order", "_last") and value is not one
        if was_there or not (name in OF_PYTHON or is_list_of_names or is_fixed(value)):
            yield name

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
print(json.dumps([TOKEN, [*results, play(second)], sorted(variables())]))
"""


def assert_state_is_in_one_object(solution, seed):
    """There is one Counter, whoever puts it back to its beginning has put back everything, and no other variable could hold a state."""
    rng = random.Random(seed)
    first, second = ([rng.choice("abcde") for _ in range(30)] for _ in range(2))
    # Whoever reads the names and answers in the place of this code does not know what stands in it.
    token = random.randint(10**9, 10**10)
    done = solution.run(["python3", "-c", f"TOKEN = {token}\n{AGAIN}"], stdin=json.dumps([first, second]))
    assert done.exit_code == 0, done.stderr
    known, answers, variables = json.loads(done.stdout)
    assert same([known, answers], [token, [list(counted(names)) for names in (first, second)]])
    assert same(variables, []), f"module variables that may hold a state: {variables}"


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
