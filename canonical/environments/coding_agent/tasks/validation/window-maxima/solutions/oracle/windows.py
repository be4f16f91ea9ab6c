"""Moving statistics."""

from bisect import bisect_left, insort
from collections import deque


def maxima(values, width):
    """Return the maximum of every window of `width` neighbouring values; no window fits: an empty list."""
    if width < 1:
        raise ValueError("width must be positive")
    result, candidates = [], deque()
    for at, value in enumerate(values):
        while candidates and values[candidates[-1]] <= value:
            candidates.pop()
        candidates.append(at)
        if candidates[0] <= at - width:
            candidates.popleft()
        if at >= width - 1:
            result.append(values[candidates[0]])
    return result


def medians(values, width):
    """Return the lower median of every window of `width` neighbouring values."""
    if width < 1:
        raise ValueError("width must be positive")
    if len(values) < width:
        return []
    window = sorted(values[:width])
    result = [window[(width - 1) // 2]]
    for old, new in zip(values, values[width:]):
        del window[bisect_left(window, old)]
        insort(window, new)
        result.append(window[(width - 1) // 2])
    return result
