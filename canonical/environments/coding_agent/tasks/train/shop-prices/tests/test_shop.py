from grading import same

HEAD = "from decimal import Decimal as D\nfrom shop import Shop\nfrom shop.errors import OutOfStock\n"


def run(solution, code):
    result = solution.run(["python3", "-c", HEAD + code])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_price_changes_count(solution):
    assert same(run(solution, "s = Shop({'a': D('1')}, {'a': 9})\nprint(s.sell([('a', 1)]))\ns.set_price('a', D('2.5'))\nprint(s.sell([('a', 2)]))\ns.prices['a'] = D('3')\nprint(s.sell([('a', 1)]))"), "1.00\n5.00\n3.00\n")


def test_rounding_half_up_per_line(solution):
    assert same(run(solution, "s = Shop({'a': D('0.005'), 'b': D('1.115')}, {'a': 99, 'b': 99})\nprint(s.sell([('a', 1)]), s.sell([('a', 1)] * 3), s.sell([('b', 1)]), s.sell([('b', 3)]))"), "0.01 0.03 1.12 3.35\n")
    assert same(run(solution, "s = Shop({'a': D('0.1')}, {'a': 1000}, [(3, 50), (3, 50)])\nprint(s.sell([('a', 3)]), repr(s.sell([])), s.sell([('a', 1)] * 30))"), "0.08 Decimal('0.00') 3.00\n")


def test_out_of_stock_changes_nothing(solution):
    code = "s = Shop({'a': D('1'), 'b': D('1')}, {'a': 2, 'b': 1})\ntry:\n    s.sell([('a', 2), ('b', 2)])\nexcept OutOfStock:\n    print('refused', s.stock)\nprint(s.sell([('a', 2), ('b', 1)]), s.stock)"
    assert same(run(solution, code), "refused {'a': 2, 'b': 1}\n3.00 {'a': 0, 'b': 0}\n")


def test_same_product_twice(solution):
    code = "s = Shop({'a': D('1')}, {'a': 3})\ntry:\n    s.sell([('a', 2), ('a', 2)])\nexcept OutOfStock:\n    print(s.stock)\nprint(s.sell([('a', 2), ('a', 1)]), s.stock)"
    assert same(run(solution, code), "{'a': 3}\n3.00 {'a': 0}\n")


def test_discounts_are_apart(solution):
    code = "one = Shop({'a': D('1')}, {'a': 9})\none.add_discount(1, 50)\ntwo = Shop({'a': D('1')}, {'a': 9})\nprint(one.sell([('a', 2)]), two.sell([('a', 2)]), two.discounts)\nrules = [(1, 10)]\nthree = Shop({'a': D('1')}, {'a': 9}, rules)\nthree.add_discount(1, 10)\nprint(rules, three.sell([('a', 1)]))"
    assert same(run(solution, code), "1.00 2.00 []\n[(1, 10)] 0.81\n")


def test_demo(solution):
    result = solution.run(["python3", "-m", "shop.demo"])
    assert same(result.stdout, "12.28\n2.00\n")
