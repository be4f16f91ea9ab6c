"""Balances from a bank's export."""

import csv
import io


def balances(text):
    """Return the total per account, in cents."""
    totals = {}
    rows = csv.reader(io.StringIO(text), delimiter=";")
    header = [name.lower() for name in next(rows)]
    for number, row in enumerate(rows, start=2):
        fields = dict(zip(header, row))
        account = "".join(fields.get("account", "").split()).upper()
        amount = fields.get("amount", "").replace("EUR", "").strip()
        if not account or not amount:
            continue
        sign = -1 if amount.startswith("(") else 1
        amount = amount.strip("()")
        if "," in amount and "." in amount:
            amount = amount.replace(",", "") if amount.rindex(".") > amount.rindex(",") else amount.replace(".", "").replace(",", ".")
        else:
            amount = amount.replace(",", ".")
        try:
            totals[account] = totals.get(account, 0) + int(float(amount) * 100) * sign
        except ValueError:
            raise ValueError(f"line {number}: {amount!r}") from None
    return totals
