from decimal import Decimal

from shop import Shop

shop = Shop({"pen": Decimal("1.15"), "ink": Decimal("0.335")}, {"pen": 100, "ink": 50})
shop.add_discount(10, 5)
print(shop.sell([("pen", 10), ("ink", 3), ("ink", 1)]))
shop.set_price("pen", Decimal("2.00"))
print(shop.sell([("pen", 1)]))
