import json
import random
from bisect import bisect_left, insort
from collections import deque

from grading import SolutionError, same


def maxima(values, width):
    return [max(values[at : at + width]) for at in range(len(values) - width + 1)]


def medians(values, width):
    return [sorted(values[at : at + width])[(width - 1) // 2] for at in range(len(values) - width + 1)]


def cases():
    rng = random.Random(9)
    for _ in range(80):
        values = [rng.randint(-5, 30) for _ in range(rng.randint(0, 30))]
        yield [values, rng.randint(1, 12)]


def play(solution, name, values, width, cpu_s):
    """Run one function on many values, which come in and go out, so that the code of the test tells nothing of what it expects."""
    code = f"import json, sys, windows\nm = windows.{name}(*json.load(sys.stdin))\nprint(json.dumps([len(m), sum(m), m[::101]]))"
    done = solution.run(["python3", "-c", code], stdin=json.dumps([values, width]), cpu_s=cpu_s, timeout_s=50)
    return json.loads(done.stdout)


def shown(result):
    return [len(result), sum(result), result[::101]]


def fast_maxima(values, width):
    queue, result = deque(), []
    for at, value in enumerate(values):
        while queue and queue[-1][1] <= value:
            queue.pop()
        queue.append((at, value))
        if queue[0][0] <= at - width:
            queue.popleft()
        if at >= width - 1:
            result.append(queue[0][1])
    return result


def fast_medians(values, width):
    window = sorted(values[:width])
    result = [window[(width - 1) // 2]]
    for old, new in zip(values, values[width:]):
        del window[bisect_left(window, old)]
        insort(window, new)
        result.append(window[(width - 1) // 2])
    return result


def falling(rng):
    return sorted(rng.sample(range(10**7), 100000), reverse=True)


def nearly_falling(rng):
    """Return falling numbers some of which have changed places with their neighbours."""
    values = falling(rng)
    for at in rng.sample(range(99999), 8000):
        values[at], values[at + 1] = values[at + 1], values[at]
    return values


def plateaus(rng):
    """Return falling numbers each of which stands there a few times."""
    return [value for value in falling(rng)[::2] for _ in range(rng.randint(1, 3))][:90000]


def sawtooth(rng):
    """Return long falls with a leap after each, higher or lower than the one before."""
    values = []
    while len(values) < 100000:
        start, step = rng.randint(10**6, 10**7), rng.randint(1, 9)
        values += [start - step * at for at in range(rng.randint(40000, 60000))]
    return values[:100000]


def assert_faster(solution):
    """A window that is looked at as a whole every time takes seconds here, and nothing has been done."""
    values = nearly_falling(random.Random(51))
    assert same(play(solution, "maxima", values, 30000, 2), shown(fast_maxima(values, 30000)))
    assert_right(solution, 1)


def assert_right(solution, seed):
    """Windows over different numbers are right, so that speed alone is paid nothing."""
    rng = random.Random(seed)
    every = [[rng.sample(range(100), 20), rng.choice((1, 3, 5, 7))] for _ in range(20)]
    assert same(solution.calls("windows:maxima", every), [maxima(*case) for case in every])
    assert same(solution.calls("windows:medians", every), [medians(*case) for case in every])


def test_small(solution):
    assert_faster(solution)
    assert same(solution.call("windows:maxima", [1, 3, 2, 5, 4], 2), [3, 3, 5, 5])
    assert same(solution.call("windows:medians", [1, 3, 2, 5, 4], 4), [2, 3])
    assert same(solution.call("windows:maxima", [1], 2), [])
    for name in ("maxima", "medians"):
        try:
            solution.call(f"windows:{name}", [1], 0)
        except SolutionError as error:
            assert error.type == "ValueError"
        else:
            raise AssertionError(name)


def test_random_maxima(solution):
    assert_faster(solution)
    every = list(cases())
    assert same(solution.calls("windows:maxima", every), [maxima(*case) for case in every])


def test_random_medians(solution):
    assert_faster(solution)
    every = list(cases())
    assert same(solution.calls("windows:medians", every), [medians(*case) for case in every])


def test_maxima_are_fast(solution):
    assert_right(solution, 2)
    rng = random.Random(52)
    for values in (rng.sample(range(10**7), 100000), falling(rng), nearly_falling(rng), plateaus(rng), sawtooth(rng)):
        width = rng.randint(19000, 21000)
        assert same(play(solution, "maxima", values, width, 4), shown(fast_maxima(values, width)))


def test_medians_are_fast(solution):
    assert_right(solution, 3)
    rng = random.Random(53)
    for values in (rng.sample(range(10**7), 100000), sawtooth(rng)):
        assert same(play(solution, "medians", values, 20000, 5), shown(fast_medians(values, 20000)))
