"""The shop itself."""

from decimal import Decimal

from shop import pricing
from shop.errors import OutOfStock


class Shop:
    """Sell products from a stock."""

    def __init__(self, prices, stock, discounts=None):
        self.prices = prices
        self.stock = stock
        self.discounts = list(discounts or [])

    def set_price(self, product, price):
        self.prices[product] = price

    def add_discount(self, least, percent):
        self.discounts.append((least, percent))

    def sell(self, lines):
        for product, quantity in lines:
            if self.stock[product] < quantity:
                raise OutOfStock(product)
        total = Decimal("0.00")
        for product, quantity in lines:
            self.stock[product] -= quantity
            total += pricing.line_total(self, product, quantity)
        return total
