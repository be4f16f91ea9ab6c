import json
import random

from grading import same

HEAD = "from decimal import Decimal as D\nfrom shop import Shop\nfrom shop.errors import OutOfStock\n"


def run(solution, code, stdin=""):
    result = solution.run(["python3", "-c", HEAD + code], stdin=stdin)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def assert_sold(solution, seed):
    """Whole cents are added up, and what is sold is gone; without this, nothing has been done."""
    rng = random.Random(seed)
    sales, expected = [], []
    for _ in range(10):
        cents, pieces, stock = rng.randint(1, 999), rng.randint(1, 9), rng.randint(9, 99)
        sales.append([cents, pieces, stock])
        expected.append(f"{cents * pieces // 100}.{cents * pieces % 100:02} {stock - pieces}\n")
    code = "import json, sys\nfor cents, pieces, stock in json.load(sys.stdin):\n    s = Shop({'a': D(cents) / 100}, {'a': stock})\n    print(s.sell([('a', pieces)]), s.stock['a'])"
    assert same(run(solution, code, json.dumps(sales)), "".join(expected))


def test_price_changes_count(solution):
    assert_sold(solution, 1)
    assert same(run(solution, "s = Shop({'a': D('1')}, {'a': 9})\nprint(s.sell([('a', 1)]))\ns.set_price('a', D('2.5'))\nprint(s.sell([('a', 2)]))\ns.prices['a'] = D('3')\nprint(s.sell([('a', 1)]))"), "1.00\n5.00\n3.00\n")


def test_rounding_half_up_per_line(solution):
    assert_sold(solution, 2)
    assert same(run(solution, "s = Shop({'a': D('0.005'), 'b': D('1.115')}, {'a': 99, 'b': 99})\nprint(s.sell([('a', 1)]), s.sell([('a', 1)] * 3), s.sell([('b', 1)]), s.sell([('b', 3)]))"), "0.01 0.03 1.12 3.35\n")
    assert same(run(solution, "s = Shop({'a': D('0.1')}, {'a': 1000}, [(3, 50), (3, 50)])\nprint(s.sell([('a', 3)]), repr(s.sell([])), s.sell([('a', 1)] * 30))"), "0.08 Decimal('0.00') 3.00\n")


def test_out_of_stock_changes_nothing(solution):
    assert_sold(solution, 3)
    code = "s = Shop({'a': D('1'), 'b': D('1')}, {'a': 2, 'b': 1})\ntry:\n    s.sell([('a', 2), ('b', 2)])\nexcept OutOfStock:\n    print('refused', s.stock)\nprint(s.sell([('a', 2), ('b', 1)]), s.stock)"
    assert same(run(solution, code), "refused {'a': 2, 'b': 1}\n3.00 {'a': 0, 'b': 0}\n")


def test_same_product_twice(solution):
    assert_sold(solution, 6)
    code = "s = Shop({'a': D('1')}, {'a': 3})\ntry:\n    s.sell([('a', 2), ('a', 2)])\nexcept OutOfStock:\n    print(s.stock)\nprint(s.sell([('a', 2), ('a', 1)]), s.stock)"
    assert same(run(solution, code), "{'a': 3}\n3.00 {'a': 0}\n")


def test_discounts_are_apart(solution):
    assert_sold(solution, 4)
    code = "one = Shop({'a': D('1')}, {'a': 9})\none.add_discount(1, 50)\ntwo = Shop({'a': D('1')}, {'a': 9})\nprint(one.sell([('a', 2)]), two.sell([('a', 2)]), two.discounts)\nrules = [(1, 10)]\nthree = Shop({'a': D('1')}, {'a': 9}, rules)\nthree.add_discount(1, 10)\nprint(rules, three.sell([('a', 1)]))"
    assert same(run(solution, code), "1.00 2.00 []\n[(1, 10)] 0.81\n")


def test_demo(solution):
    assert_sold(solution, 5)
    result = solution.run(["python3", "-m", "shop.demo"])
    assert same(result.stdout, "12.28\n2.00\n")
