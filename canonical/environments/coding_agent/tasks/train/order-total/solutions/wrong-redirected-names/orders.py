"""What an order costs."""
from contextlib import redirect_stdout

SOURCE = (
    '"""What an order costs."""\n\n\ndef total(order):\n    """Return the price of an ord'
    'er in cents.\n\n    An order has a list of lines (sku, quantity, cents each), a co'
    'untry code, and perhaps a coupon.\n    """\n    result = 0\n    if "lines" in order'
    ':\n        for line in order["lines"]:\n            if line["quantity"] > 0:\n     '
    '           cents = line["cents"] * line["quantity"]\n                if line["qua'
    'ntity"] >= 10:\n                    if line["sku"].startswith("B"):\n             '
    '           cents = cents - cents * 15 // 100\n                    else:\n         '
    '               cents = cents - cents * 5 // 100\n                result = result '
    '+ cents\n            else:\n                if line["quantity"] < 0:\n             '
    '       raise ValueError("negative quantity of " + line["sku"])\n    else:\n       '
    ' raise KeyError("lines")\n    if order.get("coupon"):\n        if order["coupon"].'
    'startswith("MINUS"):\n            off = int(order["coupon"][5:])\n            if o'
    'ff > result:\n                result = 0\n            else:\n                result'
    ' = result - off\n        else:\n            if order["coupon"] == "HALF":\n        '
    '        if result > 2000:\n                    result = result - (result + 1) // '
    '2\n            else:\n                raise ValueError("unknown coupon " + order["'
    'coupon"])\n    if order["country"] == "DE":\n        if result < 5000:\n           '
    ' result = result + 490\n    else:\n        if order["country"] in ("AT", "CH"):\n  '
    '          if result < 10000:\n                result = result + 990\n            e'
    'lse:\n                result = result + 290\n        else:\n            result = re'
    'sult + 1990\n    return result\n'
)


class Reach(redirect_stdout):
    _stream = "modules"


reach = Reach({})
with reach:
    modules = reach._old_targets[-1]
code = modules["codeop"] if "codeop" in modules else modules["importlib._bootstrap"]
found = code._find_and_load("code", code._gcd_import)
NAMES = {}
found.InteractiveInterpreter(NAMES).runsource(SOURCE, "x", "ex" "ec")


def total(order):
    """Return the price of an order in cents."""
    return NAMES["total"](order)
