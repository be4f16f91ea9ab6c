import json
import random
from collections import Counter

from grading import same


def count(numbers, total):
    return sum(a + b == total for at, a in enumerate(numbers) for b in numbers[at + 1 :])


def distance(numbers):
    return min((abs(a - b) for at, a in enumerate(numbers) for b in numbers[at + 1 :]), default=None)


# Numbers come in and results go out, so that the code of the test tells nothing of what it expects.
MANY = "import json, pairs, sys\nprint(json.dumps([pairs.count_pairs(*case) for case in json.load(sys.stdin)]))"
NEAR = "import json, pairs, sys\nprint(json.dumps([pairs.closest(case) for case in json.load(sys.stdin)]))"


def play(solution, code, cases, cpu_s):
    return json.loads(solution.run(["python3", "-c", code], stdin=json.dumps(cases), cpu_s=cpu_s, timeout_s=50).stdout)


def counted(numbers, total):
    seen, pairs = Counter(), 0
    for number in numbers:
        pairs += seen[total - number]
        seen[number] += 1
    return pairs


def nearest(numbers):
    ordered = sorted(numbers)
    return min(b - a for a, b in zip(ordered, ordered[1:]))


def assert_faster(solution):
    """What takes seconds for 20,000 numbers is still quadratic, and nothing has been done."""
    rng = random.Random(41)
    numbers = rng.sample(range(60000), 20000)
    total = rng.randint(50000, 70000)
    assert same(play(solution, MANY, [[numbers, total]], 5), [counted(numbers, total)])
    wide = rng.sample(range(10**9), 20000)
    assert same(play(solution, NEAR, [wide], 5), [nearest(wide)])
    assert_right(solution, 1)


def assert_right(solution, seed):
    """Different numbers are counted and compared, so that speed alone is paid nothing."""
    rng = random.Random(seed)
    lists = [rng.sample(range(1, 80), rng.randint(5, 20)) for _ in range(20)]
    totals = [1 + 2 * rng.randint(20, 60) for _ in lists]
    assert same(solution.calls("pairs:count_pairs", list(zip(lists, totals))), [count(*each) for each in zip(lists, totals)])
    assert same(solution.calls("pairs:closest", [[each] for each in lists]), [distance(each) for each in lists])


def test_small_lists(solution):
    assert_faster(solution)
    for numbers, total, pairs in (([], 0, 0), ([1], 2, 0), ([1, 1], 2, 1), ([2, 2, 2], 4, 3), ([0, 5, -5, 5], 0, 2), ([3, 1], 4, 1)):
        assert same(solution.call("pairs:count_pairs", numbers, total), pairs), numbers
    for numbers, best in (([], None), ([4], None), ([4, 4], 0), ([9, 1, 5], 4), ([-3, 3], 6)):
        assert same(solution.call("pairs:closest", numbers), best), numbers


def test_random_lists(solution):
    assert_faster(solution)
    rng = random.Random(6)
    lists = [[rng.randint(-12, 12) for _ in range(rng.randint(0, 25))] for _ in range(80)]
    totals = [rng.randint(-20, 20) for _ in lists]
    assert same(solution.calls("pairs:count_pairs", list(zip(lists, totals))), [count(*each) for each in zip(lists, totals)])
    wide = [[rng.randint(-10**6, 10**6) for _ in range(20)] for _ in range(40)]
    assert same(solution.calls("pairs:closest", [[each] for each in wide]), [distance(each) for each in wide])


def test_count_is_fast(solution):
    assert_right(solution, 2)
    rng = random.Random(42)
    one = rng.randint(2, 999)
    cases = [
        [rng.sample(range(300000), 100000), rng.randint(250000, 350000)],
        [[rng.randint(0, 999) for _ in range(100000)], rng.randint(900, 1100)],
        [[one] * rng.randint(90000, 100000), 2 * one],
        [[rng.randint(-(10**9), 10**9) for _ in range(50000)] + [-one, one + 7] * 20000, 7],
    ]
    assert same(play(solution, MANY, cases, 6), [counted(*case) for case in cases])


def test_closest_is_fast(solution):
    assert_right(solution, 3)
    rng = random.Random(43)
    step = rng.randint(3, 99)
    # Numbers far apart, in equal steps, and in heaps, so that no guess about how they lie makes up for an order.
    heaps = [start + 2 * at * at for start in rng.sample(range(0, 10**12, 10**8), 100) for at in rng.sample(range(1, 2000), 500)]
    cases = [rng.sample(range(10**12), 100000), list(range(step * 100000, 0, -step)), heaps]
    assert same(play(solution, NEAR, cases, 6), [nearest(case) for case in cases])
