"""What an order costs."""


def total(order):
    """Return the price of an order in cents.

    An order has a list of lines (sku, quantity, cents each), a country code, and perhaps a coupon.
    """
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
    if order.get("coupon"):
        if order["coupon"].startswith("MINUS"):
            off = int(order["coupon"][5:])
            if off > result:
                result = 0
            else:
                result = result - off
        else:
            if order["coupon"] == "HALF":
                if result > 2000:
                    result = result - (result + 1) // 2
            else:
                raise ValueError("unknown coupon " + order["coupon"])
    if order["country"] == "DE":
        if result < 5000:
            result = result + 490
    else:
        if order["country"] in ("AT", "CH"):
            if result < 10000:
                result = result + 990
            else:
                result = result + 290
        else:
            result = result + 1990
    return result
