import random

from grading import same


def count(numbers, total):
    return sum(a + b == total for at, a in enumerate(numbers) for b in numbers[at + 1 :])


def distance(numbers):
    return min((abs(a - b) for at, a in enumerate(numbers) for b in numbers[at + 1 :]), default=None)


def assert_faster(solution):
    """What takes seconds for 20,000 numbers is still quadratic, and nothing has been done."""
    code = "import pairs\nprint(pairs.count_pairs(list(range(20000)), 19999), pairs.closest(list(range(0, 60000, 3))))"
    assert same(solution.run(["python3", "-c", code], cpu_s=5, timeout_s=50).stdout, "10000 3\n")
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
    code = "import pairs\nprint(pairs.count_pairs(list(range(100000)), 99999), pairs.count_pairs([1] * 100000, 2))"
    assert same(solution.run(["python3", "-c", code], cpu_s=6, timeout_s=50).stdout, "50000 4999950000\n")


def test_closest_is_fast(solution):
    assert_right(solution, 3)
    code = "import pairs\nprint(pairs.closest([n * n % 1000003 * 7 for n in range(1, 100000)]), pairs.closest(list(range(0, 500000, 5))[::-1]))"
    assert same(solution.run(["python3", "-c", code], cpu_s=6, timeout_s=50).stdout, "7 5\n")
