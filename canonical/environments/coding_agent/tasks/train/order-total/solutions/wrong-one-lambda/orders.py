"""What an order costs."""


def total(order):
    """Return the price of an order in cents."""
    return (lambda goods, coupon: (
        lambda paid: (
            lambda country: (
                lambda limit, fee, later: paid + (fee if paid < limit else later)
            )(*_SHIPPING.get(country, (0, 0, 1990)))
        )(order["country"])
    )(_after_coupon(goods, coupon)))(sum(map(_line_cents, order["lines"])), order.get("coupon"))


_SHIPPING = {"DE": (5000, 490, 0), "AT": (10000, 990, 290), "CH": (10000, 990, 290)}


def _line_cents(line):
    if line["quantity"] < 0:
        raise ValueError("negative quantity of " + line["sku"])
    if line["quantity"] == 0:
        return 0
    cents = line["cents"] * line["quantity"]
    share = 0 if line["quantity"] < 10 else 15 if line["sku"].startswith("B") else 5
    return cents - cents * share // 100


def _after_coupon(cents, coupon):
    if not coupon:
        return cents
    if coupon.startswith("MINUS"):
        off = int(coupon[5:])
        return 0 if off > cents else cents - off
    if coupon == "HALF":
        return cents - (cents + 1) // 2 if cents > 2000 else cents
    raise ValueError("unknown coupon " + coupon)
