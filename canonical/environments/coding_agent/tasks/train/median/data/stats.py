"""Simple statistics over lists of numbers."""


def median(values):
    """Return the middle value."""
    values.sort()
    return values[len(values) // 2]


def quantile(values, q):
    """Return the value below which a share q of the values lies."""
    values.sort()
    return values[int(q * len(values))]
