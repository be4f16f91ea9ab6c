"""Moving statistics."""

from bisect import bisect_left, insort


def maxima(values, width):
    """Return the maximum of every window."""
    if width < 1:
        raise ValueError("width must be positive")
    result = []
    best = None
    for at, value in enumerate(values):
        if best is None or value > best:
            best = value
        if at >= width - 1:
            result.append(best)
    return result


def medians(values, width):
    """Return the lower median of every window."""
    if width < 1:
        raise ValueError("width must be positive")
    window = sorted(values[:width])
    result = [window[(width - 1) // 2]] if len(values) >= width else []
    for old, new in zip(values, values[width:]):
        del window[bisect_left(window, old)]
        insort(window, new)
        result.append(window[(width - 1) // 2])
    return result
