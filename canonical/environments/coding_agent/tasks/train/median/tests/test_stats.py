import json
import random

from grading import SolutionError, same


def lists(seed):
    """Lists of an odd number of values: their middle value is the median, whatever is made of an even number."""
    rng = random.Random(seed)
    return [[rng.randint(-999, 999) for _ in range(rng.choice((3, 5, 7, 9)))] for _ in range(12)]


def test_odd_and_even_median(solution):
    assert solution.call("stats:median", [5, 1, 3]) == 3
    assert solution.call("stats:median", [4, 1, 3, 2]) == 2.5
    assert solution.call("stats:median", [7]) == 7
    assert solution.call("stats:median", [-1, -1, 0, 10]) == -0.5


def test_quantile_interpolates(solution):
    values = [40, 10, 20, 30]
    assert abs(solution.call("stats:quantile", values, 0.5) - 25) < 1e-9
    assert abs(solution.call("stats:quantile", values, 0.9) - 37) < 1e-9
    assert abs(solution.call("stats:quantile", values, 1 / 3) - 20) < 1e-9
    assert abs(solution.call("stats:quantile", [1, 2], 0.25) - 1.25) < 1e-9


def test_quantile_ends(solution):
    assert solution.call("stats:quantile", [3, 1, 2], 0) == 1
    assert solution.call("stats:quantile", [3, 1, 2], 1) == 3
    assert solution.call("stats:quantile", [9], 0.3) == 9


def test_input_is_left_alone(solution):
    code = "import json, stats, sys\nfor v in json.load(sys.stdin):\n    w = list(v)\n    print(json.dumps([stats.median(v), v, stats.quantile(w, 0.5), w]))"
    cases = lists(1)
    result = solution.run(["python3", "-c", code], stdin=json.dumps(cases))
    for values, line in zip(cases, result.stdout.splitlines(), strict=True):
        middle = sorted(values)[len(values) // 2]
        assert json.loads(line) == [middle, values, middle, values], values


def test_bad_input_is_refused(solution):
    cases = lists(2)
    assert solution.calls("stats:median", [[values] for values in cases]) == [sorted(values)[len(values) // 2] for values in cases]
    assert solution.calls("stats:quantile", [[values, 0] for values in cases]) == [min(values) for values in cases]
    for function, arguments in (("median", [[]]), ("quantile", [[], 0.5]), ("quantile", [[1], 1.5]), ("quantile", [[1], -0.1])):
        try:
            solution.call(f"stats:{function}", *arguments)
        except SolutionError as error:
            assert same(error.type, "ValueError")
        else:
            raise AssertionError(f"{function}{arguments} was accepted")
