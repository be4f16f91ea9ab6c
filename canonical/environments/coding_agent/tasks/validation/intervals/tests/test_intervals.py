import random

from grading import same


def covered(intervals):
    return {number for start, end in intervals for number in range(start, end)}


def as_intervals(numbers):
    result = []
    for number in sorted(numbers):
        if result and result[-1][1] == number:
            result[-1] = (result[-1][0], number + 1)
        else:
            result.append((number, number + 1))
    return result


def assert_overlaps_are_joined(solution, seed):
    """In sorted input what overlaps becomes one; without this, nothing has been done."""
    rng = random.Random(seed)
    cases = []
    for _ in range(20):
        starts = sorted(rng.sample(range(50), 6))
        cases.append([(start, start + rng.randint(1, 12)) for start in starts])
    for case, result in zip(cases, solution.calls("intervals:merge", [[case] for case in cases]), strict=True):
        assert [tuple(pair) for pair in result] == as_intervals(covered(case)), case


def test_touching_and_contained(solution):
    assert_overlaps_are_joined(solution, 1)
    assert solution.call("intervals:merge", [(1, 3), (3, 5)]) == [(1, 5)]
    assert solution.call("intervals:merge", [(1, 10), (2, 3)]) == [(1, 10)]
    assert solution.call("intervals:merge", [(5, 6), (1, 2)]) == [(1, 2), (5, 6)]


def test_subtract_splits(solution):
    assert_overlaps_are_joined(solution, 2)
    assert solution.call("intervals:subtract", [(0, 10)], [(3, 5)]) == [(0, 3), (5, 10)]
    assert solution.call("intervals:subtract", [(0, 10)], [(0, 10)]) == []
    assert solution.call("intervals:subtract", [(0, 4), (6, 9)], [(3, 7)]) == [(0, 3), (7, 9)]


def test_empty_intervals(solution):
    assert_overlaps_are_joined(solution, 3)
    assert solution.call("intervals:merge", [(4, 4), (7, 2)]) == []
    assert solution.call("intervals:subtract", [(0, 3)], [(1, 1)]) == [(0, 3)]


def test_many_against_sets(solution):
    rng = random.Random(20)
    cases = []
    for _ in range(150):
        sides = [[(start, start + rng.randint(-1, 6)) for start in (rng.randint(-9, 20) for _ in range(rng.randint(0, 6)))] for _ in "ab"]
        cases.append(sides)
    merged = solution.calls("intervals:merge", [[a] for a, _ in cases])
    left = solution.calls("intervals:subtract", cases)
    for (a, b), one, two in zip(cases, merged, left, strict=True):
        assert [tuple(pair) for pair in one] == as_intervals(covered(a)), a
        assert [tuple(pair) for pair in two] == as_intervals(covered(a) - covered(b)), (a, b)


def test_result_type(solution):
    assert_overlaps_are_joined(solution, 4)
    assert same(solution.call("intervals:merge", [(2, 3), (1, 2)]), [(1, 3)])
