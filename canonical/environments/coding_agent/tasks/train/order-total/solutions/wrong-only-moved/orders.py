"""What an order costs."""


def total(order):
    """Return the price of an order in cents."""
    goods = _goods(order)
    return _with_shipping(_after_coupon(goods, order), order)


def _goods(order):
    result = 0
    if "lines" in order:
        for line in order["lines"]:
            if line["quantity"] > 0:
                cents = line["cents"] * line["quantity"]
                if line["quantity"] >= 10:
                    if line["sku"].startswith("B"):
                        cents = cents - cents * 15 // 100
                    else:
                        cents = cents - cents * 5 // 100
                result = result + cents
            else:
                if line["quantity"] < 0:
                    raise ValueError("negative quantity of " + line["sku"])
    else:
        raise KeyError("lines")
    return result


def _after_coupon(result, order):
    coupon = order.get("coupon")
    if not coupon:
        return result
    if coupon.startswith("MINUS"):
        off = int(coupon[5:])
        return 0 if off > result else result - off
    if coupon == "HALF":
        return result - (result + 1) // 2 if result > 2000 else result
    raise ValueError("unknown coupon " + coupon)


def _with_shipping(result, order):
    if order["country"] == "DE":
        return result + 490 if result < 5000 else result
    if order["country"] in ("AT", "CH"):
        return result + 990 if result < 10000 else result + 290
    return result + 1990
