"""The shop itself."""

from collections import Counter
from decimal import Decimal

from shop import pricing
from shop.errors import OutOfStock


class Shop:
    """Sell products from a stock."""

    def __init__(self, prices, stock, discounts=()):
        """Begin with prices (product -> Decimal), a stock (product -> pieces), and discounts (least quantity, percent)."""
        self.prices = prices
        self.stock = stock
        self.discounts = list(discounts)

    def set_price(self, product, price):
        """Change a price."""
        self.prices[product] = price

    def add_discount(self, least, percent):
        """Give so many percent off lines of at least so many pieces; all rules that fit are applied one after the other."""
        self.discounts.append((least, percent))

    def sell(self, lines):
        """Take lines (product, quantity) from the stock and return the total as a Decimal with two places."""
        wanted = Counter()
        for product, quantity in lines:
            wanted[product] += quantity
        for product, quantity in wanted.items():
            if self.stock[product] < quantity:
                raise OutOfStock(product)
        total = sum((pricing.line_total(self, product, quantity) for product, quantity in lines), Decimal("0.00"))
        for product, quantity in wanted.items():
            self.stock[product] -= quantity
        return total
