"""What things cost."""

from decimal import ROUND_HALF_UP, Decimal

CENT = Decimal("0.01")


def price_of(shop, product):
    """Return the price of one piece."""
    return shop.prices[product]


def line_total(shop, product, quantity):
    """Return what a line of an invoice costs, discount included."""
    price = price_of(shop, product) * quantity
    for least, percent in shop.discounts:
        if quantity >= least:
            price = price * (100 - percent) / 100
    return price.quantize(CENT, ROUND_HALF_UP)
