"""Half-open intervals of integers."""


def merge(intervals):
    """Return disjoint intervals that cover the same integers."""
    result = []
    for start, end in (pair for pair in map(tuple, intervals) if pair[0] < pair[1]):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


def subtract(a, b):
    """Return the intervals covered by a and not by b."""
    result = []
    for start, end in merge(a):
        for cut_start, cut_end in merge(b):
            if cut_start < end and cut_end > start:
                if start < cut_start:
                    result.append((start, cut_start))
                start = cut_end
        if start < end:
            result.append((start, end))
    return result
