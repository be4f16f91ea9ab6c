"""Balances from a bank's export."""

import csv
import io
import re

_NUMBER = re.compile(r"(?P<open>\()?(?P<sign>[+-])?(?P<digits>\d{1,3}(?:[.,]\d{3})+|\d+)(?:[.,](?P<cents>\d{1,2}))?(?(open)\))(?:\s*EUR)?")


def balances(text):
    """Return the total per account, in cents."""
    reader = csv.reader(io.StringIO(text), delimiter=";")
    header = [name.strip().lower() for name in next(reader)]
    account_at, amount_at = header.index("account"), header.index("amount")
    totals = {}
    for row in reader:
        if len(row) <= max(account_at, amount_at):
            continue
        account = "".join(row[account_at].split()).upper()
        amount = row[amount_at].strip()
        if account and amount:
            totals[account] = totals.get(account, 0) + _cents(amount, reader.line_num)
    return totals


def _cents(amount, line):
    match = _NUMBER.fullmatch(amount)
    if match is None:
        raise ValueError(f"line {line}: {amount!r} is no amount")
    whole = int(re.sub(r"[.,]", "", match["digits"]))
    cents = whole * 100 + int((match["cents"] or "0").ljust(2, "0"))
    return -cents if match["open"] or match["sign"] == "-" else cents
