"""Simple statistics over lists of numbers."""


def median(values):
    """Return the middle value, or the mean of the two middle ones."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def quantile(values, q):
    """Return the value below which a share q of the values lies."""
    if not values or not 0 <= q <= 1:
        raise ValueError("no such quantile")
    ordered = sorted(values)
    return ordered[min(int(q * len(ordered)), len(ordered) - 1)]
