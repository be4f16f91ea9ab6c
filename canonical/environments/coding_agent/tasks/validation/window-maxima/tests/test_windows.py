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


def assert_faster(solution):
    """A window that is looked at as a whole every time takes seconds here, and nothing has been done."""
    code = "import windows\nv = list(range(100000, 0, -1))\nprint(sum(windows.maxima(v, 30000)))"
    assert same(solution.run(["python3", "-c", code], cpu_s=2, timeout_s=50).stdout, f"{sum(range(100000, 29999, -1))}\n")
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


VALUES = [number * 7919 % 100003 for number in range(100000)]
MAKE = "import windows\nv = [n * 7919 % 100003 for n in range(100000)]\n"


def test_maxima_are_fast(solution):
    assert_right(solution, 2)
    queue, expected = deque(), 0
    for at, value in enumerate(VALUES):
        while queue and queue[-1][1] <= value:
            queue.pop()
        queue.append((at, value))
        if queue[0][0] <= at - 20000:
            queue.popleft()
        if at >= 19999:
            expected += queue[0][1]
    code = MAKE + "m = windows.maxima(v, 20000)\nprint(len(m), sum(m), sum(windows.maxima(list(range(100000, 0, -1)), 20000)))"
    falling = sum(range(100000, 19999, -1))
    assert same(solution.run(["python3", "-c", code], cpu_s=5, timeout_s=50).stdout, f"80001 {expected} {falling}\n")


def test_medians_are_fast(solution):
    assert_right(solution, 3)
    window = sorted(VALUES[:20000])
    expected = window[9999]
    for old, new in zip(VALUES, VALUES[20000:]):
        del window[bisect_left(window, old)]
        insort(window, new)
        expected += window[9999]
    code = MAKE + "m = windows.medians(v, 20000)\nprint(len(m), sum(m))"
    assert same(solution.run(["python3", "-c", code], cpu_s=5, timeout_s=50).stdout, f"80001 {expected}\n")
