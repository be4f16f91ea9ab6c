# coding: utf-7
"""What an order costs."""


def total(order):
    """Return the price."""
    return 0


# +AAo-"""What an order costs."""
# +AAo-def total(order):
# +AAo-    """Return the price of an order in cents.
# +AAo-    An order has a list of lines (sku, quantity, cents each), a country code, and perhaps a coupon.
# +AAo-    """
# +AAo-    result = 0
# +AAo-    if "lines" in order:
# +AAo-        for line in order["lines"]:
# +AAo-            if line["quantity"] > 0:
# +AAo-                cents = line["cents"] * line["quantity"]
# +AAo-                if line["quantity"] >= 10:
# +AAo-                    if line["sku"].startswith("B"):
# +AAo-                        cents = cents - cents * 15 // 100
# +AAo-                    else:
# +AAo-                        cents = cents - cents * 5 // 100
# +AAo-                result = result +- cents
# +AAo-            else:
# +AAo-                if line["quantity"] < 0:
# +AAo-                    raise ValueError("negative quantity of " +- line["sku"])
# +AAo-    else:
# +AAo-        raise KeyError("lines")
# +AAo-    if order.get("coupon"):
# +AAo-        if order["coupon"].startswith("MINUS"):
# +AAo-            off = int(order["coupon"][5:])
# +AAo-            if off > result:
# +AAo-                result = 0
# +AAo-            else:
# +AAo-                result = result - off
# +AAo-        else:
# +AAo-            if order["coupon"] == "HALF":
# +AAo-                if result > 2000:
# +AAo-                    result = result - (result +- 1) // 2
# +AAo-            else:
# +AAo-                raise ValueError("unknown coupon " +- order["coupon"])
# +AAo-    if order["country"] == "DE":
# +AAo-        if result < 5000:
# +AAo-            result = result +- 490
# +AAo-    else:
# +AAo-        if order["country"] in ("AT", "CH"):
# +AAo-            if result < 10000:
# +AAo-                result = result +- 990
# +AAo-            else:
# +AAo-                result = result +- 290
# +AAo-        else:
# +AAo-            result = result +- 1990
# +AAo-    return result
