import random

from grading import SolutionError, same

BUCKET = "bucket:TokenBucket"


def assert_drains(solution, seed):
    """At one time a bucket gives what it holds and no more; without this, nothing has been done."""
    rng = random.Random(seed)
    for _ in range(2):
        capacity = left = rng.randint(5, 30)
        calls, expected = [], []
        for tokens in (rng.randint(1, 5) for _ in range(15)):
            calls.append(("take", [0, tokens]))
            expected.append(tokens <= left)
            left -= tokens if tokens <= left else 0
        assert same(solution.script(BUCKET, [rng.randint(1, 4), capacity], calls), expected)


def test_starts_full_and_drains(solution):
    assert_drains(solution, 1)
    results = solution.script(BUCKET, [1, 3], [("take", [0]), ("take", [0]), ("take", [0]), ("take", [0])])
    assert same(results, [True, True, True, False])


def test_refills_up_to_capacity(solution):
    assert_drains(solution, 2)
    calls = [("take", [0, 3]), ("take", [1.5, 2]), ("take", [1.5, 1]), ("take", [100, 3]), ("take", [100, 1])]
    assert same(solution.script(BUCKET, [1, 3], calls), [True, False, True, True, False])


def test_refused_takes_nothing(solution):
    assert_drains(solution, 3)
    calls = [("take", [0, 2]), ("take", [0, 2]), ("take", [0, 2]), ("take", [0, 1])]
    assert same(solution.script(BUCKET, [1, 3], calls), [True, False, False, True])


def test_wait(solution):
    assert_drains(solution, 4)
    calls = [("wait", [0, 3]), ("take", [0, 3]), ("wait", [0, 2]), ("wait", [0.5, 2]), ("wait", [9, 2]), ("take", [9, 3])]
    full, taken, two, later, none, all_there = solution.script(BUCKET, [2, 3], calls)
    assert abs(full) < 1e-9 and abs(none) < 1e-9
    assert abs(two - 1.0) < 1e-9
    assert abs(later - 0.5) < 1e-9
    assert taken is True and all_there is True


def test_time_never_runs_backwards(solution):
    assert_drains(solution, 5)
    calls = [("take", [10, 3]), ("take", [4, 1]), ("take", [10.5, 1]), ("take", [11, 1])]
    assert same(solution.script(BUCKET, [1, 3], calls), [True, False, False, True])


def test_bad_values(solution):
    assert_drains(solution, 6)
    for init in ([0, 1], [1, 0], [-1, 5]):
        try:
            solution.script(BUCKET, init, [])
        except SolutionError as error:
            assert same(error.type, "ValueError")
        else:
            raise AssertionError(init)
    for call in (("take", [0, 0]), ("take", [0, 4]), ("wait", [0, -1]), ("wait", [0, 4])):
        (answer,) = solution.script(BUCKET, [1, 3], [call])
        assert isinstance(answer, SolutionError) and same(answer.type, "ValueError"), call
