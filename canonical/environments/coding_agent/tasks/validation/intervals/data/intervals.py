"""Half-open intervals of integers."""


def merge(intervals):
    """Return sorted, disjoint intervals that cover the same integers."""
    result = []
    for start, end in intervals:
        if result and start < result[-1][1]:
            result[-1] = (result[-1][0], end)
        else:
            result.append((start, end))
    return result


def subtract(a, b):
    """Return the intervals covered by a and not by b."""
    result = []
    for start, end in merge(a):
        for cut_start, cut_end in merge(b):
            if cut_start < end and cut_end > start:
                result.append((start, cut_start))
                start = cut_end
        result.append((start, end))
    return result
