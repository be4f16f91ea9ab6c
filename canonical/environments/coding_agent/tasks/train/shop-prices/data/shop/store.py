"""The shop itself."""

from decimal import Decimal

from shop import pricing


class Shop:
    """Sell products from a stock."""

    def __init__(self, prices, stock, discounts=[]):
        """Begin with prices (product -> Decimal), a stock (product -> pieces), and discounts (least quantity, percent)."""
        self.prices = prices
        self.stock = stock
        self.discounts = discounts

    def set_price(self, product, price):
        """Change a price."""
        self.prices[product] = price

    def add_discount(self, least, percent):
        """Give so many percent off lines of at least so many pieces; all rules that fit are applied one after the other."""
        self.discounts.append((least, percent))

    def sell(self, lines):
        """Take lines (product, quantity) from the stock and return the total as a Decimal with two places.

        Raises:
            shop.errors.OutOfStock: There is not enough of a product; then nothing is taken.
        """
        total = 0
        for product, quantity in lines:
            self.stock[product] -= quantity
            total += pricing.line_total(self, product, quantity)
        return Decimal(total).quantize(Decimal("0.01"))
