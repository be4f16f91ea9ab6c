"""Balances from a bank's export."""

import re


def balances(text):
    """Return the total per account, in cents."""
    lines = text.splitlines()
    header = [name.strip().lower() for name in lines[0].split(";")]
    totals = {}
    for number, line in enumerate(lines[1:], start=2):
        fields = dict(zip(header, (field.strip().strip('"') for field in line.split(";"))))
        account = "".join(fields.get("account", "").split()).upper()
        amount = fields.get("amount", "")
        if not account or not amount:
            continue
        match = re.fullmatch(r"(\()?([+-])?([\d.,]*?)(?:[.,](\d{1,2}))?\)?(?: EUR)?", amount)
        if match is None or not match[3]:
            raise ValueError(f"line {number}: {amount!r}")
        cents = int(re.sub(r"[.,]", "", match[3])) * 100 + int((match[4] or "0").ljust(2, "0"))
        totals[account] = totals.get(account, 0) + (-cents if match[1] or match[2] == "-" else cents)
    return totals
