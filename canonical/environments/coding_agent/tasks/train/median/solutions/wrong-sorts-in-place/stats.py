"""Simple statistics over lists of numbers."""


def median(values):
    """Return the middle value, or the mean of the two middle ones."""
    return quantile(values, 0.5)


def quantile(values, q):
    """Return the value below which a share q of the values lies, interpolated linearly."""
    if not values:
        raise ValueError("no values")
    if not 0 <= q <= 1:
        raise ValueError("q must lie between 0 and 1")
    values.sort()
    place = q * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)
