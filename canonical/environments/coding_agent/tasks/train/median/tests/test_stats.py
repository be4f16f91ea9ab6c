from grading import SolutionError, same


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
    code = "import stats; v = [3, 1, 2]; stats.median(v); stats.quantile(v, 0.5); print(v)"
    assert solution.run(["python3", "-c", code]).stdout == "[3, 1, 2]\n"


def test_bad_input_is_refused(solution):
    for function, arguments in (("median", [[]]), ("quantile", [[], 0.5]), ("quantile", [[1], 1.5]), ("quantile", [[1], -0.1])):
        try:
            solution.call(f"stats:{function}", *arguments)
        except SolutionError as error:
            assert same(error.type, "ValueError")
        else:
            raise AssertionError(f"{function}{arguments} was accepted")
