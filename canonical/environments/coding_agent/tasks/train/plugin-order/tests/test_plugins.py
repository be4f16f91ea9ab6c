import json
import random

from grading import same

RUN = """
import json, sys
from plugins import Registry
from plugins.errors import CircleError, UnknownPluginError
results = []
for needs in json.load(sys.stdin):
    registry, started = Registry(), []
    for name, wanted in needs.items():
        registry.register(name, lambda name=name: started.append(name), wanted)
    try:
        registry.start_all()
        results.append(["ok", registry.order(), started])
    except CircleError as error:
        results.append(["circle", error.names, started])
    except UnknownPluginError as error:
        results.append(["unknown", error.name, started])
print(json.dumps(results))
"""


def play(solution, *needs):
    result = solution.run(["python3", "-c", RUN], stdin=json.dumps(needs), timeout_s=10)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def reference(needs):
    done, left = [], dict(needs)
    while left:
        name = min(name for name, wanted in left.items() if set(wanted) <= set(done))
        done.append(name)
        del left[name]
    return done


def assert_ordered(solution, seed):
    """Plugins of which each needs at most one that needs nothing start in order; without this, nothing has been done."""
    rng = random.Random(seed)
    cases = []
    for _ in range(10):
        names = rng.sample("abcdefghij", 6)
        cases.append({name: [rng.choice(names[:3])] if at >= 3 else [] for at, name in enumerate(names)})
    for needs, (kind, names, started) in zip(cases, play(solution, *cases), strict=True):
        assert kind == "ok" and names == reference(needs) == started, needs


def test_indirect_needs(solution):
    assert_ordered(solution, 1)
    (kind, names, started), = play(solution, {"app": ["cache", "db"], "cache": ["log"], "db": ["cache", "log"], "log": []})
    assert same((kind, names, started), ("ok", ["log", "cache", "db", "app"], ["log", "cache", "db", "app"]))


def test_started_once(solution):
    assert_ordered(solution, 2)
    (kind, names, started), = play(solution, {"a": ["x", "x"], "b": ["x"], "x": []})
    assert same((kind, names, started), ("ok", ["x", "a", "b"], ["x", "a", "b"]))


def test_alphabetical(solution):
    rng = random.Random(4)
    cases = []
    for _ in range(60):
        names = rng.sample("abcdefghij", rng.randint(1, 10))
        cases.append({name: rng.sample(names[:at], rng.randint(0, min(3, at))) for at, name in enumerate(names)})
    for needs, (kind, names, started) in zip(cases, play(solution, *cases), strict=True):
        assert kind == "ok" and names == reference(needs) == started, needs


def test_circles(solution):
    assert_ordered(solution, 3)
    results = play(solution, {"b": ["c"], "c": ["a"], "a": ["b"], "z": []}, {"me": ["me"]}, {"q": ["p"], "p": ["q", "o"], "o": []})
    assert same(results[0][:2], ["circle", ["a", "b", "c", "a"]])
    assert same(results[1], ["circle", ["me", "me"], []])
    assert same(results[2][:2], ["circle", ["p", "q", "p"]])
    assert all(each[2] == [] for each in results)


def test_unknown_before_start(solution):
    assert_ordered(solution, 4)
    assert same(play(solution, {"a": [], "b": ["ghost"]}), [["unknown", "ghost", []]])


def test_large(solution):
    assert_ordered(solution, 5)
    rng = random.Random(71)
    chain = [f"n{number:06}" for number in rng.sample(range(10**6), 3000)]
    needs = {name: chain[at - 1 : at] if at else [] for at, name in enumerate(chain)}
    (kind, names, started), = play(solution, dict(rng.sample(sorted(needs.items()), 3000)))
    assert kind == "ok" and names == chain == started
