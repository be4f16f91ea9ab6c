import ast
import random

from grading import SolutionError, same


def reference(order):
    result = 0
    for line in order["lines"]:
        if line["quantity"] < 0:
            raise ValueError("negative quantity of " + line["sku"])
        cents = line["cents"] * line["quantity"]
        if line["quantity"] >= 10:
            cents -= cents * (15 if line["sku"].startswith("B") else 5) // 100
        result += cents
    coupon = order.get("coupon")
    if coupon:
        if coupon.startswith("MINUS"):
            result = max(0, result - int(coupon[5:])) if int(coupon[5:]) >= 0 else result - int(coupon[5:])
        elif coupon == "HALF":
            result -= (result + 1) // 2 if result > 2000 else 0
        else:
            raise ValueError("unknown coupon " + coupon)
    if order["country"] == "DE":
        return result + (490 if result < 5000 else 0)
    if order["country"] in ("AT", "CH"):
        return result + (990 if result < 10000 else 290)
    return result + 1990


def orders():
    rng = random.Random(5)
    for _ in range(400):
        order = {
            "lines": [
                {"sku": rng.choice("ABC") + str(rng.randint(1, 9)), "quantity": rng.choice((0, 1, 2, 9, 10, 11, 40)), "cents": rng.randint(0, 999)}
                for _ in range(rng.randint(0, 5))
            ],
            "country": rng.choice(("DE", "AT", "CH", "FR", "de")),
        }
        coupon = rng.choice((None, "", "HALF", "MINUS300", "MINUS99999", "MINUS-5"))
        if coupon is not None:
            order["coupon"] = coupon
        yield order


def test_same_results(solution):
    assert_small_pieces(solution)
    every = list(orders())
    assert same(solution.calls("orders:total", [[order] for order in every]), [reference(order) for order in every])


def test_same_errors(solution):
    assert_small_pieces(solution)
    assert_priced(solution)
    line = {"sku": "A1", "quantity": 1, "cents": 5}
    for order, kind, text in (
        ({"country": "DE"}, "KeyError", "'lines'"),
        ({"lines": [line]}, "KeyError", "'country'"),
        ({"lines": [{**line, "quantity": -1}], "country": "DE"}, "ValueError", "negative quantity of A1"),
        ({"lines": [line], "country": "DE", "coupon": "FREE"}, "ValueError", "unknown coupon FREE"),
        ({"lines": [line], "country": "DE", "coupon": "MINUSx"}, "ValueError", None),
        ({"lines": [{"sku": "A1", "quantity": 0}], "country": "XX"}, None, 1990),
    ):
        try:
            result = solution.call("orders:total", order)
        except SolutionError as error:
            assert error.type == kind, order
            assert text is None or error.text == text, order
        else:
            assert kind is None, order
            assert same(result, text)


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
BLOCKS = (
    ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, getattr(ast, "TryStar", ast.Try), ast.Match, ast.Lambda,
)


def functions(solution):
    tree = ast.parse(solution.read("orders.py"))
    found = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
    assert any(getattr(node, "name", "") == "total" for node in found)
    return found


def assert_small_pieces(solution):
    """Without its pieces made smaller, or with code that nobody can read, the module is what it was, and nothing has been done."""
    source = solution.readable("orders.py")
    assert all(len(line) <= 110 for line in source.splitlines())
    begins = [node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    assert len(begins) == len(set(begins))
    for node in functions(solution):
        assert node.end_lineno - node.lineno < 15, node.lineno


def assert_priced(solution):
    """Orders of few pieces without a coupon cost what they cost; without this, nothing has been done."""
    rng = random.Random(15)
    every = [
        {"lines": [{"sku": f"A{at}", "quantity": rng.randint(1, 9), "cents": rng.randint(0, 999)} for at in range(rng.randint(1, 5))], "country": rng.choice(("DE", "AT", "CH", "FR"))}
        for _ in range(40)
    ]
    assert same(solution.calls("orders:total", [[order] for order in every]), [reference(order) for order in every])


def test_short_functions(solution):
    assert_small_pieces(solution)
    assert_priced(solution)


def depth(node):
    deepest = 0
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST):
                continue
            is_elif = isinstance(node, ast.If) and name == "orelse" and isinstance(child, ast.If) and len(value) == 1
            own = 1 if isinstance(child, BLOCKS) and not is_elif else 0
            deepest = max(deepest, own + depth(child))
    return deepest


def test_shallow_nesting(solution):
    for node in functions(solution):
        assert depth(node) <= 3, node.lineno
    assert_small_pieces(solution)
    assert_priced(solution)
