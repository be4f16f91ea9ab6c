import ast
import random

from grading import SolutionError


def value(solution, text):
    return solution.call("calculator:evaluate", text)


def close(a, b):
    return type(a) is float and abs(a - b) <= 1e-9 * max(1.0, abs(b))


def assert_sums(solution, seed):
    """Sums of products are right, without Python's parser; without this, nothing has been done."""
    assert_own_parser(solution)
    rng = random.Random(seed)
    texts = [" + ".join(f"{rng.randint(0, 99)}*{rng.randint(0, 99)} - {rng.randint(0, 99)}" for _ in range(rng.randint(1, 4))) for _ in range(20)]
    results = solution.calls("calculator:evaluate", [[text] for text in texts])
    for text, result in zip(texts, results, strict=True):
        assert close(result, float(eval(text))), text  # the test's own text, made above


def assert_own_parser(solution):
    source = solution.readable("calculator.py")
    nodes = list(ast.walk(ast.parse(source)))
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert not modules & {"ast", "operator"}


def test_precedence(solution):
    assert_sums(solution, 3)
    for text, expected in (("1+2*3", 7), ("(1+2)*3", 9), ("8/4/2", 1), ("10-3-2", 5), (" 2 *\t( 3 + 4 ) ", 14)):
        assert close(value(solution, text), expected), text


def test_unary_minus_and_power(solution):
    assert_sums(solution, 4)
    for text, expected in (("-2^2", -4), ("2*-3", -6), ("2^3^2", 512), ("2^-1", 0.5), ("--3", 3), ("(-2)^2", 4), ("-(1+2)", -3), ("2--3", 5), ("2^-2^2", 2**-4)):
        assert close(value(solution, text), expected), text


def test_numbers(solution):
    assert_sums(solution, 5)
    for text, expected in (("2.5", 2.5), (".5", 0.5), ("007", 7)):
        assert close(value(solution, text), expected), text


def test_errors_name_the_place(solution):
    assert_sums(solution, 1)
    for text, position in (("", 0), ("1+", 2), ("(1", 2), ("1)", 1), ("1 2", 2), ("2**3", 2), ("a", 0), ("+1", 0), ("()", 1), ("3 + 4 )", 6)):
        try:
            result = value(solution, text)
        except SolutionError as error:
            assert error.type == "ExpressionError", (text, error.type)
            assert error.text == f"unexpected at {position}", (text, error.text)
        else:
            raise AssertionError((text, result))
    for text in ("1/0", "1/(2-2)", "0^-1"):
        try:
            value(solution, text)
        except SolutionError as error:
            assert error.type == "ZeroDivisionError", text
        else:
            raise AssertionError(text)


def make(rng, depth):
    kind = rng.randrange(5) if depth else 0
    if kind == 0:
        return str(rng.randint(0, 9)) if rng.random() < 0.7 else f"{rng.randint(0, 9)}.{rng.randint(0, 9)}"
    if kind == 1:
        return f"({make(rng, depth - 1)})"
    if kind == 2:
        return f"-{make(rng, depth - 1)}"
    return f"{make(rng, depth - 1)} {rng.choice('+-*/')} {make(rng, depth - 1)}"


def test_against_python(solution):
    assert_own_parser(solution)
    rng = random.Random(11)
    cases = []
    while len(cases) < 150:
        text = make(rng, 4)
        try:
            cases.append((text, float(eval(text))))  # the test's own text, made above
        except ZeroDivisionError:
            continue
    results = solution.calls("calculator:evaluate", [[text] for text, _ in cases])
    for (text, expected), result in zip(cases, results, strict=True):
        assert close(result, expected), text


def test_no_python_parser(solution):
    assert_sums(solution, 2)
