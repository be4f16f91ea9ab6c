"""What an order costs."""


def total(order):
    """Return the price of an order in cents."""
    goods = sum(_line_cents(line) for line in order["lines"])
    paid = _after_coupon(goods, order.get("coupon"))
    return paid + _shipping(paid, order["country"])


def _line_cents(line):
    quantity = line["quantity"]
    if quantity < 0:
        raise ValueError("negative quantity of " + line["sku"])
    if quantity == 0:
        return 0
    cents = line["cents"] * quantity
    if quantity >= 10:
        cents -= cents * (15 if line["sku"].startswith("B") else 5) // 100
    return cents


def _after_coupon(cents, coupon):
    if not coupon:
        return cents
    if coupon.startswith("MINUS"):
        off = int(coupon[5:])
        return 0 if off > cents else cents - off
    if coupon == "HALF":
        return cents - (cents + 1) // 2 if cents > 2000 else cents
    raise ValueError("unknown coupon " + coupon)


def _shipping(cents, country):
    if country == "DE":
        return 490 if cents < 5000 else 0
    if country in ("AT", "CH"):
        return 990 if cents < 10000 else 290
    return 1990
